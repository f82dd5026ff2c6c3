"""How fast the simulator is here: runs per minute, and delivered messages per second of wall time.

    python -m bench.simulator [--seeds 0:100] [--jobs 2] [--json]

Speed depends on the machine, so the figure to compare across machines is the ratio: events of the simulated world per
event of a bare heap of timers, both in this process, one after the other.
"""

from __future__ import annotations

import argparse
import heapq
import json
import sys
from time import perf_counter

from transis.sim.sweep import sweep

BARE_EVENTS = 400_000
"""Long enough to time, short enough not to matter."""


def bare_events_per_s() -> float:
    """The limit of any simulator in this Python: take the next event from a heap, put another one in."""
    heap = [(number, number) for number in range(1000)]
    heapq.heapify(heap)
    started = perf_counter()
    for number in range(BARE_EVENTS):
        time, _ = heapq.heappop(heap)
        heapq.heappush(heap, (time + 1000, number))
    return BARE_EVENTS / (perf_counter() - started)


def measure(seeds: range, jobs: int) -> dict[str, float | int]:
    bare = bare_events_per_s()
    started = perf_counter()
    summary = sweep(seeds, jobs=jobs)
    wall_s = perf_counter() - started
    turns_per_s = summary.turns / summary.wall_s
    return {
        "runs": summary.runs,
        "violations": summary.violations,
        "jobs": jobs,
        "wall_s": round(wall_s, 1),
        "runs_per_minute": round(60 * summary.runs / wall_s, 1),
        "delivered_messages_per_s": round(summary.deliveries / wall_s),
        "turns_per_s_and_core": round(turns_per_s),
        "bare_heap_events_per_s": round(bare),
        "bare_events_per_turn": round(bare / turns_per_s, 1),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0:100", help="range of seeds A:B, B excluded")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    first, _, last = arguments.seeds.partition(":")
    figures = measure(range(int(first), int(last)), arguments.jobs)
    if arguments.json:
        print(json.dumps(figures))
    else:
        for name, value in figures.items():
            print(f"{name:28} {value:>12}")
    return 1 if figures["violations"] else 0


if __name__ == "__main__":
    sys.exit(main())
