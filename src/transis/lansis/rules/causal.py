"""Causal delivery: after everything that its sender had delivered when it sent it (lansis-1992 3.1; W5).

To follow in the DAG is not enough: the DAG says what a sender *had*, and a causal message must come after what its sender had
*delivered*, ordered messages included. A causal node waits until (1) delivery has reached its `dep`, which says how far in the
order its sender had delivered, and (2) its sender's own ordered burst before it was delivered, which keeps FIFO across
services. Causal causes need no waiting list of their own: they have lower keys, and whatever `dep` they wait for is
no higher, so they leave first.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush

from transis.lansis.node import Node
from transis.types.ids import DatagramClass


class Waiting:
    def __init__(self, members: int) -> None:
        self._ordered: list[Node | None] = [None] * members
        """Each member's last ordered node."""
        self._behind: dict[int, list[Node]] = {}
        """Key of an ordered node: causal ones of its sender that wait for it."""
        self._by_dep: list[tuple[int, int, Node]] = []

    def inserted(self, node: Node) -> None:
        if node.is_ordered:
            self._ordered[node.rank] = node
        elif node.klass is DatagramClass.CAUSAL:
            before = self._ordered[node.rank]
            if before is None or before.delivered:
                heappush(self._by_dep, (node.dep, node.key, node))
            else:
                self._behind.setdefault(before.key, []).append(node)

    def delivered(self, ordered: Node) -> None:
        """An ordered node left."""
        for node in self._behind.pop(ordered.key, ()):
            heappush(self._by_dep, (node.dep, node.key, node))

    def eligible(self, frontier: int) -> list[Node]:
        """Those that wait no longer, by key; they are forgotten here."""
        by_dep = self._by_dep
        if not by_dep or by_dep[0][0] > frontier:
            return []
        ready = []
        while by_dep and by_dep[0][0] <= frontier:
            ready.append(heappop(by_dep)[2])
        return sorted(ready, key=_key)

    def rest(self, pre: Sequence[int]) -> list[Node]:
        """The view ends: what still waits of `pre`. Only a sender that lied about its `dep` leaves something here."""
        left = [node for _, _, node in self._by_dep] + [node for nodes in self._behind.values() for node in nodes]
        return sorted((node for node in left if node.last <= pre[node.rank]), key=_key)

    def __len__(self) -> int:
        return len(self._by_dep) + sum(map(len, self._behind.values()))


def _key(node: Node) -> int:
    return node.key
