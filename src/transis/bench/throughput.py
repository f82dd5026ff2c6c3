"""What nodes reach and cost: messages a second, the share of the flight recorder, daemons that do nothing.

1. `throughput`: every node is a program of its own (workers.py), with an embedded node or as a client of a daemon in another
   process, and all of them send all the time. What each program receives is measured.
2. `flight`: runs with and without the flight recorder alternate, with without without with, so that a machine that becomes slower
   or warmer harms both. Each pair gives a ratio of the messages a second and one of the processor time of a message; shown are
   the median of the ratios, an interval in which it lies with a certainty of 95 %, and their range. One pair says little: runs of
   the same nodes differ by a tenth. So in a few more runs the recorder is timed where it works, inside nodes that programs embed:
   the part of their processor time that it takes.
3. `idle`: processor time and memory of daemons without clients, and how soon after their start they are in one view.
"""

from __future__ import annotations

import asyncio
import math
import statistics
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, Final, NamedTuple

import msgspec

from transis.bench.machines import (
    DATAGRAM,
    PATIENCE_S,
    BenchError,
    Site,
    Usage,
    Worker,
    Workers,
    bare_datagrams_per_s,
    machine,
    usage_of,
)
from transis.bench.workers import ProgramSpec
from transis.cli.admin import AdminConnection
from transis.types.config import EngineName, TransportName

# --- throughput -------------------------------------------------------------------------------------------------------

WARM_UP_S: Final = 1.0
MEASURED: Final = {
    "latency_ms": "from the call of send_many to the application that takes the message, all queues included, all senders",
    "cpu_us_per_msg": "processor time of a node's processes for each message that it took",
}

Say = Callable[[str], None]


class ThroughputRequest(NamedTuple):
    nodes: int
    size: int
    service: str
    path: str
    seconds: float
    lan: bool
    sealed: bool
    transport: TransportName
    engine: EngineName
    rate: float = 0.0
    """Messages a second that each program sends; 0 for as many as it may."""
    flight: bool = True
    """Whether nodes have a flight recorder, as they do by default."""
    timed: bool = False
    """Whether programs with embedded nodes report what part of their time the flight recorder takes."""


class _Place(NamedTuple):
    """One node: the program, and the daemon behind it if there is one."""

    speaker: Worker
    daemon: Worker | None

    def usage(self) -> Usage:
        used = [usage_of(worker.pid) for worker in (self.speaker, self.daemon) if worker is not None]
        return Usage(sum(one.cpu_s for one in used), sum(one.rss_bytes for one in used))


class _Account(NamedTuple):
    result: dict[str, Any]
    before: Usage
    after: Usage


def measure_throughput(request: ThroughputRequest, say: Say, bare: float = 0.0) -> dict[str, Any]:
    """`bare` is what bare UDP reached here before; if 0, it is measured first."""
    if not bare:
        say("measuring bare UDP")
        bare = bare_datagrams_per_s()
    with TemporaryDirectory(prefix="transis-bench-") as directory:
        how = {"lan": request.lan, "sealed": request.sealed, "flight": request.flight}
        with Site(request.nodes, Path(directory), engine=request.engine, transport=request.transport, **how) as site:
            accounts = asyncio.run(_measure(request, site, say))
    return _sum_up(request, accounts, bare)


async def _measure(request: ThroughputRequest, site: Site, say: Say) -> list[_Account]:
    async with Workers() as workers:
        say(f"starting {request.nodes} nodes")
        places = [await _start(request, site, workers, name) for name in site.names]
        await asyncio.gather(*(place.speaker.hear("ready") for place in places))
        say(f"warming up for {WARM_UP_S:g} s, then measuring for {request.seconds:g} s")
        for place in places:
            place.speaker.send({"go": True})
        accounts = await asyncio.gather(*(_account(place, request.seconds) for place in places))
        for place in places:
            place.speaker.send({"end": True})
        await asyncio.gather(*(place.speaker.process.wait() for place in places))
        return list(accounts)


