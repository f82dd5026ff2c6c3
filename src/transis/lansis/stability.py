"""The matrix of acknowledgements: who has what, and so what is stable (lansis-1992 3.1).

`ack[q][s]` is the last counter of s that q is known to have in its DAG: from a burst of q that follows it, or from an ALIVE. A
burst is stable when every member of the view is known to have it; nobody will ask for it then.

The row of a member that has made a statement about the next view is closed: nobody may rely on what it acknowledges later.

An ALIVE travels on a socket of its own and may overtake bursts that its sender sent before. Its acknowledgements count all the
same. Only of a fence (orders.py) we must know more: that nothing which does not follow it is still on its way.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import lt

from transis.lansis.dag import DagNode


class Stability:
    def __init__(self, me: int, expected: Sequence[int], now: int) -> None:
        starts = [first - 1 for first in expected]
        self._me = me
        self.ack = [list(starts) for _ in starts]
        self.stable = list(starts)
        """The least of each column; it only grows."""
        self.progress_at = [now] * len(starts)
        """When each member's acknowledgements of others last grew. Its own data does not count: it may send and hear nothing."""
        self._lowest = [len(starts)] * len(starts)
        """How many rows are at the least of each column: a new least is looked for only when none is left."""
        self._past: list[Sequence[int]] = [starts] * len(starts)
        """For each member what its last node in the DAG follows."""
        self._said = [(start, tuple(starts)) for start in starts]
        """Of each member's newest ALIVE, up to where it had sent and how far it had everything."""
        self._closed: set[int] = set()
        self._is_checked = False

    def inserted(self, node: DagNode, now: int) -> None:
        """I have this node, and its sender has all that it follows."""
        self._raise(self._me, node.rank, node.last)
        self._past[node.rank] = node.past
        if node.rank != self._me:
            self.heard(node.rank, node.past, now)

    def heard(self, member: int, recv: Sequence[int], now: int) -> None:
        """A member says how far it has everything."""
        row = self.ack[member]
        if member in self._closed or member == self._me:
            return
        for sender, (old, new) in enumerate(zip(row, recv, strict=True)):
            if new > old:
                self._raise(member, sender, new)
                if sender != member:
                    self.progress_at[member] = now

    def heard_alive(self, member: int, sent: int, recv: tuple[int, ...], now: int) -> None:
        """The same in an ALIVE. They overtake each other too; what they say only grows."""
        self.heard(member, recv, now)
        if member not in self._closed:
            self._said[member] = max(self._said[member], (sent, recv))

    def _raise(self, member: int, sender: int, counter: int) -> None:
        row = self.ack[member]
        at_least = row[sender] == self.stable[sender]
        row[sender] = counter
        self._is_checked = False
        if at_least:
            self._lowest[sender] -= 1
            if not self._lowest[sender]:
                column = [acks[sender] for acks in self.ack]
                least = self.stable[sender] = min(column)
                self._lowest[sender] = column.count(least)

    def stated(self, member: int, recv: Sequence[int], now: int) -> None:
        """Mode `transis`: a statement entered the DAG. What it says its sender has will be in every view that its sender goes on
        to, so it counts, although what is said between statements does not."""
        self._closed.discard(member)
        self.heard(member, recv, now)
        self.close(member)

    def close(self, member: int) -> None:
        self._closed.add(member)

    def is_closed(self, member: int) -> bool:
        return member in self._closed

    def is_behind(self, member: int) -> bool:
        """Is there something in my DAG that this member is not known to have?"""
        return any(map(lt, self.ack[member], self.ack[self._me]))

    def is_stable(self, node: DagNode) -> bool:
        return self.stable[node.rank] >= node.last

    def all_else_follows(self, node: DagNode) -> bool:
        """Will whatever is not in my DAG yet follow this node? Of each member something is here that says so: a burst that
        follows it, or an ALIVE that acknowledges it, with all that was sent before that ALIVE."""
        rank, last, mine = node.rank, node.last, self.ack[self._me]
        return all(
            past[rank] >= last or (recv[rank] >= last and sent <= held) or member == self._me
            for member, (past, (sent, recv), held) in enumerate(zip(self._past, self._said, mine, strict=True))
        )

    def holders(self, node: DagNode) -> int:
        """How many members are known to have the node: the paper's index of synchrony."""
        return sum(row[node.rank] >= node.last for row in self.ack)

    def check(self) -> None:
        if self._is_checked:
            return
        self._is_checked = True
        columns = list(zip(*self.ack, strict=True))
        assert self.stable == [min(column) for column in columns], "what the slowest member has is stable"
        assert self._lowest == [column.count(stable) for column, stable in zip(columns, self.stable, strict=True)]
