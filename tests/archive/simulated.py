"""Archivers on a simulated cluster, and what its nodes recorded that they were handed: the truth to hold archives against."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pyarrow.parquet as pq

from tests.archive.naive import conf, group_view, process
from transis.archive.archiver import Archiver, ArchiverContext, BlockingWorker
from transis.archive.life import ArchiveLimits
from transis.testing import Cluster
from transis.trace.events import ClientDelivery, Conf, Delivery, GroupConf, NodeTrace
from transis.types.errors import ConnectError
from transis.types.ids import NodeId, ProcessId, Service

T = TypeVar("T")

LIMITS = ArchiveLimits(segment_bytes=20_000, segment_s=0.5, sync_s=0.1, free_bytes=0)
"""Small, so that there are many files."""

Row = dict[str, Any]


def at_once(work: Callable[[], T]) -> Awaitable[T]:
    """Virtual time has no threads: what blocks is done where it is asked for."""

    async def done() -> T:
        return work()

    return done()


class Running:
    """An archiver that is started again after it is killed, and for as long as its node is down."""

    def __init__(
        self,
        c: Cluster,
        node: str,
        directory: Path,
        name: str,
        limits: ArchiveLimits = LIMITS,
        disk: BlockingWorker = at_once,
        publishing: BlockingWorker = at_once,
        group: str = "g",
    ) -> None:
        self.said: list[str] = []
        self._group = group
        self._disk, self._publishing = disk, publishing
        self._c, self._node, self._directory, self._name, self._limits = c, node, directory, name, limits
        self.start()

    def start(self) -> None:
        self.archiver = self._make()
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while True:
            try:
                return await self.archiver.run()
            except ConnectError:
                await self._c.run_for(0.1)
                self.archiver = self._make()

    def _make(self) -> Archiver:
        c = self._c
        world = ArchiverContext(
            lambda: c.connect(self._node),
            self._disk,
            self._publishing,
            lambda: asyncio.get_running_loop().time(),
            lambda: round(c.now * 1e6),
            self.said.append,
        )
        return Archiver(self._group, self._directory, self._name, self._limits, world)

    async def kill(self) -> None:
        """What is in the open journal is all that is left."""
        self.task.cancel()
        await asyncio.wait({self.task})

    async def stop(self) -> None:
        self.archiver.stop()
        await self.task


# --- what there is ----------------------------------------------------------------------------------------------------------


def rows_of(directory: Path) -> list[Row]:
    """In the order of archivers, lives and rows."""
    found: list[Row] = []
    for path in sorted((directory / "stream").glob("*.parquet")):
        found += pq.read_table(path, page_checksum_verification=True).to_pylist()
    return sorted(found, key=lambda row: (row["archiver"], row["life"], row["row"]))


class Token(NamedTuple):
    """One thing in a stream, as both the archive and the nodes' traces have it."""

    kind: str
    what: tuple[Any, ...]


def token_of(row: Row) -> Token:
    if row["kind"] == "message":
        where = (row["ring_seq"], row["ring_rep"], row["place_seq"], row["place_index"]) if row["ordered"] else ()
        return Token("message", (row["process"], row["counter"], row["service"], row["conf"], *where))
    if row["kind"] == "view":
        return Token("view", (row["view"], tuple(row["members"])))
    return Token(row["kind"], (row["conf"],))


def member_of(rows: list[Row], node: str) -> str:
    """Which process the life was: the first view is that of its own join, and on its node nobody else is a member."""
    joined = next(row for row in rows if row["kind"] == "view")["joined"]
    (found,) = [one for one in joined if one.startswith(f"{node}/")]
    return str(found)


# --- what was handed --------------------------------------------------------------------------------------------------------


def handed(trace: NodeTrace, number: int, engine: str) -> list[Token]:
    """What this process of the node got, from its first view on, in its order. Basic messages that waited come last of a turn."""
    runs = {event.lseq: event for event in trace.events if isinstance(event, Delivery)}
    found: list[tuple[tuple[int, int], Token]] = []
    for event in trace.events:
        if isinstance(event, Conf):
            found.append(((event.lseq, 0), Token("configuration", (conf(event.view.id),))))
        elif isinstance(event, GroupConf) and number in event.processes and event.view.name == "g":
            members = tuple(process(one) for one in event.view.members)
            found.append(((event.lseq, 0), Token("view", (group_view(event.view.id), members))))
        elif isinstance(event, ClientDelivery):
            for one in event.handed:
                if number in one.processes:
                    found += [((lseq, 0), token) for lseq in one.runs for token in messages_of(runs[lseq], engine)]
    in_order = [token for _, token in sorted(found, key=lambda pair: pair[0])]
    first = next((at for at, token in enumerate(in_order) if token.kind == "view"), len(in_order))
    return in_order[first:]


def messages_of(run: Delivery, engine: str) -> list[Token]:
    is_ordered = run.service >= (Service.CAUSAL if engine == "totem" else Service.AGREED)
    found = []
    for step in range(run.count):
        regular, seq, index = run.regular, run.place.seq, run.place.index + step
        where = (regular.seq, node_word(regular.rep), seq, index) if is_ordered else ()
        what = (process(run.process), run.first + step, run.service.name.lower(), conf(run.conf), *where)
        found.append(Token("message", what))
    return found


def node_word(node: NodeId) -> str:
    return process(ProcessId(node, 0)).rpartition("#")[0]


def without_basic(tokens: list[Token]) -> list[Token]:
    """Basic messages may wait for a view, and the traces do not say behind what."""
    return [token for token in tokens if token.kind != "message" or token.what[2] != "basic"]