async def _start(request: ThroughputRequest, site: Site, workers: Workers, name: str) -> _Place:
    daemon = await site.start_daemon(workers, name) if request.path == "session" else None
    if daemon is not None:
        await daemon.hear("ready")
    speaker = await workers.start(f"program {name}", "transis.bench.workers", prefix=site.prefix(name))
    job = ProgramSpec(
        **site.place(name),
        nodes=request.nodes,
        size=request.size,
        service=request.service,
        seconds=request.seconds,
        warm_up=WARM_UP_S,
        rate=request.rate,
        socket=site.socket(name) if daemon is not None else "",
        key=site.key.hex() if site.key is not None else "",
        interface=site.interface(name),
        transport=site.transport,
        port=site.port(name),
        seeds=tuple(site.seeds),
        flight=request.flight,
        timed=request.timed,
    )
    speaker.send(msgspec.to_builtins(job))
    return _Place(speaker, daemon)


async def _account(place: _Place, seconds: float) -> _Account:
    await place.speaker.hear("measuring")
    before = place.usage()
    await place.speaker.hear("measured", seconds + PATIENCE_S)
    after = place.usage()
    heard = await place.speaker.hear("result")
    return _Account(heard["result"], before, after)


def _sum_up(request: ThroughputRequest, accounts: Sequence[_Account], bare: float) -> dict[str, Any]:
    rates = [account.result["msgs_per_s"] for account in accounts]
    rate = statistics.median(rates)
    cpu = [1e6 * (one.after.cpu_s - one.before.cpu_s) / max(1, one.result["messages"]) for one in accounts]
    first = accounts[0].result
    return {
        "engine": request.engine,
        "nodes": request.nodes,
        "size": request.size,
        "service": request.service,
        "path": request.path,
        "network": "namespaces" if request.lan else "loopback",
        "transport": request.transport,
        "sealed": request.sealed,
        "tracing": False,
        "flight": request.flight,
        "rate": request.rate or "as fast as it may",
        "seconds": request.seconds,
        "msgs_per_s": round(rate),
        "msgs_per_s_min": round(min(rates)),
        "msgs_per_s_max": round(max(rates)),
        "MB_per_s": round(rate * request.size / 1e6, 1),
        "latency_ms": _latency(accounts),
        "lost": sum(account.result["lost"] for account in accounts),
        "view_changes": sum(account.result["view_changes"] for account in accounts),
        "retransmitted": sum(account.result["retransmitted"] for account in accounts),
        "overflows": sum(account.result["overflows"] for account in accounts),
        "pauses": sum(account.result["pauses"] for account in accounts),
        "msgs_per_batch": round(sum(one.result["messages"] for one in accounts) / max(1, sum(_batches(accounts))), 1),
        "cpu_us_per_msg": round(statistics.median(cpu), 2),
        "flight_share": statistics.median(one.result["flight_share"] for one in accounts) if request.timed else None,
        "rss_mb_start": [round(one.before.rss_bytes / 1e6, 1) for one in accounts],
        "rss_mb_end": [round(one.after.rss_bytes / 1e6, 1) for one in accounts],
        "gso": first["gso"],
        "gro": first["gro"],
        "bare_datagrams_per_s": round(bare),
        "part_of_bare": round(rate * request.size / (bare * DATAGRAM), 4),
        "measured": MEASURED,
        "machine": machine(),
    }


def _latency(accounts: Sequence[_Account]) -> dict[str, float]:
    p50, p99 = zip(*(account.result["latency_ms"] for account in accounts), strict=True)
    return {"p50": round(statistics.median(p50), 2), "p99": round(statistics.median(p99), 2)}


def _batches(accounts: Sequence[_Account]) -> list[int]:
    return [account.result["batches"] for account in accounts]


# --- the flight recorder ----------------------------------------------------------------------------------------------

FLIGHT_MEASURED: Final = {
    "msgs_per_s": "with the flight recorder, as a part of without it: 0.97 is 3 % less",
    "cpu_us_per_msg": "with the flight recorder, as a multiple of without it: 1.03 is 3 % more",
    "share": "processor time inside of the flight recorder, as a part of the program's: the median of its nodes, a figure a run",
}
TIMED_RUNS: Final = 5

Pair = tuple[dict[str, Any], dict[str, Any]]
"""With the flight recorder, and without."""


class FlightRequest(NamedTuple):
    nodes: int
    sizes: tuple[int, ...]
    rounds: int
    seconds: float
    engine: EngineName
    path: str


