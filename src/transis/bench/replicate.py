"""How fast replicas order and sync, beside the disk's own limit and beside others who replicate a log (log_peers.py).

    python -m transis.bench.replicate      (started by the benchmark; its first line says which replica to be)

1. Every replica is a process with an embedded node, and posts as much as its window allows; counted is what became ordered, that
   is, final and synced at a majority. JetStream and PySyncObj have the same number of clients and the same window.
2. The disk's limit: as many threads as replicas, each with a file of its own, append as many bytes as one of our actions has and
   sync them, again and again.
3. With a rate, all replicas together post so many messages a second, one by one; the latency is from the call to `ordered`.
"""

from __future__ import annotations

import asyncio
import os
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from time import perf_counter
from typing import Any, Final, NamedTuple

import msgspec

from transis.bench.log_peers import WARM_UP_S, Load, Meter, PeerAcks, measure_peer, peers_here, summary
from transis.bench.machines import (
    BenchError,
    NodePlace,
    Site,
    Worker,
    Workers,
    machine,
    next_order,
    open_orders,
    report,
    run_process,
)
from transis.embed.node import Node
from transis.net.runtime import end_with_parent
from transis.net.transport import Group as MulticastGroup
from transis.replication.log import ReplicaLog
from transis.replication.replica import replica
from transis.types.config import EngineName
from transis.types.errors import NotYet

PACED_RATE: Final = 1000.0
CALL_BYTES: Final = 64 * 1024
CALL_MESSAGES: Final = 512
PRIMARY_S: Final = 30.0
LATE_S: Final = 20.0
TICK_S: Final = 0.001

Say = Callable[[str], None]


class ReplicateRequest(NamedTuple):
    replicas: int
    sizes: tuple[int, ...]
    seconds: float
    engine: EngineName
    peers: bool
    directory: Path | None
    """Where the replicas' directories are made; None for a temporary one."""


class MemberSpec(NodePlace, kw_only=True):
    """What one replica is told."""

    replicas: list[str]
    log: str
    size: int
    seconds: float
    rate: float


def measure_replicate(request: ReplicateRequest, say: Say) -> dict[str, Any]:
    with TemporaryDirectory(prefix="transis-bench-", dir=request.directory) as directory:
        sizes = {str(size): _measure_size(request, size, Path(directory), say) for size in request.sizes}
    what = {"replicas": request.replicas, "engine": request.engine, "seconds": request.seconds}
    return what | {"sizes": sizes, "machine": machine()}


def _measure_size(request: ReplicateRequest, size: int, directory: Path, say: Say) -> dict[str, Any]:
    full, paced = Load(size, request.seconds), Load(size, request.seconds, PACED_RATE)
    say(f"{size} bytes: {request.replicas} replicas at full speed")
    figures: dict[str, Any] = {"full": _measure_replicas(request, full, directory)}
    say(f"{size} bytes: {request.replicas} replicas at {PACED_RATE:g} messages a second")
    figures["paced"] = _measure_replicas(request, paced, directory)
    say(f"{size} bytes: the disk")
    figures["disk"] = _measure_disk(request.replicas, size, request.seconds, directory)
    figures["part_of_disk"] = round(figures["full"]["msgs_per_s"] / figures["disk"]["msgs_per_s"], 3)
    figures["peers"] = []
    for name in peers_here() if request.peers else ():
        say(f"{size} bytes: {name}")
        figures["peers"].append({"peer": name} | _beside(name, full, paced, figures["full"]))
    return figures


def _beside(name: str, full: Load, paced: Load, ours: dict[str, Any]) -> dict[str, Any]:
    """One that cannot be measured here does not end the benchmark."""
    try:
        theirs = measure_peer(name, full)
        ratio = round(ours["msgs_per_s"] / max(1, theirs["msgs_per_s"]), 2)
        return {"full": theirs, "paced": measure_peer(name, paced), "ratio": ratio}
    except BenchError as error:
        return {"failed": str(error)}


# --- replicas -------------------------------------------------------------------------------------------------------------


def _measure_replicas(request: ReplicateRequest, load: Load, directory: Path) -> dict[str, Any]:
    with TemporaryDirectory(dir=directory) as inner, Site(request.replicas, Path(inner), engine=request.engine) as site:
        lines = asyncio.run(_run_members(site, load))
    acks = [PeerAcks(*line["acks"]) for line in lines]
    messages = sum(one.messages for one in acks)
    posted = max(1, messages * load.size)
    return summary(acks, load.seconds) | {
        "cpu_us_per_msg": round(1e6 * sum(line["cpu_s"] for line in lines) / max(1, messages), 2),
        "written_per_byte": round(sum(line["written"] for line in lines) / posted, 2),
    }


