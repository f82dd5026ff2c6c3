"""Agreed delivery by ToTo: early, by the votes of a majority (toto-1993 sections 4 and 5).

The paper's words. *Pending*: ordered and not delivered. A *candidate* is a pending node that follows no other pending node,
so each member has at most one. The first node of a member that follows any candidate is that member's vote, for all candidates
that it follows, and it never changes. The *tail* of a candidate is the members that have sent something that follows it.
*Sources* are the candidates that no other can beat any more. They leave together, by rank, when every other candidate is already
beaten (internal stability) and nothing that may still come can change that (external stability). Then others become candidates.

The paper's vector VT(m)[q] is a node, infinity, or `*` for a member that has not voted. A finite entry is the same for all
candidates, so "VT(a)[q] < VT(b)[q]" says that q votes for a and not for b, and "VT(b)[q] <= VT(a)[q]" that q has voted and
does not. `*` compares with nothing: a member that has not voted counts for neither. The threshold is half of the members, and
counts are doubled before they are compared with it, so an odd number of members needs no rounding.

The order is not born with the bursts: two parts of a divided view may finish it differently (F9b). Members that go on together
finish it alike, from the nodes that they have agreed on and nothing else. Deviation: a member that has not voted when the view
ends counts as crashed, even if it goes on. Nobody votes in an ended view: statements are not votes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence

from transis.lansis.dag import DagNode

Vote = frozenset[int] | None
"""The ranks of the candidates that a member votes for; None is the paper's `*`: it has not voted."""


class ToTo:
    def __init__(self, members: int) -> None:
        self.frontier = 0
        """How many nodes have left. Votes do not follow keys, so a position in the order has no other name."""
        self._pending: list[deque[DagNode]] = [deque() for _ in range(members)]
        self._cast: list[deque[DagNode]] = [deque() for _ in range(members)]
        """By rank: nodes of every class, from the first that may be the member's vote."""
        self._decided: deque[DagNode] = deque()
        """Sources that were elected. A safe one may keep the others waiting; what comes meanwhile does not change their order."""
        self._has_news = False
        self._is_over = False

    def inserted(self, node: DagNode) -> None:
        self._cast[node.rank].append(node)
        if node.is_ordered:
            self._pending[node.rank].append(node)
        self._has_news = True

    def heard_alive(self, member: int, sent: int, clock: int) -> None:
        """An ALIVE is outside the DAG, so it is not a vote."""

    def stated(self, node: DagNode) -> None:
        """Nor is a statement: the last one of a member is not in what the view ends with, and a vote must be."""

    def next(self) -> DagNode | None:
        if not self._decided and self._has_news:
            self._activate()
        return self._decided[0] if self._decided else None

    def took(self, node: DagNode) -> None:
        assert self._decided[0] is node, "sources leave by rank"
        self._decided.popleft()
        self.frontier += 1
        self._has_news = True  # A node that followed only this one may be a candidate now.

    # --- the end of the view ----------------------------------------------------------------------------------------

    def rest(self, pre: Sequence[int], upto: int | None) -> Iterator[DagNode]:
        """All members that go on have the same `pre`, and so decide here from exactly the same nodes."""
        self._forget_above(pre)
        while (upto is None or self.frontier < upto) and (node := self.next()) is not None:
            yield node
        if upto is None:
            self._is_over = self._has_news = True
            while (node := self.next()) is not None:
                yield node
            assert not any(self._pending), "when all have voted, some candidate is a source"

    def _forget_above(self, pre: Sequence[int]) -> None:
        """What is above `pre` dies with the view."""
        for nodes in (*self._pending, *self._cast):
            while nodes and nodes[-1].last > pre[nodes[-1].rank]:
                nodes.pop()
        self._has_news = True

    # --- one activation ---------------------------------------------------------------------------------------------

    def _activate(self) -> None:
        self._has_news = False
        candidates = self._candidates()
        ranks = [node.rank for node in candidates]
        tails = {node.rank: self._tail(node) for node in candidates}
        sources = elect(ranks, self._votes(candidates), tails)
        self._decided.extend(self._pending[rank].popleft() for rank in sources)

    def _candidates(self) -> list[DagNode]:
        """The candidates, by rank. A node that follows any pending node of a member follows that member's first pending node."""
        heads = [nodes[0] for nodes in self._pending if nodes]
        return [node for node in heads if not any(node.follows(other) for other in heads if other is not node)]

    def _votes(self, candidates: Sequence[DagNode]) -> list[Vote]:
        """Each member's vote. A node that follows no present candidate will follow no later one: those follow a present one, or
        were not there to be followed."""
        silent: Vote = frozenset() if self._is_over else None
        votes: list[Vote] = []
        for cast in self._cast:
            while cast and not any(cast[0].follows(node) for node in candidates):
                cast.popleft()
            votes.append(frozenset(node.rank for node in candidates if cast[0].follows(node)) if cast else silent)
        return votes

    def _tail(self, node: DagNode) -> int:
        """How many members have sent something that follows the node."""
        return sum(bool(cast) and cast[-1].follows(node) for cast in self._cast)


def elect(candidates: Sequence[int], votes: Sequence[Vote], tails: Mapping[int, int]) -> list[int]:
    """The candidates that leave now, if any. Candidates are named by rank; `tails` has the size of each one's tail."""
    members = len(votes)
    cast = [vote for vote in votes if vote is not None]

    def wins(one: int, other: int) -> int:
        return sum(one in vote and other not in vote for vote in cast)

    def beats(one: int, other: int) -> bool:
        return 2 * wins(one, other) > members

    def may_beat(one: int, other: int) -> bool:
        return 2 * (len(cast) - wins(one, other)) < members

    def loses(one: int) -> bool:
        return any(beats(other, one) for other in candidates if other != one)

    sources = [one for one in candidates if not any(may_beat(other, one) for other in candidates if other != one)]
    if not all(loses(one) for one in candidates if one not in sources):
        return []
    if len(cast) == members:
        return sources
    has_winner = any(2 * sum(one in vote for vote in cast) > members for one in sources)
    return sources if has_winner and all(2 * tails[one] >= members for one in sources) else []
