"""One ring as a member sees it, what the ring's parts share, and delivery on an installed ring (TOCS95 section 4).

The names are the paper's: `token_seq` is my_token_seq *as received* (F6), the store's `aru` is my_aru, `high_delivered` is
my_high_delivered; `safe_upto` is the highest number up to which everybody is known to have everything.

Delivery (section 4.3). Agreed: in the order of sequence numbers, with nothing left out. Safe: in addition, the token was
forwarded with aru >= seq on two successive rotations. The first blocked datagram blocks everything after it: there is one
total order. Basic: once, on receipt or at its place, whichever comes first.


Timeouts (W17, D26): the configured ones, stretched by the measured rotation and by this node's own health. T_loss =
max(configured, 8 x longest recent rotation) x (1 + health). Health, 0 at best, rises when this node's own timers fire late (a
pause, a garbage collection, a starved machine) and falls after 64 good rotations: a sick observer suspects others more slowly
(Lifeguard).
All arithmetic is on integers: no float decides a protocol step.
"""

from __future__ import annotations

from typing import Final

from transis.engine.core import BaseCore, DatagramStore, Health, is_seq_in_reach
from transis.totem.states import TRANSITIONS, Event, State
from transis.types.config import Config, Timing
from transis.types.ids import DatagramClass, NodeId, RingId, ViewId, ViewKind
from transis.types.limits import SEQ_JUMP_MAX
from transis.types.outputs import Deliver, Persist, Phase
from transis.wire.burst import Burst
from transis.wire.envelope import transmitter_tag

# --- timeouts ---------------------------------------------------------------------------------------------------------

ROTATIONS_IN_LOSS: Final = 8
RETRIES_IN_LOSS: Final = 3
"""T_retx is at most T_loss divided by this, however large the ring: a lost token must be sent again before the ring is lost."""
STRETCH_MAX: Final = 16
"""However slow the ring looks, T_loss is at most this many times its configured value: a dead ring must be noticed."""


