"""Archives of simulated partitions, written by the archiver's own `Rows`, and beside them the truth: what a member at every node,
which is never away, was handed."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from transis.archive.rows import RowBuilder
from transis.client import Session
from transis.client.events import Batch, Configuration, View
from transis.client.group import Group
from transis.testing.cluster import Cluster, Clusters
from transis.trace.reader import group_view_name, node_name, process_name, view_name
from transis.types.ids import Service, ViewId
from transis.types.views import group_id

NODES = "abcde"
SEATS = 6
TURNS = 24


class Told(NamedTuple):
    """A message as it was handed to somebody, in words."""

    process: str
    counter: int
    ring: str
    place: tuple[int, int]
    conf: str
    service: Service
    view: str


@dataclass
class Witness:
    """A member of the group at one node, from before the first message until the end."""

    node: str
    session: Session[bytes]
    group: Group[bytes]
    told: list[Told] = field(default_factory=list)
    ring: ViewId | None = None
    view: str = ""

    async def listen(self) -> None:
        async for event in self.group.everything():
            if isinstance(event, Configuration):
                self.ring = event.regular
            elif isinstance(event, View):
                self.view = group_view_name(event.id)
            elif isinstance(event, Batch):
                assert self.ring is not None
                for message in event:
                    words = (view_name(self.ring), tuple(message.place), view_name(event.view), message.service, self.view)
                    self.told.append(Told(process_name(message.sender), message.counter, *words))


class SimulatedArchiver:
    """An archiver whose disk never fails: what it took is archived, what it did not is not."""

    def __init__(self, cluster: Cluster, group: str, name: str, engine: str, directory: Path) -> None:
        self._cluster, self._group, self._name, self._engine = cluster, group, name, engine
        self._directory = directory
        self._task: asyncio.Task[None] | None = None
        self._rows: RowBuilder | None = None
        self._life = 0

    @property
    def is_there(self) -> bool:
        return self._task is not None

    def start(self, node: str) -> None:
        last = None if self._rows is None else self._rows.position
        self._life += 1
        self._rows = RowBuilder(self._group, self._name, self._life, self._engine, "evs", last)
        self._rows.begin("started", self._now_us)
        self._task = asyncio.create_task(self._archive(node, self._rows))

    async def kill(self) -> None:
        """It is gone in the middle of whatever it did."""
        task, self._task = self._task, None
        if task is not None and self._rows is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            self._publish(self._rows.take().table())

    async def _archive(self, node: str, rows: RowBuilder) -> None:
        async with self._cluster.connect(node) as session, session.join(self._group, configurations=True) as group:
            async for event in group.everything():
                if isinstance(event, Batch):
                    rows.messages(event, self._now_us)
                elif isinstance(event, Configuration):
                    rows.configuration(event, self._now_us)
                else:
                    rows.view(event, self._now_us)

    @property
    def _now_us(self) -> int:
        return round(self._cluster.now * 1e6)

    def _publish(self, table: pa.Table) -> None:
        name = f"{group_id(self._group):016x}-{self._name}-{self._life:06d}-000001.parquet"
        (self._directory / "stream").mkdir(parents=True, exist_ok=True)
        if table.num_rows:
            pq.write_table(table, self._directory / "stream" / name)


@dataclass
class Archived:
    """One group that was archived, and the truth about it: what was handed to the witness of each node, by the node's word."""

    group: str
    told: dict[str, list[Told]]


def archive_simulated(directory: Path, engine: str, seed: int) -> Archived:
    """A cluster that parts and meets at random while everybody speaks and two archivers come and go."""
    clusters = Clusters(engine=engine)
    try:
        return clusters.run(_story(clusters(list(NODES), seed=seed, quorum=NODES), directory, engine, seed))
    finally:
        clusters.close()


async def _story(c: Cluster, directory: Path, engine: str, seed: int) -> Archived:
    name = f"orders of {engine} {seed}"
    witnesses = [await _witness(c, node, name) for node in NODES]
    listening = [asyncio.create_task(witness.listen()) for witness in witnesses]
    archivers = [SimulatedArchiver(c, name, archiver, engine, directory) for archiver in ("first", "second")]
    await c.settle()
    await _speak(c, witnesses)  # Before anybody archives.
    archivers[0].start("a")
    await c.settle()
    for _ in range(TURNS):
        await _turn(c, witnesses, archivers)
    c.heal()
    await c.settle()
    await _speak(c, witnesses)
    await c.settle()
    for archiver in archivers:
        await archiver.kill()
    for task in listening:
        task.cancel()
    return Archived(name, {node_name(one.session.process.node): one.told for one in witnesses})


async def _witness(c: Cluster, node: str, name: str) -> Witness:
    session = await c.connect(node).open()
    return Witness(node, session, await session.join(name, configurations=True).open())


async def _turn(c: Cluster, witnesses: list[Witness], archivers: list[SimulatedArchiver]) -> None:
    """Something happens, with messages on their way."""
    draw = c.random
    await _speak(c, witnesses)
    match draw.below(8):
        case 0 | 1 | 2:
            sides = {node: draw.below(draw.between(2, 3)) for node in NODES}
            c.partition(*("".join(node for node in NODES if sides[node] == side) for side in sorted(set(sides.values()))))
        case 3 | 4:
            c.heal()
        case 5:
            await draw.pick(archivers).kill()
        case _:
            for archiver in archivers:
                if not archiver.is_there:
                    archiver.start(draw.pick(NODES))
    if draw.chance(700):
        await c.settle()
    else:
        await c.run_for(0.02)


async def _speak(c: Cluster, witnesses: list[Witness]) -> None:
    for witness in witnesses:
        service = c.random.pick(list(Service))
        seats = [c.random.below(SEATS) for _ in range(c.random.between(0, 4))]
        if seats:
            await witness.group.send_many([json.dumps({"seat": seat}).encode() for seat in seats], service)
