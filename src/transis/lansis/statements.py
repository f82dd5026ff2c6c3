"""The sets of one membership change and the rules by which statements make them grow (membership-1992 sections 4.2 to 4.4).

Pure: no time, no packets out. J, Fb and Fa only grow from the first statement to the installation (the paper's Property 1), so
every change ends, at worst with a machine alone.

Deviations: (M1) statements are cumulative and numbered, so LAST holds the newest of each machine, which is J_LAST and F_LAST in
one, and no stream has to keep their order; (M2) a JOIN from outside J is taken until this machine has flushed: nothing is
installed without its own FLUSHED, so the paper's lemma 5.5 is not needed for safety, and a lost AJ costs no timeout; (M3) a
member of my view that accuses me is accused (traps 17, 19), a stranger that does so speaks of an earlier change and is waited
for, and no stranger can make me accuse a member of my view (trap 18); (M4) agreement is on J and on F = Fb | Fa: one view comes
of them, so whether a fault was before or after the join is told but need not be agreed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final

from transis.lansis.packets import Joining, Statement
from transis.types.ids import NodeId
from transis.types.limits import MEMBERS_MAX, PROC_SET_MAX


class Verdict(Enum):
    """What a statement did to my sets."""

    DROPPED = "nothing: it is old, accused, of nobody I know, or beyond all limits"
    BROKEN = "its sender accuses me or leaves, so I break with it"
    KEPT = "it is remembered, and says nothing that I do not say"
    GREW = "I must say more than before"


GROWN: Final = (Verdict.BROKEN, Verdict.GREW)
"""After these my own statement is not what I know any more."""


class Change:
    """What one machine knows of the change that ends its view, the paper's CCS."""

    def __init__(self, me: NodeId, ccs: Iterable[NodeId], before: Mapping[NodeId, Statement] = MappingProxyType({})) -> None:
        """`before` is LAST of the change that made this view: what its statements had replaced is over."""
        self._me = me
        self._before = {node: said.version - 1 for node, said in before.items()}
        self.ccs = frozenset(ccs)
        self.j = self.ccs
        self.f_before: frozenset[NodeId] = frozenset()
        self.f_after: frozenset[NodeId] = frozenset()
        self.last: dict[NodeId, Statement] = {}
        """LAST: the newest statement of each machine, my own included."""

    @property
    def f(self) -> frozenset[NodeId]:
        return self.f_before | self.f_after

    @property
    def accept(self) -> frozenset[NodeId]:
        return self.j - self.f_before - self.f_after

    @property
    def mine(self) -> Statement | None:
        return self.last.get(self._me)

    @property
    def has_strangers(self) -> bool:
        return not self.j <= self.ccs

    # --- growing ----------------------------------------------------------------------------------------------------

    def invite(self, nodes: Iterable[NodeId]) -> bool:
        """These are there too; True if that is news. More of them than a view or a statement can hold are not taken."""
        wanted = self.j | frozenset(nodes)
        if wanted == self.j or self._is_too_large(wanted, self.f):
            return False
        self.j = wanted
        self.f_before |= self._outdated(wanted)
        return True

    def break_with(self, node: NodeId) -> bool:
        """Accuse a machine; True if that is news. After my JOIN it is a fault after the join, else one before it."""
        if node not in self.accept or node == self._me:
            return False
        if isinstance(self.mine, Joining) and (self.mine.j, self.mine.f_before) == (self.j, self.f_before):
            self.f_after |= {node}
        else:
            self.f_before |= {node}
        return True

    def take(self, said: Statement, *, has_flushed: bool) -> Verdict:
        """A JOIN or FA of somebody else, whose view is mine or who is a stranger."""
        if not self.is_news(said) or not self._is_for_me(said, has_flushed=has_flushed):
            return Verdict.DROPPED
        if said.leaving or (self._me in said.f and said.sender in self.ccs):
            return Verdict.BROKEN if self.break_with(said.sender) else Verdict.DROPPED
        if self._is_too_large(self.j | said.j, self.f | self.believable(said)):
            return Verdict.DROPPED
        self.last[said.sender] = said
        return Verdict.GREW if self._learn(said) else Verdict.KEPT

    def is_news(self, said: Statement) -> bool:
        """Who is accused is not heard any more; of the others the newest counts."""
        known = self.last[said.sender].version if said.sender in self.last else self._before.get(said.sender, 0)
        return said.version > known and said.sender not in self.f and not self._is_outdated(said.sender)

    def _is_for_me(self, said: Statement, *, has_flushed: bool) -> bool:
        """A stranger that does not name me, or accuses me, has not heard of this change yet; after a flush nobody new may come
        in (M2)."""
        if said.sender in self.ccs or said.leaving:
            return said.sender in self.j
        return self._me in said.accept and (said.sender in self.j or not has_flushed)

    def _learn(self, said: Statement) -> bool:
        f = self.believable(said)
        if said.j <= self.j and said.sender in self.j and f <= self.f:
            return False
        if (said.j, said.f_before) == (self.j, self.f_before):
            self.f_after |= f - self.f_before
        else:
            self.j |= said.j | {said.sender}
            self.f_before |= f | self.f_after
            self.f_after = frozenset()
        self.f_before |= self._outdated(self.j) - self.f_after
        return True

    def believable(self, said: Statement) -> frozenset[NodeId]:
        """Whom a statement may make me accuse: a member of my view is accused by members only (trap 18)."""
        return said.f if said.sender in self.ccs else said.f - self.ccs

    def _is_too_large(self, j: frozenset[NodeId], f: frozenset[NodeId]) -> bool:
        return len(j | f) >= PROC_SET_MAX or len(j - f - self._outdated(j)) > MEMBERS_MAX

    def _is_outdated(self, node: NodeId) -> bool:
        """A later life of the same name is known, so this one is over."""
        return any(other.name == node.name and other.incarnation > node.incarnation for other in self.j)

    def _outdated(self, nodes: frozenset[NodeId]) -> frozenset[NodeId]:
        newest: dict[str, int] = {}
        for node in sorted(nodes):
            newest[node.name] = node.incarnation
        return frozenset(node for node in nodes if node.incarnation < newest[node.name] and node != self._me)

    # --- agreeing ---------------------------------------------------------------------------------------------------

    def agrees(self, node: NodeId) -> bool:
        said = self.last.get(node)
        return said is not None and said.j == self.j and said.f == self.f

    def assent(self) -> tuple[Statement, ...] | None:
        """The statements of everybody in Accept, sorted by node, once all of them say the same sets; else nothing."""
        accept = sorted(self.accept)
        return tuple(self.last[node] for node in accept) if all(map(self.agrees, accept)) else None
