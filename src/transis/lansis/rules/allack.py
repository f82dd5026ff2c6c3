"""Agreed delivery by all-ack (transis-design-1995 3.2, in the born-ordered reading of F9a).

A member's *promise* is the highest timestamp T such that I have all its bursts up to T in the DAG and it will send none
at or below T. The node with the least key leaves when every member's promise has reached its timestamp: nobody can send, and
nobody has sent, anything that would go before it. Keys are born with the bursts, so all members deliver in one order without a
vote, in whatever views they go on.

An ALIVE promises its clock, but only once everything that its sender had sent before it is here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heappop, heappush

from transis.lansis.node import Node
from transis.types.outputs import NEVER


class AllAck:
    def __init__(self, me: int, expected: Sequence[int], base: int) -> None:
        self.frontier = 0
        """Key of the last node that left."""
        self.promise = [base] * len(expected)
        self.promise[me] = NEVER
        self._held = [first - 1 for first in expected]
        self._claims: list[tuple[int, int]] = [(0, 0)] * len(expected)
        """For each member the newest (sent, clock) of its ALIVEs."""
        self._pending: list[tuple[int, Node]] = []
        """A heap by key."""

    def inserted(self, node: Node) -> None:
        rank = node.rank
        self._held[rank] = node.last
        self._promised(rank, node.ts)
        sent, clock = self._claims[rank]
        if node.last >= sent:
            self._promised(rank, clock)
        if not node.is_ordered:
            return
        if node.key > self.frontier:
            heappush(self._pending, (node.key, node))
        else:
            node.delivered = True  # Its sender broke its promise. What comes too late for the order goes nowhere.

    def heard_alive(self, member: int, sent: int, clock: int) -> None:
        claim = self._claims[member] = max(self._claims[member], (sent, clock))
        if self._held[member] >= claim[0]:
            self._promised(member, claim[1])

    def _promised(self, member: int, timestamp: int) -> None:
        self.promise[member] = max(self.promise[member], timestamp)

    def next(self) -> Node | None:
        if not self._pending:
            return None
        node = self._pending[0][1]
        return node if min(self.promise) >= node.ts else None

    def rest(self, pre: Sequence[int], upto: int | None) -> Iterable[Node]:
        last_key = NEVER if upto is None else upto
        return [
            node for key, node in sorted(self._pending) if key <= last_key and node.last <= pre[node.rank] and not node.delivered
        ]

    def took(self, node: Node) -> None:
        assert node.key > self.frontier, "delivery goes up the keys"
        self.frontier = node.key
        if self._pending[0][1] is node:
            heappop(self._pending)
