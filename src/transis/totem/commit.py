"""The two rotations of the commit token (TOCS95 section 5 and figure 6; F2, F4, W9, W14).

First rotation: every member checks the membership and writes its entry. Second rotation: everybody reads the full list and enters
Recovery. When the token then returns to the representative, it becomes the regular token.

Deviations: (D16) the rotation is a field of the token, so a repeated first-rotation token is never taken for a second one (F2);
(D17) a first-rotation token is accepted only above every ring sequence accepted before (W9); (D18) the entry is forwarded only
when its ring sequence is durable, which it usually is already, as sequences are reserved ahead of use (F4, W14); (D19) no Join is
sent in Commit or Recovery (F5), and a Join from a member with this ring's sequence means that it gave the ring up.
"""

from __future__ import annotations

from transis.totem.gather import MEMBER_GATHERS, Gather
from transis.totem.packets import Commit, CommitEntry, Join
from transis.totem.recovery import Recovery
from transis.totem.ring import Ring, TotemCore
from transis.totem.states import Event, State
from transis.totem.visit import TokenPassing
from transis.types.ids import NodeId, RingId
from transis.types.views import Cause

CAUSE_ACCUSED_MAX = 16
"""At most this many lost members are named in a cause: after a large partition the list would only repeat the view."""
RING_SEQ_STEP = 4
"""Ring sequences go up by four: transitional configurations use the number two below, and odd numbers are kept for later use."""


