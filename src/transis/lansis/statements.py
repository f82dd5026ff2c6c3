"""The sets of one membership change, how statements make them grow, and the one view that follows from them. Pure.

J, Fb and Fa only grow from the first statement to the installation (membership-1992 sections 4.2 to 4.4, Property 1), so every
change ends, at worst with a member alone. Members that hold the same statements propose the same view under the same digest;
nothing else that a member holds matters (W1, W2; section 4.5). What they must still deliver of the view that they leave is Pre,
the paper's cut vector.

Deviations: (M1) statements are cumulative and numbered, so LAST holds the newest of each member: it is J_LAST and F_LAST in
one, and they need not arrive in order; (M2) a JOIN from outside J is accepted until this member has flushed: nothing is
installed without its own FLUSHED, so the paper's lemma 5.5 is not needed for safety, and a lost AJ costs no timeout; (M3) a
member of my view that accuses me is accused (traps 17, 19); a stranger that does so speaks of an earlier change and is waited
for; no stranger can make me accuse a member of my view (trap 18); (M4) agreement is on J and on F = Fb | Fa: they determine one
view, so whether a fault was before or after the join is said but need not be agreed; (M5) one view per agreed (J, F), not one
per fault set: smaller sets in between are merged with the next, unless everybody in them has flushed exactly them, which is
W1's condition with FLUSHED for FA; (M6) D, the largest key that anybody delivered, says what was delivered in the regular
view; an idle member has no burst in Pre that would show it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from hashlib import sha256
from types import MappingProxyType
from typing import Final, NamedTuple

from transis.lansis.packets import PROPOSAL_SIZE, Joining, Statement
from transis.types.ids import NodeId, RingId, RingTag, ViewId, ViewKind
from transis.types.limits import MEMBERS_MAX, PROC_SET_MAX
from transis.types.views import Cause
from transis.wire.control import encode_control

# --- statements -------------------------------------------------------------------------------------------------------


class Opinion(Enum):
    """What a statement did to my sets."""

    DROPPED = "nothing: it is old, from an accused or unknown node, or beyond all limits"
    BROKEN = "its sender accuses me or leaves, so I break with it"
    KEPT = "it is remembered, and says nothing that I do not say"
    GREW = "I must say more than before"


GROWN: Final = (Opinion.BROKEN, Opinion.GREW)
"""After these my own last statement no longer says all that I know."""


class MembershipSets:
    """What one member knows of the change that ends its view, the paper's CCS."""

    def __init__(self, me: NodeId, ccs: Iterable[NodeId], before: Mapping[NodeId, Statement] = MappingProxyType({})) -> None:
        """`before` is LAST of the change that made this view: statements older than those are over."""
        self._me = me
        self._before = {node: said.version - 1 for node, said in before.items()}
        self.ccs = frozenset(ccs)
        self.j = self.ccs
        self.f_before: frozenset[NodeId] = frozenset()
        self.f_after: frozenset[NodeId] = frozenset()
        self.last: dict[NodeId, Statement] = {}
        """LAST: the newest statement of each member, my own included."""

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
        """Add names to J; True if any is new. No more are accepted than a view or a statement can hold."""
        wanted = self.j | frozenset(nodes)
        if wanted == self.j or self._is_too_large(wanted, self.f):
            return False
        self.j = wanted
        self.f_before |= self._outdated(wanted)
        return True

    def break_with(self, node: NodeId) -> bool:
        """Accuse a member; True if it was not accused yet. After my JOIN it is a fault after the join, otherwise before it."""
        if node not in self.accept or node == self._me:
            return False
        if isinstance(self.mine, Joining) and (self.mine.j, self.mine.f_before) == (self.j, self.f_before):
            self.f_after |= {node}
        else:
            self.f_before |= {node}
        return True

    def take(self, said: Statement, *, has_flushed: bool) -> Opinion:
        """Take a JOIN or FA of a member of my view or of a stranger."""
        if not self.is_news(said) or not self._is_for_me(said, has_flushed=has_flushed):
            return Opinion.DROPPED
        if said.leaving or (self._me in said.f and said.sender in self.ccs):
            return Opinion.BROKEN if self.break_with(said.sender) else Opinion.DROPPED
        if self._is_too_large(self.j | said.j, self.f | self.believable(said)):
            return Opinion.DROPPED
        self.last[said.sender] = said
        return Opinion.GREW if self._learn(said) else Opinion.KEPT

    def is_news(self, said: Statement) -> bool:
        """Nothing more is accepted from an accused member; of each other one the newest statement counts."""
        known = self.last[said.sender].version if said.sender in self.last else self._before.get(said.sender, 0)
        return said.version > known and said.sender not in self.f and not self._is_outdated(said.sender)

    def _is_for_me(self, said: Statement, *, has_flushed: bool) -> bool:
        """A stranger that does not name me, or accuses me, has not heard of this change yet; and after a flush no new node is
        let in (M2)."""
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
        """The nodes that a statement may make me accuse: no stranger makes me accuse a member of my view (trap 18)."""
        return said.f if said.sender in self.ccs else said.f - self.ccs

    def _is_too_large(self, j: frozenset[NodeId], f: frozenset[NodeId]) -> bool:
        return len(j | f) >= PROC_SET_MAX or len(j - f - self._outdated(j)) > MEMBERS_MAX

    def _is_outdated(self, node: NodeId) -> bool:
        """Whether a later life of the same name is known, so that this one is over."""
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
        """The statements of all members in Accept, sorted by node, if they all say the same sets; otherwise None."""
        accept = sorted(self.accept)
        return tuple(self.last[node] for node in accept) if all(map(self.agrees, accept)) else None


