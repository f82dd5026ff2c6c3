"""Attempts at forming a ring that failed, and whom to blame when the same membership fails twice (L2, W8)."""

from __future__ import annotations

from collections.abc import Iterable

from transis.totem.packets import Join
from transis.totem.ring import Ring
from transis.types.ids import NodeId

ATTEMPTS_BEFORE_BLAME = 2


class Attempts:
    """`progress` of an attempt counts hops of its commit token: index of the last member known to have forwarded it,
    plus the number of members for the second rotation."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self._failures: dict[frozenset[NodeId], int] = {}
        self._order: tuple[NodeId, ...] = ()
        self.seq = 0
        self.progress = 0

    def forwarded(self, ring: Ring, rotation: int) -> None:
        """I sent the commit token of this ring on."""
        self.seq = ring.id.seq
        self._order = ring.members
        self.progress = (rotation - 1) * len(ring.members) + ring.rank

    def failed(self, ring: Ring) -> None:
        self._failures[ring.member_set] = self._failures.get(ring.member_set, 0) + 1

    @property
    def total(self) -> int:
        """Failed attempts of this Gather, whatever the membership."""
        return sum(self._failures.values())

    def count(self, members: frozenset[NodeId]) -> int:
        return self._failures.get(members, 0)

    def blame(self, members: frozenset[NodeId], me: NodeId, joins: Iterable[Join]) -> NodeId | None:
        """After repeated failures, the member after which the commit token was seen no more; never myself."""
        if self.count(members) < ATTEMPTS_BEFORE_BLAME or len(members) == 1:
            return None
        if frozenset(self._order) != members:
            return max(members - {me})
        progress = max([self.progress, *(join.attempt_index for join in joins if join.attempt_seq == self.seq)])
        suspect = self._order[(progress + 1) % len(self._order)]
        return suspect if suspect != me and progress + 1 < 2 * len(self._order) else max(members - {me})