class Timeouts:
    def __init__(self, timing: Timing) -> None:
        self.timing = timing
        self._health = Health()
        self.rotations = 0
        self.last_rotation_us = 0
        self._rotation_us = 0
        self._members = 1

    def begin_ring(self, members: int) -> None:
        """A new ring: its rotation has not been measured yet, so assume a modest time per hop."""
        self._members = members
        self._rotation_us = members * self.timing.hop_us

    def saw_rotation(self, rotation_us: int) -> None:
        """Remember the longest recent rotation; older ones fade by 1/64 a rotation."""
        self.rotations += 1
        self.last_rotation_us = rotation_us
        self._rotation_us = max(rotation_us, self._rotation_us - (self._rotation_us >> 6))
        self._health.went_well()

    def fired_late(self, late_us: int) -> bool:
        """True if a timer fired so late that this node, not its peers, was away."""
        return self._health.fired_late(late_us, self.token_retransmit_us)

    @property
    def health(self) -> int:
        return self._health.score

    @property
    def token_loss_us(self) -> int:
        return self._healthy_loss_us * (1 + self.health)

    @property
    def _healthy_loss_us(self) -> int:
        base = self.timing.token_loss_us
        return min(max(base, ROTATIONS_IN_LOSS * self._rotation_us), STRETCH_MAX * base)

    @property
    def token_retransmit_us(self) -> int:
        """Grows with the size of the ring but not with measured rotations: a lost token makes a rotation long, and waiting longer
        with the retransmission because of that would make the next one longer still."""
        return min(self._for_size(self.timing.token_retransmit_us, self._members), self._healthy_loss_us // RETRIES_IN_LOSS)

    def consensus_us(self, members: int) -> int:
        """Consensus must outlast the slowest ring that this many members could form."""
        return self._for_size(self.timing.consensus_us, members) * (1 + self.health)

    def _for_size(self, base_us: int, members: int) -> int:
        """A timeout stretched as T_loss is, for a ring of this many members whose rotation has not been measured yet."""
        expected = ROTATIONS_IN_LOSS * members * self.timing.hop_us * base_us // self.timing.token_loss_us
        return min(max(base_us, expected), STRETCH_MAX * base_us)


# --- ring -------------------------------------------------------------------------------------------------------------


class Ring:
    def __init__(self, ring_id: RingId, members: tuple[NodeId, ...], me: NodeId) -> None:
        assert members[0] == ring_id.rep, "the representative is first in token order"
        assert len(set(members)) == len(members)
        self.id = ring_id
        self.tag = ring_id.tag
        self.members = members
        self.member_set = frozenset(members)
        self.speakers = {transmitter_tag(node): rank for rank, node in enumerate(members)}
        """Ranks by the tags under which members send."""
        self.rank = members.index(me)
        self.store = DatagramStore()
        self.token_seq = 0
        self.token_at = 0
        self.seq_seen = 0
        """seq of the token at my previous visit: what is missing up to here is requested (D6)."""
        self.last_aru_sent = 0
        self.safe_upto = 0
        self.high_delivered = 0
        self.early: set[int] = set()
        """Basic datagrams delivered on receipt, ahead of their place."""
        self.my_last = 0
        self.my_last_backlog = 0
        self.last_fcc = 0
        """With `last_backlog`: datagrams of the last rotation, and bytes queued at all members, on the token as it left here."""
        self.last_backlog = 0
        self.last_missing = 0
        self.own_seq = 0
        """The last sequence number that I assigned on this ring."""
        self.aru_still = 0
        self.aru_still_id = 0
        self.aru_still_since = 0
        self.idle_visits = 0
        self.forwarded_idle = False
        self.has_refused_token = False
        self.has_noted_clash = False
        """An operator was told of a datagram that cannot be on this ring; once is enough."""

    @property
    def view_id(self) -> ViewId:
        return ViewId(ViewKind.REGULAR, self.id.seq, self.id.rep)

    @property
    def successor(self) -> int:
        return (self.rank + 1) % len(self.members)

    @property
    def predecessor(self) -> int:
        return (self.rank - 1) % len(self.members)

    @property
    def is_singleton(self) -> bool:
        return len(self.members) == 1

    @property
    def i_represent(self) -> bool:
        return self.rank == 0

    def check(self) -> None:
        self.store.check()
        assert self.high_delivered <= self.store.aru, "delivered only what is contiguous"
        assert self.store.discarded <= self.high_delivered
        assert self.store.discarded <= max(self.safe_upto, 0)
        assert self.safe_upto <= self.store.aru, "what is safe is held here too"


# --- core -------------------------------------------------------------------------------------------------------------

RESERVE = 4_000
"""Ring sequences reserved on disk ahead of use, so that no view change waits for an fsync (W14)."""


class TotemCore(BaseCore[State, Event]):
    stopped = State.STOPPED
    beacon_due = Event.BEACON_SEND
    leave_due = Event.LEAVE

    def __init__(self, config: Config, me: NodeId, ring_seq: int) -> None:
        super().__init__(config, me, State.OPERATIONAL, TRANSITIONS, Event)
        self.timeouts = Timeouts(config.timing)
        self.ring_seq = ring_seq
        """The highest ring sequence that this node ever accepted, proposed or installed (W9)."""
        self.ring_seq_seen = ring_seq
        """The highest ring sequence seen in any Join: a new ring goes above it."""
        self.durable_seq = ring_seq
        self._reserving = 0
        self.ring = Ring(RingId(ring_seq, me), (me,), me)
        self.forming: Ring | None = None
        self._tickets = 0
        self.retransmitted = 0
        """Datagrams sent again because they were requested."""
        self.requested = 0
        """Datagrams requested here; one that is requested at several visits counts each time."""

    def stop(self, why: str) -> None:
        self.forming = None
        super().stop(why)

    def is_in_reach(self, seq: int) -> bool:
        """May this node adopt a ring sequence from another?"""
        return is_seq_in_reach(seq, max(self.ring_seq, self.ring_seq_seen), is_alone=len(self.ring.members) == 1)

    def reserve(self, seq: int) -> None:
        """Make sure that ring sequences up to `seq` and well beyond are, or soon will be, durable."""
        if seq + RESERVE // 2 > max(self.durable_seq, self._reserving):
            self._reserving = seq + RESERVE
            self._tickets += 1
            self.emit(Persist(self._tickets, "ring_seq", self._reserving))

    def persisted(self, ticket: int) -> bool:
        """A write completed. True if everything reserved is durable now."""
        if ticket == self._tickets:
            self.durable_seq = max(self.durable_seq, self._reserving)
        return ticket == self._tickets


# --- delivery ---------------------------------------------------------------------------------------------------------


class RingDelivery:
    def __init__(self, core: TotemCore) -> None:
        self._core = core

    def receive(self, ring: Ring, burst: Burst, *, installed: bool) -> list[Burst]:
        """Data from the network. What I sent I hold already: nobody tells me anything new in my own name."""
        if burst.sender == ring.rank:
            if burst.last_seq > ring.own_seq:
                self._core.reject_own(burst)
            return []
        if burst.last_seq > ring.store.aru + SEQ_JUMP_MAX:
            return []
        fresh = self.accept(ring, burst, installed=installed)
        if not fresh or fresh[0] is not burst:
            self._look_for_clash(ring, burst)
        return fresh

    def _look_for_clash(self, ring: Ring, burst: Burst) -> None:
        """If a number comes twice, the first datagram counts. If their senders differ, a member gave one number away twice; if
        only what they say differs, a member wrote in another's name. What is dropped here may be what others keep. Nobody can
        put that right, but an operator can find the member."""
        held = ring.store.contradiction(burst)
        if held is None:
            return
        if held.sender == burst.sender:
            self._core.reject_content(ring.members[held.sender], held.first_seq)
        elif not ring.has_noted_clash:
            ring.has_noted_clash = True
            kept, dropped = str(ring.members[held.sender]), str(ring.members[burst.sender])
            self._core.note("number used twice", seq=held.first_seq, kept=kept, dropped=dropped)

    def accept(self, ring: Ring, burst: Burst, *, installed: bool) -> list[Burst]:
        """Store what is new; deliver basic datagrams at once if their view is installed here."""
        fresh = ring.store.insert(burst)
        if installed and burst.klass is DatagramClass.BASIC and not burst.encapsulated:
            for part in fresh:
                ring.early.update(range(part.first_seq, part.last_seq + 1))
                self._hand_up(ring, part, Phase.REGULAR, early=True)
        return fresh

    def eager(self, ring: Ring) -> None:
        """Deliver everything that may be delivered in the regular configuration now."""
        self.upto(ring, ring.safe_upto)

    def upto(self, ring: Ring, safe_upto: int) -> None:
        """Deliver in order until a gap, or until a safe datagram above `safe_upto`."""
        while (burst := ring.store.at(ring.high_delivered + 1)) is not None:
            last = min(burst.last_seq, safe_upto) if burst.klass is DatagramClass.SAFE else burst.last_seq
            if last < burst.first_seq:
                return
            self.at_place(ring, burst.slice(burst.first_seq, last), Phase.REGULAR)
            ring.high_delivered = last

    def at_place(self, ring: Ring, burst: Burst, phase: Phase) -> None:
        """Deliver a burst at its place in the order, unless it was delivered early or only carries recovered datagrams."""
        if burst.encapsulated:
            return
        if burst.klass is not DatagramClass.BASIC:
            self._hand_up(ring, burst, phase, early=False)
            return
        for seq in range(burst.first_seq, burst.last_seq + 1):
            if seq in ring.early:
                ring.early.discard(seq)
            else:
                self._hand_up(ring, burst.slice(seq, seq), phase, early=False)

    def _hand_up(self, ring: Ring, burst: Burst, phase: Phase, *, early: bool) -> None:
        self._core.emit(Deliver(burst, ring.members[burst.sender], ring.view_id, phase, early, burst.first_seq))
