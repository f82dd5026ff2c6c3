"""`transis bench throughput`: how many messages a second each program takes, when all of them send all the time.

Every node is a program of its own (bench_speaker.py): with an embedded node, or as a client of a daemon that is another process.
"""

from __future__ import annotations

import asyncio
import os
import platform
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

import msgspec

from transis.bench.bare import DATAGRAM, bare_datagrams_per_s
from transis.bench.machines import PATIENCE_S, Site, Usage, Worker, Workers, usage_of
from transis.bench.speaker import Job

WARM_UP_S: Final = 1.0
MEASURED: Final = {
    "latency_ms": "from the call of send_many to the application that takes the message, all queues included, all senders",
    "cpu_us_per_msg": "processor time of a node's processes for each message that it took",
}

Say = Callable[[str], None]


class Throughput(NamedTuple):
    nodes: int
    size: int
    service: str
    path: str
    seconds: float
    lan: bool
    sealed: bool
    transport: str
    engine: str
    rate: float = 0.0
    """Messages a second that each program sends; 0 for as many as it may."""
    flight: bool = True
    """With the flight recorder, as nodes have it unless they are told otherwise."""
    timed: bool = False
    """Programs with embedded nodes tell what part of their time the flight recorder takes."""


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


def measure_throughput(wanted: Throughput, say: Say, bare: float = 0.0) -> dict[str, Any]:
    """`bare` is what bare UDP reached here before; 0: it is measured first."""
    if not bare:
        say("measuring bare UDP")
        bare = bare_datagrams_per_s()
    with TemporaryDirectory(prefix="transis-bench-") as directory:
        how = {"lan": wanted.lan, "sealed": wanted.sealed, "flight": wanted.flight}
        with Site(wanted.nodes, Path(directory), engine=wanted.engine, transport=wanted.transport, **how) as site:
            accounts = asyncio.run(_measure(wanted, site, say))
    return _sum_up(wanted, accounts, bare)


async def _measure(wanted: Throughput, site: Site, say: Say) -> list[_Account]:
    async with Workers() as workers:
        say(f"starting {wanted.nodes} nodes")
        places = [await _start(wanted, site, workers, name) for name in site.names]
        await asyncio.gather(*(place.speaker.hear("ready") for place in places))
        say(f"warming up for {WARM_UP_S:g} s, then measuring for {wanted.seconds:g} s")
        for place in places:
            place.speaker.tell({"go": True})
        accounts = await asyncio.gather(*(_account(place, wanted.seconds) for place in places))
        for place in places:
            place.speaker.tell({"end": True})
        await asyncio.gather(*(place.speaker.process.wait() for place in places))
        return list(accounts)


async def _start(wanted: Throughput, site: Site, workers: Workers, name: str) -> _Place:
    daemon = await site.start_daemon(workers, name) if wanted.path == "session" else None
    if daemon is not None:
        await daemon.hear("ready")
    speaker = await workers.start(f"program {name}", "transis.bench.speaker", prefix=site.prefix(name))
    job = Job(
        name=name,
        parent=os.getpid(),
        nodes=wanted.nodes,
        size=wanted.size,
        service=wanted.service,
        seconds=wanted.seconds,
        warm_up=WARM_UP_S,
        rate=wanted.rate,
        socket=site.socket(name) if daemon is not None else "",
        cluster=site.cluster,
        key=site.key.hex() if site.key is not None else "",
        interface=site.interface(name),
        transport=site.transport,
        group=site.group,
        group_port=site.group_port,
        port=site.port(name),
        seeds=site.seeds,
        state=site.state(name),
        engine=site.engine,
        flight=wanted.flight,
        timed=wanted.timed,
    )
    speaker.tell(msgspec.to_builtins(job))
    return _Place(speaker, daemon)


async def _account(place: _Place, seconds: float) -> _Account:
    await place.speaker.hear("measuring")
    before = place.usage()
    await place.speaker.hear("measured", seconds + PATIENCE_S)
    after = place.usage()
    heard = await place.speaker.hear("result")
    return _Account(heard["result"], before, after)


def _sum_up(wanted: Throughput, accounts: Sequence[_Account], bare: float) -> dict[str, Any]:
    rates = [account.result["msgs_per_s"] for account in accounts]
    rate = statistics.median(rates)
    cpu = [1e6 * (one.after.cpu_s - one.before.cpu_s) / max(1, one.result["messages"]) for one in accounts]
    first = accounts[0].result
    return {
        "engine": wanted.engine,
        "nodes": wanted.nodes,
        "size": wanted.size,
        "service": wanted.service,
        "path": wanted.path,
        "network": "namespaces" if wanted.lan else "loopback",
        "transport": wanted.transport,
        "sealed": wanted.sealed,
        "tracing": False,
        "flight": wanted.flight,
        "rate": wanted.rate or "as fast as it may",
        "seconds": wanted.seconds,
        "msgs_per_s": round(rate),
        "msgs_per_s_min": round(min(rates)),
        "msgs_per_s_max": round(max(rates)),
        "MB_per_s": round(rate * wanted.size / 1e6, 1),
        "latency_ms": _latency(accounts),
        "lost": sum(account.result["lost"] for account in accounts),
        "view_changes": sum(account.result["view_changes"] for account in accounts),
        "retransmitted": sum(account.result["retransmitted"] for account in accounts),
        "overflows": sum(account.result["overflows"] for account in accounts),
        "pauses": sum(account.result["pauses"] for account in accounts),
        "msgs_per_batch": round(sum(one.result["messages"] for one in accounts) / max(1, sum(_batches(accounts))), 1),
        "cpu_us_per_msg": round(statistics.median(cpu), 2),
        "flight_share": statistics.median(one.result["flight_share"] for one in accounts) if wanted.timed else None,
        "rss_mb_start": [round(one.before.rss_bytes / 1e6, 1) for one in accounts],
        "rss_mb_end": [round(one.after.rss_bytes / 1e6, 1) for one in accounts],
        "gso": first["gso"],
        "gro": first["gro"],
        "bare_datagrams_per_s": round(bare),
        "part_of_bare": round(rate * wanted.size / (bare * DATAGRAM), 4),
        "measured": MEASURED,
        "machine": machine(),
    }


def _latency(accounts: Sequence[_Account]) -> dict[str, float]:
    p50, p99 = zip(*(account.result["latency_ms"] for account in accounts), strict=True)
    return {"p50": round(statistics.median(p50), 2), "p99": round(statistics.median(p99), 2)}


def _batches(accounts: Sequence[_Account]) -> list[int]:
    return [account.result["batches"] for account in accounts]


def machine() -> dict[str, Any]:
    """What a figure depends on, without anything that names this machine."""
    loads = os.getloadavg() if hasattr(os, "getloadavg") else (0.0,)
    return {
        "cores": os.cpu_count() or 1,
        "system": f"{platform.system()} {platform.release().partition('-')[0]}",
        "python": platform.python_version(),
        "load_after": round(loads[0], 1),
    }
