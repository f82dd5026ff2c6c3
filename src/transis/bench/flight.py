"""`transis bench flight`: what the flight recorder costs a node, as a ratio of runs with it and without it.

Runs alternate, with without without with, so that a machine that becomes slower or warmer harms both. Each pair gives a ratio;
told are the median of the ratios, between which values it lies with a certainty of 95 %, and their range, of the messages a
second and of the processor time of a message. One pair says little: runs of the same nodes differ by a tenth. So in a few more
runs the recorder is timed where it works, inside of nodes that programs embed: the part of their processor time that it takes.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from transis.bench.bare import bare_datagrams_per_s
from transis.bench.throughput import Throughput, machine, measure_throughput

MEASURED: Final = {
    "msgs_per_s": "with the flight recorder, as a part of without it: 0.97 is 3 % less",
    "cpu_us_per_msg": "with the flight recorder, as a multiple of without it: 1.03 is 3 % more",
    "share": "processor time inside of the flight recorder, as a part of the program's: the median of its nodes, a figure a run",
}
TIMED_RUNS: Final = 5

Say = Callable[[str], None]
Pair = tuple[dict[str, Any], dict[str, Any]]
"""With the flight recorder, and without."""


class FlightCost(NamedTuple):
    nodes: int
    sizes: tuple[int, ...]
    rounds: int
    seconds: float
    engine: str
    path: str


def measure_flight(wanted: FlightCost, say: Say) -> dict[str, Any]:
    bare = bare_datagrams_per_s()
    return {
        "engine": wanted.engine,
        "nodes": wanted.nodes,
        "path": wanted.path,
        "rounds": wanted.rounds,
        "seconds": wanted.seconds,
        "sizes": {str(size): _of_size(wanted, size, bare, say) for size in wanted.sizes},
        "measured": MEASURED,
        "machine": machine(),
    }


def _of_size(wanted: FlightCost, size: int, bare: float, say: Say) -> dict[str, Any]:
    def run(path: str, *, flight: bool, timed: bool = False) -> dict[str, Any]:
        how = ("agreed", path, wanted.seconds, False, False, "multicast", wanted.engine)
        return measure_throughput(Throughput(wanted.nodes, size, *how, flight=flight, timed=timed), lambda _: None, bare)

    pairs: list[Pair] = []
    for number in range(wanted.rounds):
        runs: dict[bool, dict[str, Any]] = {}
        for flight in (True, False) if number % 2 == 0 else (False, True):
            words = f"{size} B, pair {number + 1} of {wanted.rounds}, {'with' if flight else 'without'}"
            say(words)
            runs[flight] = run(wanted.path, flight=flight)
        pairs.append((runs[True], runs[False]))
    say(f"{size} B, timing the flight recorder")
    timed = [run("embedded", flight=True, timed=True) for _ in range(TIMED_RUNS)]
    return {
        "share": sorted(round(one["flight_share"], 4) for one in timed),
        "msgs_per_s": _ratio(pairs, "msgs_per_s"),
        "cpu_us_per_msg": _ratio(pairs, "cpu_us_per_msg"),
        "lost": sum(run["lost"] for pair in pairs for run in pair),
        "view_changes": sum(run["view_changes"] for pair in pairs for run in pair),
    }


def _ratio(pairs: Sequence[Pair], figure: str) -> dict[str, float]:
    ratios = [with_it[figure] / max(1e-9, without[figure]) for with_it, without in pairs]
    low, high = interval(sorted(ratios))
    middles = [statistics.median(pair[which][figure] for pair in pairs) for which in (0, 1)]
    return {
        "ratio": round(statistics.median(ratios), 3),
        "from": round(low, 3),
        "to": round(high, 3),
        "lowest": round(min(ratios), 3),
        "highest": round(max(ratios), 3),
        "with": round(middles[0], 2),
        "without": round(middles[1], 2),
    }


def interval(ordered: Sequence[float]) -> tuple[float, float]:
    """Where the true median lies in 95 of 100 such measurements: between two ranks, whatever the ratios are spread like."""
    reach = 0.98 * math.sqrt(len(ordered))
    first = max(0, math.floor(len(ordered) / 2 - reach))
    last = min(len(ordered) - 1, math.ceil(len(ordered) / 2 + reach) - 1)
    return ordered[first], ordered[last]
