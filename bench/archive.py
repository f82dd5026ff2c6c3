"""An archive under fire: messages through a live group of daemons, archivers killed and restarted, then the table is checked.

    python -m bench.archive [--messages 1000000] [--size 64] [--kills 10] [--archivers 2] [--rate 0] [--engine totem] [--json]
                            [--keep DIR]

Three daemons on loopback; one program sends, agreed, as fast as the group takes it or at `--rate` a second; archivers are members
on daemons of their own. One or the other is killed by SIGKILL and restarted while messages go on. Half-way to the next kill
the sender waits until all archivers are members again: so one of two always is, and no message may be missing. With one
archiver its absences must be reported as gaps. `--kills 0` measures the speed. Exit code 1 if the archive is not what was sent.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from statistics import median
from tempfile import mkdtemp
from time import monotonic, process_time
from typing import Any, NamedTuple

from bench.archive_check import WrongArchive, check, missing_is_told, read_lives
from transis.bench.machines import Worker, Workers, usage_of
from transis.cli.local_cluster import LocalCluster
from transis.client.connection import connect
from transis.client.sending import Receipt
from transis.client.session import Session
from transis.types.errors import ConnectError
from transis.types.ids import Service

GROUP = "bench"
PORTION = 1000
"""Messages of one call of the sender."""
AHEAD = 16
"""Portions that are on their way at once."""
SEGMENT_MB = 16
"""Small files, so that publishing goes on while messages come, and is in the figures."""
PATIENCE_S = 120.0
NAMES = ("first", "second")


class Wish(NamedTuple):
    messages: int
    size: int
    kills: int
    archivers: int
    rate: float
    engine: str


class Archivist:
    """One archiver as a process, life after life; its output, and the processor time and memory of all its lives."""

    def __init__(self, workers: Workers, name: str, socket: Path, directory: Path) -> None:
        self.name = name
        self.acknowledged: dict[int, int] = {}
        self.lags_ms: list[int] = []
        self.rates: list[int] = []
        self.rss_bytes = 0
        self.life = self.killed_in = 0
        self.socket = socket
        self._workers, self._directory = workers, directory
        self._cpu_s = 0.0
        self._worker: Worker | None = None
        self._hearing: asyncio.Task[None] | None = None
        self._news = asyncio.Event()

    async def start(self) -> None:
        where = ("--to", str(self._directory), "--name", self.name, "--socket", str(self.socket))
        more = ("--segment-mb", str(SEGMENT_MB), "--json")
        self._worker = await self._workers.start(self.name, "transis", "archive", GROUP, *where, *more)
        self._hearing = asyncio.create_task(self._hear(self._worker))

    async def _hear(self, worker: Worker) -> None:
        while True:
            line = await worker.hear("rows", PATIENCE_S)
            self.rss_bytes = max(self.rss_bytes, usage_of(worker.pid).rss_bytes)
            if line["acknowledged"] is not None and line["acknowledged"]["life"] > self.killed_in:
                self.life, row = line["acknowledged"]["life"], line["acknowledged"]["row"]
                self.acknowledged[self.life] = max(row, self.acknowledged.get(self.life, 0))
                self.lags_ms.append(line["lag_ms"])
                self.rates.append(line["rows_per_s"])
            self._news.set()

    @property
    def is_up(self) -> bool:
        """It has acknowledged something in the life that runs, so it is a member."""
        return self.life > self.killed_in

    async def until_up(self) -> None:
        await self.until(lambda: self.is_up)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                self._news.clear()
                await self._news.wait()

    async def kill(self) -> None:
        self.killed_in = self.life
        await self._end(signal.SIGKILL)

    async def stop(self) -> int:
        return await self._end(signal.SIGTERM)

    async def _end(self, number: signal.Signals) -> int:
        worker, hearing = self._worker, self._hearing
        assert worker is not None
        assert hearing is not None
        if number is signal.SIGKILL:
            self._cpu_s += usage_of(worker.pid).cpu_s
        worker.process.send_signal(number)
        async with asyncio.timeout(PATIENCE_S):
            code = await worker.process.wait()
        hearing.cancel()
        await asyncio.gather(hearing, return_exceptions=True)
        return code

    def cpu_s(self) -> float:
        assert self._worker is not None
        return self._cpu_s + usage_of(self._worker.pid).cpu_s


def payloads(first: int, count: int, size: int) -> list[bytes]:
    rest = bytes(size - 8)
    return [number.to_bytes(8) + rest for number in range(first, first + count)]


async def send(session: Session[bytes], wish: Wish, may_go_on: Callable[[int], Awaitable[None]]) -> None:
    """All of them, in order. Awaits `may_go_on(n)` before each portion: killing has its place between messages."""
    began, receipts = monotonic(), list[Receipt]()
    for first in range(0, wish.messages, PORTION):
        await may_go_on(first)
        count = min(PORTION, wish.messages - first)
        receipts.append(await session.send_many(GROUP, payloads(first, count, wish.size), Service.AGREED))
        if len(receipts) >= AHEAD:
            await receipts.pop(0)
        if wish.rate:
            await asyncio.sleep(max(0.0, began + (first + count) / wish.rate - monotonic()))
    for receipt in receipts:
        await receipt


def kill_in_turn(wish: Wish, archivists: list[Archivist]) -> Callable[[int], Awaitable[None]]:
    """A function that kills the next one when its message has come, and half-way to the one after it waits for all."""
    steps = 2 * (wish.kills + 1)
    kills = [wish.messages * step // steps for step in range(2, steps, 2)]
    waits = [wish.messages * step // steps for step in range(3, steps, 2)]
    restarting: list[asyncio.Task[None]] = []

    async def may_go_on(message: int) -> None:
        if kills and message >= kills[0]:
            kills.pop(0)
            victim = archivists[len(restarting) % len(archivists)]
            await victim.kill()
            restarting.append(asyncio.create_task(victim.start()))
        if waits and message >= waits[0]:
            waits.pop(0)
            for one in archivists:
                await one.until_up()

    return may_go_on


async def session_with(socket: Path) -> Session[bytes]:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                return await connect(str(socket), label="bench").open()
            except ConnectError:
                await asyncio.sleep(0.1)


async def measure(wish: Wish, directory: Path) -> dict[str, Any]:
    cluster = LocalCluster(directory, ("n1", "n2", "n3"), {"node": {"engine": wish.engine}})
    archive = directory / "archive"
    try:
        cluster.start()
        async with Workers() as workers:
            session = await session_with(cluster["n3"].clients)
            archivists = [
                Archivist(workers, name, cluster[node].clients, archive)
                for name, node in list(zip(NAMES, ("n1", "n2"), strict=True))[: wish.archivers]
            ]
            for one in archivists:
                await begin(one)
            took = await run(wish, session, archivists, cluster)
            await session.close()
            codes = [await one.stop() for one in archivists]
            if any(codes):
                raise WrongArchive(f"archivers ended with {codes}")
    finally:
        cluster.stop()
    acknowledged = [(one.name, life, row) for one in archivists for life, row in one.acknowledged.items()]
    found = check(archive, wish.messages, wish.size, acknowledged)
    if wish.archivers == 1:
        missing_is_told(read_lives(archive), wish.messages)
    elif found["missing"]:
        raise WrongArchive(f"{found['missing']} messages are missing, although one of two archivers was always there")
    return {**wish._asdict(), **took, **found, "bytes": sum(path.stat().st_size for path in (archive / "stream").iterdir())}


async def begin(archivist: Archivist) -> None:
    """When its daemon listens, start the archiver and wait until it is a member."""
    await (await session_with(archivist.socket)).close()
    await archivist.start()
    await archivist.until_up()


async def run(wish: Wish, session: Session[bytes], archivists: list[Archivist], cluster: LocalCluster) -> dict[str, Any]:
    before, began = cpu_s(archivists, cluster), monotonic()
    await send(session, wish, kill_in_turn(wish, archivists))
    sent = monotonic()
    for one in archivists:
        await one.until_up()
    if not wish.kills:
        for one in archivists:
            await one.until(lambda one=one: max(one.acknowledged.values()) >= wish.messages)
    done = monotonic()
    lags = [lag for one in archivists for lag in one.lags_ms]
    used = [after - its for after, its in zip(cpu_s(archivists, cluster), before, strict=True)]
    return {
        "sent_per_s": round(wish.messages / (sent - began)),
        "acknowledged_per_s": round(wish.messages / (done - began)),
        "rows_per_s_best": max((rate for one in archivists for rate in one.rates), default=0),
        "lag_ms_median": median(lags),
        "lag_ms_max": max(lags),
        "archiver_rss_mb_max": round(max(one.rss_bytes for one in archivists) / 1e6),
        "archiver_cpu_us_per_msg": round(1e6 * used[0] / wish.messages / len(archivists), 2),
        "daemon_cpu_us_per_msg": round(1e6 * used[1] / wish.messages / len(cluster.daemons), 2),
        "sender_cpu_us_per_msg": round(1e6 * used[2] / wish.messages, 2),
    }


def cpu_s(archivists: list[Archivist], cluster: LocalCluster) -> list[float]:
    """Of all archivers, of all daemons, and of this process."""
    daemons = sum(usage_of(daemon.pid).cpu_s for daemon in cluster.daemons)
    return [sum(one.cpu_s() for one in archivists), daemons, process_time()]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.archive", description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--size", type=int, default=64, help="bytes of a message, at least 8")
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--archivers", type=int, choices=(1, 2), default=2)
    parser.add_argument("--rate", type=float, default=0, help="messages a second; 0 for as many as the group takes")
    parser.add_argument("--engine", default="totem")
    parser.add_argument("--keep", type=Path, help="a new directory that stays")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def main() -> int:
    wanted = arguments()
    wish = Wish(wanted.messages, max(8, wanted.size), wanted.kills, wanted.archivers, wanted.rate, wanted.engine)
    directory = wanted.keep or Path(mkdtemp(prefix="transis-archive-"))
    directory.mkdir(parents=True, exist_ok=True)
    try:
        found = asyncio.run(measure(wish, directory))
    except WrongArchive as error:
        print(f"the archive is not what was sent: {error}; it stays in {directory}", file=sys.stderr)
        return 1
    if not wanted.keep:
        with suppress(OSError):
            shutil.rmtree(directory)
    print(json.dumps(found) if wanted.json else "\n".join(f"{name:24} {value}" for name, value in found.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
