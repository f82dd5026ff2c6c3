"""What may be delivered next: the agreed order by all-ack, and causal messages beside it.

All-ack (transis-design-1995 3.2, in the born-ordered reading of F9a). A member's *promise* is the highest timestamp T such
that I have all its bursts up to T in the DAG and it will send none at or below T. The node with the least key leaves when
every member's promise has reached its timestamp: nobody has sent, or can send, anything that would go before it. Keys are born
with the bursts, so all members deliver in one order without a vote, whatever views they go on to. An ALIVE promises its clock,
but only once everything that its sender had sent before it is here.

Causal (lansis-1992 3.1; W5): after everything that its sender had delivered when it sent it. Following in the DAG is not
enough: the DAG says what a sender *had*, and a causal message must come after what its sender had *delivered*, ordered
messages included. A causal node waits until (1) delivery has reached its `dep`, which says how far in the order its sender had
delivered, and (2) its sender's last ordered burst before it is delivered, which keeps FIFO across services. Causes that are
causal messages need no list of their own: they have lower keys, and the `dep` that they wait for is no higher, so they leave
first.

Fences (transis-design-1995 2.3; P15). An ordered burst with anything of the control lane is a *fence*: a causal message is
behind it if it follows it in the DAG or waits for something ordered behind it, and otherwise before it. The DAG is the same
for all, so the side is the same for all. (1) A causal node that follows a fence waits for it. (2) A fence leaves when all
members are known to have it, and all that is not in my DAG yet will follow it (stability.py). Whatever belongs before the
fence is then here and may leave: the delivery loop takes causal nodes first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from typing import Protocol

from transis.lansis.dag import DagNode
from transis.types.ids import DatagramClass
from transis.types.outputs import NEVER

# --- allack -----------------------------------------------------------------------------------------------------------


class AllAck:
    def __init__(self, me: int, expected: Sequence[int], base: int) -> None:
        self.frontier = 0
        """The key of the last node that left."""
        self.promise = [base] * len(expected)
        self.promise[me] = NEVER
        self._held = [first - 1 for first in expected]
        self._claims: list[tuple[int, int]] = [(0, 0)] * len(expected)
        """For each member the newest (sent, clock) of its ALIVEs."""
        self._pending: list[tuple[int, DagNode]] = []
        """A heap by key."""

    def inserted(self, node: DagNode) -> None:
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
            node.delivered = True  # Its sender broke its promise. What comes too late for the order is not delivered.

    def heard_alive(self, member: int, sent: int, clock: int) -> None:
        claim = self._claims[member] = max(self._claims[member], (sent, clock))
        if self._held[member] >= claim[0]:
            self._promised(member, claim[1])

    def stated(self, node: DagNode) -> None:
        self._promised(node.rank, node.ts)

    def _promised(self, member: int, timestamp: int) -> None:
        self.promise[member] = max(self.promise[member], timestamp)

    def next(self) -> DagNode | None:
        if not self._pending:
            return None
        node = self._pending[0][1]
        return node if min(self.promise) >= node.ts else None

    def rest(self, pre: Sequence[int], upto: int | None) -> Iterable[DagNode]:
        last_key = NEVER if upto is None else upto
        return [
            node for key, node in sorted(self._pending) if key <= last_key and node.last <= pre[node.rank] and not node.delivered
        ]

    def took(self, node: DagNode) -> None:
        assert node.key > self.frontier, "delivery goes up the keys"
        self.frontier = node.key
        if self._pending[0][1] is node:
            heappop(self._pending)


# --- order ------------------------------------------------------------------------------------------------------------


class DeliveryOrder(Protocol):
    """The order in which nodes of class ordered and safe leave."""

    @property
    def frontier(self) -> int:
        """How far delivery got in this view. It is sent as the `dep` of bursts, and compares with others' `dep`."""

    def inserted(self, node: DagNode) -> None:
        """Any node entered the DAG, whatever its class."""

    def heard_alive(self, member: int, sent: int, clock: int) -> None:
        """A member has sent up to this counter, and will stamp nothing more at or below `clock`."""

    def stated(self, node: DagNode) -> None:
        """Mode `transis`: a statement entered the DAG; its sender will stamp nothing at or below it any more."""

    def next(self) -> DagNode | None:
        """The node that may leave next in the regular view, as far as the order goes; None while that is not certain."""

    def rest(self, pre: Sequence[int], upto: int | None) -> Iterable[DagNode]:
        """The view ends: the nodes of `pre` that have not left, in order; up to a frontier that some member reached, or all."""

    def took(self, node: DagNode) -> None:
        """This node leaves: it is delivered here."""


# --- causal -----------------------------------------------------------------------------------------------------------


class WaitingNodes:
    def __init__(self, members: int) -> None:
        self._ordered: list[DagNode | None] = [None] * members
        """Each member's last ordered node."""
        self._fences: list[DagNode] = []
        """Fences that have not left."""
        self._behind: dict[int, list[tuple[DagNode, list[DagNode]]]] = {}
        """Key of an ordered node: causal nodes that wait for it, each with all ordered ones that it waits for."""
        self._by_dep: list[tuple[int, int, DagNode]] = []

    def inserted(self, node: DagNode) -> None:
        if node.is_ordered:
            self._ordered[node.rank] = node
            if node.is_fence and not node.delivered:
                self._fences.append(node)
        elif node.klass is DatagramClass.CAUSAL:
            before = self._ordered[node.rank]
            awaited = [] if before is None else [before]
            self._wait(node, awaited + [fence for fence in self._fences if node.follows(fence)])

    def _wait(self, node: DagNode, awaited: list[DagNode]) -> None:
        for ordered in awaited:
            if not ordered.delivered:
                self._behind.setdefault(ordered.key, []).append((node, awaited))
                return
        heappush(self._by_dep, (node.dep, node.key, node))

    def delivered(self, ordered: DagNode) -> None:
        """An ordered node left."""
        if ordered.is_fence:
            self._fences.remove(ordered)
        for node, awaited in self._behind.pop(ordered.key, ()):
            self._wait(node, awaited)

    def eligible(self, frontier: int) -> list[DagNode]:
        """Remove and return the nodes that need not wait any longer, by key."""
        by_dep = self._by_dep
        if not by_dep or by_dep[0][0] > frontier:
            return []
        ready = []
        while by_dep and by_dep[0][0] <= frontier:
            ready.append(heappop(by_dep)[2])
        return sorted(ready, key=_key)

    def rest(self, pre: Sequence[int]) -> list[DagNode]:
        """The view ends: the nodes of `pre` that still wait, which only a sender that lied about its `dep` leaves behind."""
        left = [node for _, _, node in self._by_dep] + [node for nodes in self._behind.values() for node, _ in nodes]
        return sorted((node for node in left if node.last <= pre[node.rank]), key=_key)

    def __len__(self) -> int:
        return len(self._by_dep) + sum(map(len, self._behind.values()))


def _key(node: DagNode) -> int:
    return node.key