# --- proposal ---------------------------------------------------------------------------------------------------------

SEQ_STEP: Final = 4
"""The step from one view's number to the next; the transitional view has a number in between (TOCS p. 17)."""


class Proposal(NamedTuple):
    digest: bytes
    id: RingId
    statements: tuple[Statement, ...]

    @property
    def members(self) -> tuple[NodeId, ...]:
        return tuple(said.sender for said in self.statements)

    @property
    def tag(self) -> RingTag:
        """The tag is made of the digest and not of the representative: a proposal that its representative never flushed may share
        its id with a view that was installed, and a member that hears of that view must not take it for this one."""
        return RingTag(self.id.seq, int.from_bytes(self.digest[:8], "big"))

    @property
    def base(self) -> int:
        """The timestamp of the view: above everything that any of its members has stamped or seen."""
        return 1 + max(said.clock for said in self.statements)

    @property
    def cause(self) -> Cause:
        """The first statement's cause, so that all members name the same."""
        return self.statements[0].cause

    @property
    def view_id(self) -> ViewId:
        return ViewId(ViewKind.REGULAR, self.id.seq, self.id.rep)

    def expected(self) -> list[int]:
        """By rank: the counter with which each member's bursts begin in the new view."""
        return [1 + dict(said.recv).get(said.sender, 0) for said in self.statements]


class ViewEnd(NamedTuple):
    """How a view ends for those of its members that go on together."""

    trans: tuple[Statement, ...]
    pre: Mapping[NodeId, int]
    """Pre: the last counter of each old member that any member of `trans` held when it made its statement."""
    delivered: int
    """D: the largest key that any member of `trans` had delivered in the regular view."""

    def transitional_id(self, proposal: Proposal) -> ViewId:
        return ViewId(ViewKind.TRANSITIONAL, proposal.id.seq - 2, self.trans[0].sender)


def propose(statements: Iterable[Statement]) -> Proposal:
    """The view of the members that made these statements, which are sorted by node."""
    said = tuple(statements)
    seq = SEQ_STEP + max(one.view_seq for one in said)
    return Proposal(_digest(said), RingId(seq, said[0].sender), said)


def _digest(statements: tuple[Statement, ...]) -> bytes:
    """A digest over the bytes on the wire: equal digests mean equal statements, whatever is derived from them later."""
    name = sha256()
    for said in statements:
        encoded = encode_control(said)
        name.update(len(encoded).to_bytes(4, "big") + encoded)
    return name.digest()[:PROPOSAL_SIZE]


def part(proposal: Proposal, view: RingId, ccs: Iterable[NodeId]) -> ViewEnd:
    """How the members of `view` that are in the proposal end it: what they must deliver before they leave it."""
    members = frozenset(ccs)
    trans = tuple(said for said in proposal.statements if said.view == view and said.sender in members)
    pre = dict.fromkeys(sorted(members), 0)
    for said in trans:
        for node, counter in said.recv:
            if node in members:
                pre[node] = max(pre[node], counter)
    return ViewEnd(trans, pre, max(said.delivered for said in trans))
