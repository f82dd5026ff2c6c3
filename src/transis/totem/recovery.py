"""Recovery: exchange what the old ring left behind, then install the new one (TOCS95 sections 6 and 7).

Deviations: (D20) in the transitional configuration, everything up to the first gap is delivered whoever sent it, and after the
gap only what members of my_deliver_memb sent (F1); (D21) obligations travel in the commit token and are united on entry to
Recovery, so that a member that acknowledged an exchange keeps its promise through later, smaller ones (F3, W3); (D22) only the
member that set the retransmission flag clears it, and only with an empty queue (W11); (D23) the old ring is frozen from the
commit entry to the installation, and recovered datagrams survive a failed attempt (W12, traps 6, 11).
"""

from __future__ import annotations

from hashlib import sha256
from itertools import islice

from transis.totem.gather import FAILED_TO_RECEIVE, Gather
from transis.totem.packets import NOBODY, Commit, CommitEntry, Token
from transis.totem.ring import Ring, RingDelivery, TotemCore
from transis.totem.states import Event, State, Trap
from transis.totem.visit import TokenPassing, Visit
from transis.types.ids import DatagramClass, NodeId, ViewId, ViewKind
from transis.types.outputs import Configure, Lane, Phase
from transis.types.views import Cause, Member, View
from transis.wire.burst import Burst, decapsulate
from transis.wire.outbox import FilledDatagram

ROTATIONS_TO_AGREE = 2
"""After this many rotations without the retransmission flag, the last datagram of the exchange is known."""
ROTATIONS_TO_INSTALL = 3


class RecoveryQueue:
    """The old-ring datagrams that I must send on the new ring, in order, until somebody else sends them."""

    def __init__(self, ring: Ring, above: int, datagram: int) -> None:
        self._ring = ring
        self._datagram = datagram
        self._waiting = {seq: None for burst in ring.store.after(above) for seq in range(burst.first_seq, burst.last_seq + 1)}

    def __len__(self) -> int:
        return len(self._waiting)

    def sent_by_other(self, burst: Burst) -> None:
        for seq in range(burst.first_seq, burst.last_seq + 1):
            self._waiting.pop(seq, None)

    def backlog(self) -> int:
        """In bytes, as flow control counts, as if every datagram were full."""
        return len(self._waiting) * self._datagram

    def fill(self, permit: int) -> list[FilledDatagram]:
        """The next datagrams, whole and unchanged, as the bodies of one visit."""
        chosen = list(islice(self._waiting, permit))
        filled = []
        for index, seq in enumerate(chosen):
            del self._waiting[seq]
            burst = self._ring.store.at(seq)
            assert burst is not None, "nothing of the old ring is discarded before installation"
            filled.append(FilledDatagram(DatagramClass.ORDERED, burst.datagram(seq), index, index == len(chosen) - 1, ()))
        return filled