def measure_flight(request: FlightRequest, say: Say) -> dict[str, Any]:
    bare = bare_datagrams_per_s()
    return {
        "engine": request.engine,
        "nodes": request.nodes,
        "path": request.path,
        "rounds": request.rounds,
        "seconds": request.seconds,
        "sizes": {str(size): _flight_of_size(request, size, bare, say) for size in request.sizes},
        "measured": FLIGHT_MEASURED,
        "machine": machine(),
    }


def _flight_of_size(request: FlightRequest, size: int, bare: float, say: Say) -> dict[str, Any]:
    def run(path: str, *, flight: bool, timed: bool = False) -> dict[str, Any]:
        load = (request.nodes, size, "agreed", path, request.seconds)
        asked = ThroughputRequest(*load, False, False, "multicast", request.engine, flight=flight, timed=timed)
        return measure_throughput(asked, lambda _: None, bare)

    pairs: list[Pair] = []
    for number in range(request.rounds):
        runs: dict[bool, dict[str, Any]] = {}
        for flight in (True, False) if number % 2 == 0 else (False, True):
            words = f"{size} B, pair {number + 1} of {request.rounds}, {'with' if flight else 'without'}"
            say(words)
            runs[flight] = run(request.path, flight=flight)
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
    """Where the true median lies in 95 of 100 such measurements: between two ranks, whatever the distribution of the ratios."""
    reach = 0.98 * math.sqrt(len(ordered))
    first = max(0, math.floor(len(ordered) / 2 - reach))
    last = min(len(ordered) - 1, math.ceil(len(ordered) / 2 + reach) - 1)
    return ordered[first], ordered[last]


# --- idle daemons -------------------------------------------------------------------------------------------------------

LOOK_S: Final = 0.01


class IdleRequest(NamedTuple):
    nodes: int
    seconds: float
    engine: EngineName


def measure_idle(request: IdleRequest, say: Say) -> dict[str, Any]:
    with TemporaryDirectory(prefix="transis-bench-") as directory:
        site = Site(request.nodes, Path(directory), engine=request.engine)
        return asyncio.run(_measure_daemons(request, site, say))


async def _measure_daemons(request: IdleRequest, site: Site, say: Say) -> dict[str, Any]:
    async with Workers() as workers:
        say(f"starting {request.nodes} daemons")
        began = perf_counter()
        daemons = [await site.start_daemon(workers, name) for name in site.names]
        for daemon in daemons:
            await daemon.hear("ready")
        ready_s = perf_counter() - began
        await _until_together(site, request.nodes)
        together_s = perf_counter() - began
        say(f"watching them do nothing for {request.seconds:g} s")
        before, since = [usage_of(daemon.pid) for daemon in daemons], perf_counter()
        await asyncio.sleep(request.seconds)
        after, passed_s = [usage_of(daemon.pid) for daemon in daemons], perf_counter() - since
    return _sum_up_idle(request, before, after, passed_s) | {
        "ready_s": round(ready_s, 2),
        "first_common_view_s": round(together_s, 2),
    }


async def _until_together(site: Site, nodes: int) -> None:
    """Wait until every daemon has all of them in its view."""
    with ExitStack() as opened:
        asked = [opened.enter_context(AdminConnection(None, Path(site.socket(name)))) for name in site.names]
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not all(len(one.ask("members")["members"]) == nodes for one in asked):
                    await asyncio.sleep(LOOK_S)
        except TimeoutError:
            raise BenchError(f"the daemons did not come to one view within {PATIENCE_S:g} s") from None


def _sum_up_idle(request: IdleRequest, before: list[Usage], after: list[Usage], passed_s: float) -> dict[str, Any]:
    cpu = [100 * (late.cpu_s - early.cpu_s) / passed_s for early, late in zip(before, after, strict=True)]
    return {
        "engine": request.engine,
        "nodes": request.nodes,
        "seconds": round(passed_s, 2),
        "cpu_percent": round(statistics.median(cpu), 2),
        "cpu_percent_max": round(max(cpu), 2),
        "rss_mb": round(statistics.median(one.rss_bytes for one in after) / 1e6, 1),
        "rss_mb_max": round(max(one.rss_bytes for one in after) / 1e6, 1),
        "machine": machine(),
    }
