"""State transfer through random histories: joins, crashes, partitions, merges, reloads, slow applications, in any interleaving.

The state of a member is the list of messages it applied. Whoever joined later has a loaded list and what it saw since; in the end
all lists are one. The truth is with those who never loaded anything, and with whom the others were told to side.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.client.abstract import ClientOrder
from tests.client.loops import run, turns
from tests.groups.abstract import Survivors
from transis.client import Group, Message, Receipt, Session, Transfer
from transis.types.errors import ConnectError, SessionLost
from transis.types.ids import ProcessId

NAMES = "abc"
STEPS = 250


class Replica:
    """A process whose state is the list of messages it applied. `pace` lets its application take one more event."""

    def __init__(self, order: ClientOrder, name: str, background: bool) -> None:
        self.connection, self.link = order.connect(name)
        self.state: list[bytes] = []
        self.loads = 0
        self.session: Session[bytes] | None = None
        self.group: Group[bytes] | None = None
        self.pace = asyncio.Semaphore(0)
        self.eager = False
        self.wants_another = False
        self.sends: list[asyncio.Future[Receipt]] = []
        self.transfer = Transfer(self.save, self.load, background=background)
        self.task = asyncio.ensure_future(self.live())

    def save(self) -> list[bytes]:
        """Over a copy: with `background` the state goes on."""
        return list(self.state)

    async def load(self, chunks: object) -> None:
        self.loads += 1
        self.state = [chunk async for chunk in chunks]  # type: ignore[attr-defined]

    async def live(self) -> None:
        try:
            self.session = await self.connection.open()
            self.group = await self.session.join("g", state=self.transfer).open()
            while True:
                if not self.eager:
                    await self.pace.acquire()
                await self.take(await anext(self.group))
        except (ConnectError, SessionLost, StopAsyncIteration):
            pass

    async def take(self, event: object) -> None:
        assert self.group is not None
        if isinstance(event, Message):
            self.state.append(event.data)
        elif len(event.merged_from) > 1 and self.me not in event.merged_from[0].members:  # type: ignore[attr-defined]
            self.wants_another = True
        if self.wants_another:
            self.wants_another = False
            await self.group.reload()

    def send(self, data: bytes) -> None:
        assert self.session is not None
        self.sends.append(asyncio.ensure_future(self.session.send("g", data)))

    @property
    def me(self) -> ProcessId:
        return ProcessId(self.link.daemon.id, self.link.number)


class History:
    """One random run."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.order = ClientOrder(NAMES)
        self.order.merge(NAMES)
        self.order.settle()
        self.replicas: list[Replica] = []
        self.sent = 0
        self.last: list[Replica] = []

    @property
    def alive(self) -> list[Replica]:
        return [one for one in self.replicas if not one.link.is_gone]

    def join(self) -> None:
        if len(self.alive) < 5:
            self.replicas.append(Replica(self.order, self.random.choice(NAMES), self.random.random() < 0.5))

    def crash(self) -> None:
        """Not the last one that could have the state: then there is nothing to compare with."""
        if len(self.alive) > 1:
            self.random.choice(self.alive).link.crash()

    def send(self) -> None:
        ready = [one for one in self.alive if one.session is not None and not one.session.closed]
        if ready:
            self.sent += 1
            self.random.choice(ready).send(b"%d" % self.sent)

    def deliver(self) -> None:
        daemon = self.order.daemons[self.random.choice(NAMES)]
        daemon.advance(min(len(daemon.ring.log), daemon.position + self.random.randint(1, 12)))

    def sequence(self) -> None:
        daemon = self.order.daemons[self.random.choice(NAMES)]
        for _ in range(self.random.randint(1, 8)):
            if not daemon.order_control():
                daemon.order_message()

    def hurry(self) -> None:
        self.order.settle_all()

    def pace(self) -> None:
        for _ in range(self.random.randint(1, 8) if self.alive else 0):
            self.random.choice(self.alive).pace.release()

    def reload(self) -> None:
        if self.alive:
            self.random.choice(self.alive).wants_another = True

    def reconfigure(self) -> None:
        """New components; each part of an old one has its own end of it."""
        places = {name: self.random.randint(0, 1) for name in NAMES}
        for place in (0, 1):
            parts: dict[object, list[str]] = {}
            for name in NAMES:
                if places[name] == place:
                    parts.setdefault(self.order.daemons[name].ring, []).append(name)
            if parts:
                self.order.reconfigure([self.survivors(names) for names in parts.values()])

    def survivors(self, names: list[str]) -> Survivors:
        daemons = [self.order.daemons[name] for name in names]
        length = len(daemons[0].ring.log)
        regular = self.random.randint(0, length)
        return Survivors(daemons, regular, self.random.randint(regular, length))

    async def play(self) -> None:
        self.join()
        moves = {
            self.join: 6,
            self.crash: 2,
            self.send: 25,
            self.deliver: 50,
            self.sequence: 50,
            self.hurry: 15,
            self.pace: 50,
            self.reload: 4,
            self.reconfigure: 4,
        }
        await self.move(moves, STEPS)

    async def move(self, moves: dict[Callable[[], None], int], steps: int) -> None:
        for _ in range(steps):
            self.random.choices(list(moves), list(moves.values()))[0]()
            if self.random.random() < 0.6:
                await turns(self.random.randint(1, 4))

    async def finish(self) -> None:
        """Everybody together, everything delivered, every application up to date."""
        await turns()
        self.order.merge(NAMES)
        await self.move({self.send: 1, self.deliver: 2, self.sequence: 2, self.pace: 2}, STEPS // 4)
        await self.settle()
        assert all(one.group is not None for one in self.alive), "everybody joined"
        for number in range(3):
            await self.alive[0].session.send("g", b"last %d" % number)  # type: ignore[union-attr]
        await self.settle()
        self.last = self.alive

    async def settle(self) -> None:
        for one in self.alive:
            one.eager = True
            one.pace.release()
        quiet = 0
        for _ in range(400):
            quiet = 0 if self.order.settle_all() else quiet + 1
            await turns(6)
            if quiet > 10:
                return
        raise AssertionError("words without end")

    async def end(self) -> None:
        for one in self.replicas:
            one.task.cancel()
        await asyncio.gather(*(task for one in self.replicas for task in [one.task, *one.sends]), return_exceptions=True)
        for one in self.alive:
            if one.session is not None:
                await one.session.close()
        await turns()


async def story(seed: int) -> History:
    history = History(seed)
    await history.play()
    await history.finish()
    await history.end()
    return history


@given(st.integers(0, 1 << 32))
@settings(max_examples=60)
def test_every_member_ends_with_the_same_state(seed: int) -> None:
    history = run(lambda: story(seed))
    for one in history.replicas:
        if one.task.done() and not one.task.cancelled() and one.task.exception() is not None:
            raise AssertionError("a member broke") from one.task.exception()
    states = [one.state for one in history.last]
    assert states
    assert all(state[-3:] == [b"last 0", b"last 1", b"last 2"] for state in states)
    assert all(len(set(state)) == len(state) for state in states), "applied twice"
    assert all(state == states[0] for state in states), "states differ"


def test_the_histories_do_transfer_state() -> None:
    """Otherwise the test above proves nothing."""
    loads = [sum(one.loads for one in run(lambda seed=seed: story(seed)).replicas) for seed in range(5)]  # type: ignore[misc]
    assert sum(loads) > 5