class CommitRotation:
    def __init__(self, core: TotemCore, passing: TokenPassing, gather: Gather, recovery: Recovery) -> None:
        self._core = core
        self._passing = passing
        self._gather = gather
        self._recovery = recovery
        self._waiting: Commit | None = None
        self._my_entry: CommitEntry | None = None

    # --- first rotation ---------------------------------------------------------------------------------------------

    def create(self, members: frozenset[NodeId]) -> None:
        """As the representative of an agreed membership: make the commit token."""
        core = self._core
        assert core.me == min(members)
        attempt = self._gather.attempts.count(members)
        order = ring_order(members, attempt)
        seq = max(core.ring_seq, core.ring_seq_seen) + RING_SEQ_STEP
        entries = tuple(self._empty_entry(node) for node in order)
        commit = Commit(RingId(seq, core.me), 1, 1, 0, 0, attempt, self._cause(members), entries)
        self._enter(commit, 0)

    def _cause(self, members: frozenset[NodeId]) -> Cause:
        """Why this ring is formed: what started my Gather, and which members of the old ring are lost."""
        cause = self._core.cause
        lost = tuple(sorted(self._core.ring.member_set - members))[:CAUSE_ACCUSED_MAX]
        what = "members lost" if lost and cause.what == MEMBER_GATHERS else cause.what
        return cause._replace(what=what, accused=tuple(sorted({*cause.accused, *lost} - members))[:CAUSE_ACCUSED_MAX])

    def _empty_entry(self, node: NodeId) -> CommitEntry:
        address = self._core.addresses.get(node, "")
        return CommitEntry(node, address, b"", False, None, b"", 0, 0, False, frozenset(), 0)

    def first_in_gather(self, commit: Commit) -> None:
        core = self._core
        if commit.ring.seq <= core.ring_seq or not core.is_in_reach(commit.ring.seq):
            return
        if commit.entries[commit.target].node != core.me or commit.ring.rep != min(self._gather.proposal):
            return
        if frozenset(entry.node for entry in commit.entries) != self._gather.proposal:
            return
        self._enter(commit, commit.target)

    def _enter(self, commit: Commit, rank: int) -> None:
        """Write my entry and go to Commit. From here on the old ring is frozen (W12)."""
        core = self._core
        core.shift(State.COMMIT, "commit token")
        self._gather.committed()
        core.ring_seq = commit.ring.seq
        core.cause = commit.cause
        core.forming = Ring(commit.ring, tuple(entry.node for entry in commit.entries), core.me)
        core.timeouts.begin_ring(len(commit.entries))
        entries = list(commit.entries)
        entries[rank] = self._my_entry = self._recovery.my_entry()
        self._send(commit._replace(entries=tuple(entries)))

    def first_returned(self, commit: Commit) -> None:
        """At the representative: all entries are written, the second rotation starts."""
        ring = self._core.forming
        if ring is None or commit.ring != ring.id or not ring.i_represent or commit.sender != ring.predecessor:
            return
        if self._is_complete(commit, ring):
            self._recover(commit._replace(rotation=2, token_seq=commit.token_seq + 1))

    # --- second rotation --------------------------------------------------------------------------------------------

    def second_in_commit(self, commit: Commit) -> None:
        ring = self._core.forming
        if ring is None or commit.ring != ring.id or commit.target != ring.rank or ring.i_represent:
            return
        if self._is_complete(commit, ring):
            self._recover(commit)

    def _is_complete(self, commit: Commit, ring: Ring) -> bool:
        """Every member has written its entry, in the order in which the token goes round, and mine is as I wrote it."""
        if tuple(entry.node for entry in commit.entries) != ring.members or self._my_entry not in commit.entries:
            return False
        return all(entry.filled and self._may_come(entry, ring) for entry in commit.entries)

    def _may_come(self, entry: CommitEntry, ring: Ring) -> bool:
        """From a ring before this one; and nobody comes from mine who was not in it."""
        old = self._core.ring
        if entry.old_ring is None or entry.old_ring.seq >= ring.id.seq:
            return False
        return entry.old_ring != old.id or entry.node in old.member_set

    def _recover(self, commit: Commit) -> None:
        self._learn_addresses(commit)
        self._passing.arrived()
        self._core.shift(State.RECOVERY, "all entries known")
        self._recovery.enter(commit)
        self._send(commit)

    def second_returned(self, commit: Commit) -> None:
        """At the representative: everybody is in Recovery, the commit token becomes the regular token, once."""
        ring = self._core.forming
        if ring is None or commit.ring != ring.id or not ring.i_represent or commit.sender != ring.predecessor:
            return
        if ring.token_seq == 0:
            self._recovery.start_token()

    def _learn_addresses(self, commit: Commit) -> None:
        for entry in commit.entries:
            self._core.addresses[entry.node] = entry.address

    # --- sending ----------------------------------------------------------------------------------------------------

    def _send(self, commit: Commit) -> None:
        """Forward the token, or wait until its ring sequence is durable."""
        self._core.reserve(commit.ring.seq)
        if commit.ring.seq > self._core.durable_seq:
            self._core.note("commit waits for disk", seq=commit.ring.seq)
            self._waiting = commit
            self._core.arm(Event.TOKEN_LOSS, self._core.timeouts.token_loss_us)
            return
        self._waiting = None
        ring = self._core.forming
        assert ring is not None
        self._gather.attempts.forwarded(ring, commit.rotation)
        if ring.is_singleton:
            self._send_to_myself(commit)
            return
        outgoing = commit._replace(sender=ring.rank, target=ring.successor)
        self._passing.forward(ring.members[ring.successor], self._core.packet(outgoing))

    def _send_to_myself(self, commit: Commit) -> None:
        """A singleton needs no network: both rotations happen at once."""
        if commit.rotation == 1:
            self.first_returned(commit)
        else:
            self.second_returned(commit)

    def durable(self) -> None:
        """The ring sequence is durable: send the commit token that waited for it, unless the attempt was given up."""
        waiting, self._waiting = self._waiting, None
        if waiting is not None and self._core.forming is not None and self._core.forming.id == waiting.ring:
            self._send(waiting)

    # --- giving up --------------------------------------------------------------------------------------------------

    def join_while_forming(self, join: Join) -> None:
        """A member of the ring being formed went back to Gather, left or was restarted: go back to Gather too."""
        ring = self._core.forming
        assert ring is not None, "Commit and Recovery always form a ring"
        reborn = [node for node in ring.members if node.name == join.sender.name and node.incarnation < join.sender.incarnation]
        abandoned = join.sender in ring.member_set and join.ring_seq >= ring.id.seq
        if not (reborn or abandoned or (join.leaving and join.sender in ring.member_set)):
            return
        self._gather.attempts.failed(ring)
        self._gather.shift(Cause("join while forming", join.sender, tuple(reborn)), join=join)


def ring_order(members: frozenset[NodeId], attempt: int) -> tuple[NodeId, ...]:
    """The representative, then ascending ids; after a failed attempt in another order, to make other pairs neighbours (W8)."""
    first, *rest = sorted(members)
    if rest:
        turn = (attempt // 2) % len(rest)
        rest = rest[turn:] + rest[:turn]
    return (first, *(reversed(rest) if attempt % 2 else rest))