class Recovery:
    def __init__(self, core: TotemCore, visit: Visit, passing: TokenPassing, delivery: RingDelivery, gather: Gather) -> None:
        self._core = core
        self._visit = visit
        self._passing = passing
        self._delivery = delivery
        self._gather = gather
        self.obligation: frozenset[NodeId] = frozenset((core.me,))
        self.received_flg = False
        self._entries: tuple[CommitEntry, ...] = ()
        self._trans_memb: tuple[CommitEntry, ...] = ()
        self._companions: frozenset[NodeId] = frozenset()
        """Who comes with me from the old ring."""
        self._deliver_memb: frozenset[NodeId] = frozenset()
        self._high_ring_delivered = 0
        self._queue = RecoveryQueue(core.ring, 0, core.config.datagram)
        self._own_flag = False
        self._calm_rotations = 0
        self._install_seq = 0

    def my_entry(self) -> CommitEntry:
        """My entry in the commit token. Delivery was eager up to here and is frozen now (W12)."""
        core, ring = self._core, self._core.ring
        self._delivery.eager(ring)
        assert ring.high_delivered >= min(ring.safe_upto, ring.store.aru), "ordered delivery is eager"
        return CommitEntry(
            core.me,
            core.config.address,
            core.config.info,
            True,
            ring.id,
            _members_digest(ring),
            ring.store.aru,
            ring.high_delivered,
            self.received_flg,
            self.obligation,
            core.clock,
        )

    # --- entering ---------------------------------------------------------------------------------------------------

    def enter(self, commit: Commit) -> None:
        """Read off the full list who comes with me from the old ring, what we are obliged to, and what must be exchanged."""
        core, old = self._core, self._core.ring
        self._entries = commit.entries
        self._trans_memb = tuple(entry for entry in commit.entries if entry.old_ring == old.id)
        self._companions = frozenset(entry.node for entry in self._trans_memb)
        assert core.me in self._companions
        self._deliver_memb = frozenset[NodeId]().union(*(entry.obligation for entry in self._trans_memb))
        low_ring_aru = min(entry.aru for entry in self._trans_memb)
        self._high_ring_delivered = max(entry.high_delivered for entry in self._trans_memb)
        self._queue = RecoveryQueue(old, low_ring_aru, core.config.datagram)
        if len(self._queue) > core.config.window.window:
            core.trap(Trap.LARGE_RECOVERY)
        self._own_flag = False
        self._calm_rotations = 0
        self._install_seq = 0
        for entry in commit.entries:
            core.observe(entry.timestamp)

    def start_token(self) -> None:
        """At the representative: the regular token of the new ring begins its first rotation."""
        ring = self._core.forming
        assert ring is not None
        token = Token(ring.tag, ring.predecessor, ring.rank, 1, 0, 0, 0, NOBODY, 0, 0, False, self._core.clock, [])
        self.token_in_recovery(token)

    # --- data and token ---------------------------------------------------------------------------------------------

    def data_in_recovery(self, burst: Burst) -> None:
        """New-ring data: recovered datagrams go to the old store; the rest waits for the installation."""
        ring = self._core.forming
        assert ring is not None
        self._core.observe(burst.header.timestamp)
        self._passing.evidence(burst.last_seq)
        for fresh in self._delivery.receive(ring, burst, installed=False):
            if fresh.encapsulated:
                self._recovered(fresh)

    def _recovered(self, burst: Burst) -> None:
        """Only who comes with me from the old ring can have anything of it."""
        old, ring = self._core.ring, self._core.forming
        assert ring is not None
        if ring.members[burst.sender] not in self._companions:
            return
        bursts, _ = decapsulate(burst)
        for inner in bursts:
            if inner.ring == old.tag and inner.sender < len(old.members) and not inner.encapsulated:
                self._delivery.receive(old, inner, installed=False)
                self._queue.sent_by_other(inner)

    def token_in_recovery(self, token: Token) -> None:
        ring = self._core.forming
        assert ring is not None
        if not self._visit.accept(ring, token):
            return
        self._run_visit(ring, token)

    def release_token_in_recovery(self) -> None:
        """Only a singleton holds its token in Recovery (W15)."""
        ring, token = self._core.forming, self._passing.take_held()
        assert ring is not None
        assert token is not None
        ring.token_seq = token.token_seq
        ring.token_at = self._core.now
        self._run_visit(ring, token)

    def _run_visit(self, ring: Ring, token: Token) -> None:
        self._flag(token)
        if not self._visit.run(ring, token, self._queue, encapsulated=True):
            accused = ring.members[token.aru_id]
            self._gather.attempts.failed(ring)
            self._gather.shift(Cause(FAILED_TO_RECEIVE, self._core.me, (accused,)), fail=(accused,))
            return
        self._count_calm(ring, token)

    def _flag(self, token: Token) -> None:
        """retrans_flg says that somebody still has something to send; only the member that set it clears it (W11)."""
        if len(self._queue) and not token.retrans_flg:
            token.retrans_flg = self._own_flag = True
        elif token.retrans_flg and self._own_flag and not len(self._queue):
            token.retrans_flg = self._own_flag = False

    def _count_calm(self, ring: Ring, token: Token) -> None:
        self._calm_rotations = 0 if token.retrans_flg else self._calm_rotations + 1
        if self._calm_rotations == ROTATIONS_TO_AGREE:
            self._install_seq = token.seq
        if self._calm_rotations >= ROTATIONS_TO_AGREE and ring.store.aru >= self._install_seq and not self.received_flg:
            self.received_flg = True
            self._core.note("received")
            self.obligation |= self._deliver_memb
        if self._calm_rotations >= ROTATIONS_TO_INSTALL and ring.safe_upto >= self._install_seq:
            self._install(ring)

    # --- installation -----------------------------------------------------------------------------------------------

    def _install(self, ring: Ring) -> None:
        """One local step without communication (TOCS95 section 7): deliver the rest of the old regular configuration, install the
        transitional one, deliver what belongs in it, install the new regular one."""
        core, old = self._core, self._core.ring
        timestamp = 1 + max(entry.timestamp for entry in self._entries)
        core.observe(timestamp)
        self._delivery.upto(old, max(old.safe_upto, self._high_ring_delivered))
        core.emit(Configure(self._transitional_view(ring, old, timestamp)))
        self._deliver_transitional(old)
        core.ring, core.forming = ring, None
        self.obligation, self.received_flg = frozenset((core.me,)), False
        core.shift(State.OPERATIONAL, "installed")
        self._gather.installed(ring.members)
        core.forget_strangers(core.ring.members)
        self._configure(self._regular_view(ring, timestamp))
        self._delivery.eager(ring)
        core.arm(Event.BEACON_SEND, core.config.timing.beacon_us)

    def _deliver_transitional(self, old: Ring) -> None:
        """Deliver what anybody sent up to the first gap, and after it only from members whose messages we all have (F1)."""
        expected = old.high_delivered + 1
        gap = False
        for burst in old.store.after(old.high_delivered):
            if burst.first_seq != expected and not gap:
                gap = True
                self._core.trap(Trap.LASTING_GAP)
            if burst.klass is DatagramClass.SAFE:
                self._core.trap(Trap.SAFE_IN_TRANSITIONAL)
            if not gap or old.members[burst.sender] in self._deliver_memb:
                self._delivery.at_place(old, burst, Phase.TRANSITIONAL)
            expected = burst.last_seq + 1

    def _configure(self, view: View) -> None:
        """Install a regular view: messages bound to another view are refused, and the application lane waits for the groups."""
        core = self._core
        if core.outbox.restart():
            core.trap(Trap.HALF_SENT)
        core.outbox.hold(Lane.APPLICATION)
        core.emit(Configure(view))
        core.refuse(core.outbox.drop_bound(view.id), "the view changed first")

    def _transitional_view(self, ring: Ring, old: Ring, timestamp: int) -> View:
        members = tuple(sorted(_member(entry) for entry in self._trans_memb))
        view_id = ViewId(ViewKind.TRANSITIONAL, ring.id.seq - 2, members[0].node)
        return View(view_id, old.view_id, members, self._core.cause, timestamp)

    def _regular_view(self, ring: Ring, timestamp: int) -> View:
        members = tuple(sorted(_member(entry) for entry in self._entries))
        return View(ring.view_id, ring.view_id, members, self._core.cause, timestamp)

    def check(self) -> None:
        assert self._core.me in self.obligation


def _member(entry: CommitEntry) -> Member:
    previous = entry.old_ring
    assert previous is not None, "every filled entry names the ring it comes from"
    return Member(entry.node, entry.address, ViewId(ViewKind.REGULAR, previous.seq, previous.rep), entry.info)


def _members_digest(ring: Ring) -> bytes:
    return sha256(repr(sorted(ring.members)).encode()).digest()[:8]
