"""One contract for whoever drives a node: the same stories on the simulated network and on sockets.

A story knows only names, numbers of messages and recorded traces, so it cannot tell which world it is told in. Each
ends with the checkers.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Protocol

import pytest

from tests.net.party import Opening, Party, mesh_around, multicast_lan
from transis.audit.guarantees import check
from transis.node.node import Node
from transis.sim.life import Submission
from transis.sim.world import Conditions, World
from transis.trace.events import Conf, Delivery, End, Event, History, NodeTrace, Submit, is_ordered
from transis.types.config import LOCAL, LOCAL_PULSE, SECOND, Config
from transis.types.ids import Service

WAIT_MAX_US = 60 * SECOND

Told = list[tuple[str, int, int]]
"""Deliveries as (sender's name, its incarnation, counter)."""


class Lan(Protocol):
    """What a story may do to nodes, and how it sees them: the newest life of a name counts."""

    @property
    def engine(self) -> str: ...
    async def start(self, name: str) -> None: ...
    async def submit(self, name: str, service: Service, count: int) -> None: ...
    async def leave(self, name: str) -> None: ...
    async def until(self, condition: Callable[[], bool]) -> None: ...
    def kill(self, name: str) -> None: ...
    def traces(self) -> list[NodeTrace]: ...


class SimulatedLan:
    def __init__(self, engine: str) -> None:
        self.engine = engine
        self._world = World(7, Conditions(), Node)

    async def start(self, name: str) -> None:
        if name not in self._world.hosts:
            self._world.add_host(Config(name=name, timing=LOCAL, engine=self.engine, pulse=LOCAL_PULSE))
        self._world.start(name)

    async def submit(self, name: str, service: Service, count: int) -> None:
        """Until the node took them, as `send` on sockets does."""
        before = self._taken(name)
        self._world.hosts[name].submit(Submission(service, (40,) * count))
        await self.until(lambda: self._taken(name) == before + count)

    def _taken(self, name: str) -> int:
        return sum(event.count for event in events_of(self, name) if isinstance(event, Submit))

    async def leave(self, name: str) -> None:
        self._world.hosts[name].leave()

    async def until(self, condition: Callable[[], bool]) -> None:
        world = self._world
        latest = world.now + WAIT_MAX_US
        while not condition():
            assert world.events, "nothing will ever happen again"
            assert world.events[0][0] < latest, "it did not come"
            world.run(world.events[0][0])

    def kill(self, name: str) -> None:
        self._world.hosts[name].die("failed")

    def traces(self) -> list[NodeTrace]:
        return [NodeTrace(life.id, life.recorder.events) for life in self._world.lives.values()]


class SocketLan:
    def __init__(self, party: Party) -> None:
        self.engine = party.engine
        self._party = party

    async def start(self, name: str) -> None:
        self._party.invite(name)

    async def submit(self, name: str, service: Service, count: int) -> None:
        await self._party.guest(name).driver.send(service, [bytes(40)] * count)

    async def leave(self, name: str) -> None:
        assert await self._party.guest(name).driver.leave()

    async def until(self, condition: Callable[[], bool]) -> None:
        await self._party.until(condition)

    def kill(self, name: str) -> None:
        self._party.lose(self._party.guest(name))

    def traces(self) -> list[NodeTrace]:
        return [guest.trace for guest in self._party.ever]


@asynccontextmanager
async def simulated(directory: Path, engine: str) -> AsyncIterator[Lan]:
    yield SimulatedLan(engine)


def on_sockets(opening: Callable[[], Opening]) -> Callable[[Path, str], AbstractAsyncContextManager[Lan]]:
    @asynccontextmanager
    async def opened(directory: Path, engine: str) -> AsyncIterator[Lan]:
        async with Party(opening(), directory, engine=engine) as party:
            yield SocketLan(party)

    return opened


WORLDS = {"simulated": simulated, "multicast": on_sockets(multicast_lan), "mesh": on_sockets(lambda: mesh_around([]))}


def events_of(lan: Lan, name: str) -> Sequence[Event]:
    return [trace for trace in lan.traces() if trace.node.name == name][-1].events


def members(lan: Lan, name: str) -> list[str]:
    confs = [event for event in events_of(lan, name) if isinstance(event, Conf)]
    return [node.name for node in confs[-1].view.nodes] if confs and confs[-1].view.id.is_regular else []


def told(lan: Lan, name: str, *, ordered: bool = False) -> Told:
    runs = [event for event in events_of(lan, name) if isinstance(event, Delivery)]
    runs = [run for run in runs if is_ordered(run.service, lan.engine) or not ordered]
    return [(run.process.node.name, run.process.node.incarnation, run.first + i) for run in runs for i in range(run.count)]


async def together(lan: Lan, *names: str) -> None:
    await lan.until(lambda: all(members(lan, name) == sorted(names) for name in names))


Story = Callable[[Lan], Awaitable[None]]


async def they_agree(lan: Lan) -> None:
    for name in ("ann", "bob", "eve"):
        await lan.start(name)
    await together(lan, "ann", "bob", "eve")
    for number, service in enumerate((Service.CAUSAL, Service.AGREED, Service.SAFE) * 3):
        await lan.submit(("ann", "bob", "eve")[number % 3], service, 5)
    await lan.until(lambda: all(len(told(lan, name)) == 45 for name in ("ann", "bob", "eve")))
    assert told(lan, "ann", ordered=True) == told(lan, "bob", ordered=True) == told(lan, "eve", ordered=True)
    assert set(told(lan, "ann")) == set(told(lan, "bob")) == set(told(lan, "eve"))


async def one_dies_and_returns(lan: Lan) -> None:
    for name in ("ann", "bob", "eve"):
        await lan.start(name)
    await together(lan, "ann", "bob", "eve")
    await lan.submit("eve", Service.SAFE, 3)
    lan.kill("eve")
    await together(lan, "ann", "bob")
    assert told(lan, "ann") == told(lan, "bob")
    await lan.start("eve")
    await together(lan, "ann", "bob", "eve")
    await lan.submit("eve", Service.SAFE, 1)
    await lan.until(lambda: all(("eve", 2, 1) in told(lan, name) for name in ("ann", "bob", "eve")))


async def one_leaves(lan: Lan) -> None:
    for name in ("ann", "bob"):
        await lan.start(name)
    await together(lan, "ann", "bob")
    await lan.submit("bob", Service.SAFE, 7)
    await lan.leave("bob")
    await together(lan, "ann")
    await lan.until(lambda: any(isinstance(event, End) for event in events_of(lan, "bob")))
    assert told(lan, "ann") == [("bob", 1, counter) for counter in range(1, 8)]


async def one_is_alone(lan: Lan) -> None:
    await lan.start("ann")
    await together(lan, "ann")
    await lan.submit("ann", Service.SAFE, 3)
    await lan.until(lambda: len(told(lan, "ann")) == 3)
    kinds = [type(event) for event in events_of(lan, "ann")]
    assert kinds.index(Conf) < kinds.index(Submit) < kinds.index(Delivery)


@pytest.mark.parametrize("story", [they_agree, one_dies_and_returns, one_leaves, one_is_alone], ids=lambda story: story.__name__)
@pytest.mark.parametrize("world", WORLDS)
def test_contract(world: str, engine: str, story: Story, tmp_path: Path) -> None:
    async def run() -> list[NodeTrace]:
        async with WORLDS[world](tmp_path, engine) as lan:
            await story(lan)
            return lan.traces()

    report = check(History(asyncio.run(run()), closed=False, engine=engine))
    assert report.broken == ()
