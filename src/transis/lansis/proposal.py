"""The one view that comes of an assented set of statements, and what its members still owe the view that they leave.

Pure functions of the statements: whoever holds the same statements proposes the same view under the same digest, and nothing
that a machine holds beyond them has a say (W1, W2; membership-1992 section 4.5).

Deviations: (M5) one view per agreed (J, F), not one per fault set: smaller sets in between are merged with the next, unless
everybody in them has flushed exactly them, which is W1's condition with FLUSHED for FA; (M6) D, the largest key that anybody
delivered, says what was delivered in the regular view; an idle machine has no burst in Pre from which this could be seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Final, NamedTuple

from transis.lansis.packets import PROPOSAL_SIZE, Statement
from transis.types.ids import NodeId, RingId, RingTag, ViewId, ViewKind
from transis.types.views import Cause
from transis.wire.control import encode_control

SEQ_STEP: Final = 4
"""Between two views; the transitional one has a number of its own in between (TOCS p. 17)."""


class Proposal(NamedTuple):
    digest: bytes
    id: RingId
    statements: tuple[Statement, ...]

    @property
    def members(self) -> tuple[NodeId, ...]:
        return tuple(said.sender for said in self.statements)

    @property
    def tag(self) -> RingTag:
        """Named by the digest and not by the representative: a proposal that its representative never flushed may share its id
        with a view that was installed, and who hears of that one must not take it for this one."""
        return RingTag(self.id.seq, int.from_bytes(self.digest[:8], "big"))

    @property
    def base(self) -> int:
        """The timestamp of the view: above everything that any of its members has stamped or seen."""
        return 1 + max(said.clock for said in self.statements)

    @property
    def cause(self) -> Cause:
        """One reason for all, so that every member tells the same."""
        return self.statements[0].cause

    @property
    def view_id(self) -> ViewId:
        return ViewId(ViewKind.REGULAR, self.id.seq, self.id.rep)

    def expected(self) -> list[int]:
        """By rank: the counter of the first burst of each member in the new view."""
        return [1 + dict(said.recv).get(said.sender, 0) for said in self.statements]


class Parting(NamedTuple):
    """What a view ends with for those of its members that go on together."""

    trans: tuple[Statement, ...]
    pre: Mapping[NodeId, int]
    """Pre: the last counter of each old member that anybody of `trans` held when it made its statement."""
    delivered: int
    """D: the largest key that anybody of `trans` delivered in the regular view."""

    def transitional_id(self, proposal: Proposal) -> ViewId:
        return ViewId(ViewKind.TRANSITIONAL, proposal.id.seq - 2, self.trans[0].sender)


def propose(statements: Iterable[Statement]) -> Proposal:
    """The view of those who made these statements, which are sorted by node."""
    said = tuple(statements)
    seq = SEQ_STEP + max(one.view_seq for one in said)
    return Proposal(_digest(said), RingId(seq, said[0].sender), said)


def _digest(statements: tuple[Statement, ...]) -> bytes:
    """Over the bytes that travel: equal digests mean equal statements, whatever is derived from them later."""
    name = sha256()
    for said in statements:
        encoded = encode_control(said)
        name.update(len(encoded).to_bytes(4, "big") + encoded)
    return name.digest()[:PROPOSAL_SIZE]


def part(proposal: Proposal, view: RingId, ccs: Iterable[NodeId]) -> Parting:
    """What the members of `view` that are in the proposal deliver before they leave it."""
    members = frozenset(ccs)
    trans = tuple(said for said in proposal.statements if said.view == view and said.sender in members)
    pre = dict.fromkeys(sorted(members), 0)
    for said in trans:
        for node, counter in said.recv:
            if node in members:
                pre[node] = max(pre[node], counter)
    return Parting(trans, pre, max(said.delivered for said in trans))
