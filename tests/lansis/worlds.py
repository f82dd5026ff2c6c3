"""Random histories of bursts as honest senders would make them, for the naive twins of graph, stability and order.

A world is made by a few members that in turn send a burst or hear of one: each has its own DAG as a set of bursts, and
acknowledges what it has and has not acknowledged. So bursts are as the protocol makes them, by code that shares nothing with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from hypothesis import strategies as st

from tests.lansis.bursts import BASE, Said
from transis.types.ids import DatagramClass


class World:
    """`sent` are all bursts in the order in which they were sent, which is one of causes before effects."""

    def __init__(self, members: int) -> None:
        self.members = members
        self.sent: list[Said] = []
        self._has: list[list[Said]] = [[] for _ in range(members)]
        self._acked: list[set[Said]] = [set() for _ in range(members)]
        self._clock = [BASE] * members
        self._counter = [0] * members
        self._pasts: dict[Said, set[Said]] = {}

    def send(self, rank: int, datagrams: int, klass: DatagramClass) -> Said:
        """All maximal bursts that it has and never acknowledged; of each member only the last can be one."""
        has = self._has[rank]
        news = [one for one in has if one.rank != rank and one not in self._acked[rank]]
        leaves = [one for one in news if not any(one in self.past(other) and one != other for other in has)]
        self._clock[rank] += 1
        first = self._counter[rank] + 1
        self._counter[rank] += datagrams
        acks = tuple(sorted((one.rank, one.last) for one in leaves))
        one = Said(rank, first, self._counter[rank], self._clock[rank], klass, acks, 0)
        self._acked[rank].update(leaves)
        self.sent.append(one)
        has.append(one)
        return one

    def hear(self, rank: int, one: Said) -> None:
        """A member gets a burst if it has all that it follows."""
        has = self._has[rank]
        if one not in has and self.past(one) - {one} <= set(has):
            has.append(one)
            self._clock[rank] = max(self._clock[rank], one.ts)

    def heard_by(self, rank: int) -> Sequence[Said]:
        """What a member has, its own included, causes before effects."""
        return self._has[rank]

    def past(self, one: Said) -> set[Said]:
        """Everything that it follows, itself included."""
        if one not in self._pasts:
            self._pasts[one] = {one}.union(*map(self.past, self.causes(one)))
        return self._pasts[one]

    def causes(self, one: Said) -> list[Said]:
        own = [other for other in self.sent if other.rank == one.rank and other.last == one.first - 1]
        return own + [other for other in self.sent if (other.rank, other.last) in one.acks]


def world_of(seed: int, members: int, steps: int, classes: Sequence[DatagramClass] = tuple(DatagramClass)) -> World:
    random = Random(seed)
    world = World(members)
    for _ in range(steps):
        rank = random.randrange(members)
        if random.random() < 0.4 or not world.sent:
            world.send(rank, random.choice((1, 1, 2, 3)), random.choice(classes))
        else:
            for one in world.sent[-random.randrange(1, 8) :]:
                world.hear(rank, one)
    return world


worlds = st.builds(world_of, st.integers(0, 1 << 32), st.integers(1, 5), st.integers(1, 40))
ordered_worlds = st.builds(
    lambda seed, members, steps: world_of(seed, members, steps, (DatagramClass.ORDERED,)),
    st.integers(0, 1 << 32),
    st.integers(2, 5),
    st.integers(1, 40),
)