async def _run_members(site: Site, load: Load) -> list[dict[str, Any]]:
    async with Workers() as workers:
        members = [await _start_member(site, workers, name, load) for name in site.names]
        for member in members:
            await member.hear("ready", PRIMARY_S)
        for member in members:
            member.send({"go": True})
        return [await member.hear("acks", WARM_UP_S + load.seconds + LATE_S) for member in members]


async def _start_member(site: Site, workers: Workers, name: str, load: Load) -> Worker:
    log = str(site.directory / "logs" / name)
    member = await workers.start(f"replica {name}", __name__)
    member.send(site.place(name) | {"replicas": list(site.names), "log": log} | load._asdict())
    return member


async def _member() -> None:
    orders = await open_orders()
    spec = msgspec.convert(await next_order(orders), MemberSpec)
    end_with_parent(spec.parent)
    async with _node(spec) as node:
        opening = replica("bench", me=spec.name, replicas=spec.replicas, directory=spec.log, connect=node.connect)
        async with opening as log:
            await _until_primary(log)
            report({"ready": True})
            await next_order(orders)
            poster = Poster(log, Load(spec.size, spec.seconds, spec.rate), len(spec.replicas))
            before = _used()
            await poster.run()
            cpu_s, written = (after - earlier for after, earlier in zip(_used(), before, strict=True))
            report({"acks": [poster.meter.messages, poster.meter.latencies], "cpu_s": cpu_s, "written": written})
            await next_order(orders)


def _node(spec: MemberSpec) -> Node:
    group = MulticastGroup(spec.group, spec.group_port, spec.group_port + 1)
    return Node(spec.name, cluster=spec.cluster, plaintext=True, group=group, state=Path(spec.state), engine=spec.engine)


async def _until_primary(log: ReplicaLog[bytes]) -> None:
    async with asyncio.timeout(PRIMARY_S):
        while not log.status().is_primary:
            await asyncio.sleep(0.05)


def _used() -> tuple[float, int]:
    """Processor seconds of this process, and bytes that it wrote, so far."""
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text(encoding="ascii").splitlines())
    times = os.times()
    return times.user + times.system, int(fields["write_bytes"])


class Poster:
    def __init__(self, log: ReplicaLog[bytes], load: Load, replicas: int) -> None:
        self.meter = Meter(load)
        self._log = log
        self._load = load
        self._rate = load.rate / replicas
        self._payload = bytes(load.size)
        self._calls: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        if self._load.rate:
            await self._post_at_a_rate()
        else:
            await self._post_all()
        await asyncio.gather(*self._calls)

    async def _post_all(self) -> None:
        count = max(1, min(CALL_MESSAGES, CALL_BYTES // max(1, self._load.size)))
        writers = [self._go_on(count) for _ in range(self._load.window // count)]
        await asyncio.gather(*writers)

    async def _go_on(self, count: int) -> None:
        while not self.meter.is_over:
            await self._post(count)

    async def _post_at_a_rate(self) -> None:
        began, posted = perf_counter(), 0
        while not self.meter.is_over:
            due = int((perf_counter() - began) * self._rate) - posted
            for _ in range(due):
                self._calls.add(task := asyncio.create_task(self._post(1)))
                task.add_done_callback(self._calls.discard)
            posted += due
            await asyncio.sleep(TICK_S)

    async def _post(self, count: int) -> None:
        began = perf_counter()
        receipt = await self._log.post_many([self._payload] * count)
        try:
            await receipt.ordered(LATE_S)
        except NotYet as error:
            raise BenchError(f"a post was not ordered within {LATE_S:g} s: {error}") from error
        self.meter.acknowledged(began, perf_counter(), count)


# --- the disk -------------------------------------------------------------------------------------------------------------


def _measure_disk(files: int, size: int, seconds: float, directory: Path) -> dict[str, Any]:
    """In appends of what one call of a poster has, and, for the latency of one sync, of one message."""
    count = max(1, min(CALL_MESSAGES, CALL_BYTES // max(1, size)))
    spans = _append(files, count * size, seconds, directory)
    single = sorted(1000 * span for span in _append(1, size, min(1.0, seconds), directory))
    return {
        "msgs_per_s": round(count * len(spans) / files / seconds),
        "sync_p50_ms": round(statistics.median(single), 3),
        "sync_p99_ms": round(single[int(0.99 * len(single))], 3),
    }


def _append(files: int, size: int, seconds: float, directory: Path) -> Sequence[float]:
    """How long each append with its sync took, in all threads."""
    spans: list[float] = []
    end = perf_counter() + seconds

    def work(path: Path) -> None:
        block = bytes(size)
        with path.open("wb", buffering=0) as file:
            while (began := perf_counter()) < end:
                file.write(block)
                os.fdatasync(file.fileno())
                spans.append(perf_counter() - began)
        path.unlink()

    threads = [Thread(target=work, args=(directory / f"disk{number}",)) for number in range(files)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return spans


if __name__ == "__main__":
    run_process(_member)
