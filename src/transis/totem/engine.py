"""The engine of the Totem single ring: its parts, which of them handles which event, and the way from a packet to its event.

visit        what happens at a token visit           gather      who forms the next ring
passing      handing the token on, retransmission    commit      the two rotations of the commit token
operational  the installed ring: hold, wake, leave   recovery    the exchange and the installation
             and how rings find each other
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from transis.engine.base import EngineBase, Handlers, Packet, ignored
from transis.engine.presence import Quarantine
from transis.totem.commit import CommitRotation
from transis.totem.gather import Gather
from transis.totem.operational import OperationalRing, RingPresence
from transis.totem.packets import NOBODY, Commit, Join, Token, Wake
from transis.totem.recovery import Recovery
from transis.totem.ring import Ring, RingDelivery, TotemCore
from transis.totem.states import Event, State, Trap
from transis.totem.visit import TokenPassing, Visit
from transis.types.config import Config
from transis.types.ids import NodeId, RingId, RingTag
from transis.types.views import Cause, Member, View
from transis.wire.burst import Burst
from transis.wire.control import Beacon
from transis.wire.envelope import transmitter_tag


@dataclass(slots=True, init=False)
class TotemParts:
    """The parts of this engine. Each is built from earlier ones; a part reaches later ones through this record."""

    core: TotemCore
    quarantine: Quarantine
    delivery: RingDelivery
    passing: TokenPassing
    visit: Visit
    gather: Gather
    operational: OperationalRing
    presence: RingPresence
    recovery: Recovery
    commit: CommitRotation

    def __init__(self, config: Config, me: NodeId, ring_seq: int) -> None:
        self.core = core = TotemCore(config, me, ring_seq)
        self.quarantine = Quarantine(config.timing)
        self.delivery = RingDelivery(core)
        self.passing = TokenPassing(core)
        self.visit = Visit(core, self.passing, self.delivery)
        self.gather = Gather(self)
        self.operational = OperationalRing(core, self.visit, self.passing, self.delivery, self.gather)
        self.presence = RingPresence(core, self.gather, self.quarantine)
        self.recovery = Recovery(core, self.visit, self.passing, self.delivery, self.gather)
        self.commit = CommitRotation(core, self.passing, self.gather, self.recovery)


GATHER_TIMERS: Final = (Event.JOIN_REPEAT, Event.JOIN_SEND, Event.CONSENSUS, Event.GATHER_MIN)

HANDLERS: Final[Handlers[State, Event]] = {
    State.OPERATIONAL: {
        Event.RING_DATA: OperationalRing.ring_data,
        Event.TOKEN: OperationalRing.token_in_operational,
        Event.JOIN: RingPresence.join_in_operational,
        Event.BEACON: RingPresence.beacon_in_operational,
        Event.WAKE: OperationalRing.wake_token,
        Event.TOKEN_LOSS: Gather.token_lost,
        Event.TOKEN_RETRANSMIT: TokenPassing.retransmit_token,
        Event.TOKEN_HOLD: OperationalRing.release_token,
        Event.WAKE_REPEAT: OperationalRing.ask_for_token,
        Event.BEACON_SEND: RingPresence.send_beacon,
        Event.LEAVE: Gather.leave_now,
        **ignored(Event.OLD_DATA, Event.FOREIGN_DATA, Event.COMMIT_FIRST, Event.COMMIT_SECOND),
        **ignored(*GATHER_TIMERS),
    },
    State.GATHER: {
        Event.RING_DATA: Gather.old_data_in_gather,
        Event.COMMIT_FIRST: CommitRotation.first_in_gather,
        Event.JOIN: Gather.join,
        Event.TOKEN_LOSS: Gather.commit_never_came,
        Event.JOIN_REPEAT: Gather.repeat_join,
        Event.JOIN_SEND: Gather.send_join,
        Event.CONSENSUS: Gather.consensus_timeout,
        Event.GATHER_MIN: Gather.try_to_form,
        Event.LEAVE: Gather.leave_now,
        **ignored(Event.OLD_DATA, Event.FOREIGN_DATA, Event.TOKEN, Event.COMMIT_SECOND, Event.BEACON, Event.WAKE),
        **ignored(Event.TOKEN_RETRANSMIT, Event.TOKEN_HOLD, Event.WAKE_REPEAT, Event.BEACON_SEND),
    },
    State.COMMIT: {
        Event.COMMIT_FIRST: CommitRotation.first_returned,
        Event.COMMIT_SECOND: CommitRotation.second_in_commit,
        Event.JOIN: CommitRotation.join_while_forming,
        Event.TOKEN_LOSS: Gather.token_lost,
        Event.TOKEN_RETRANSMIT: TokenPassing.retransmit_token,
        Event.LEAVE: Gather.leave_now,
        **ignored(Event.RING_DATA, Event.OLD_DATA, Event.FOREIGN_DATA, Event.TOKEN, Event.BEACON, Event.WAKE),
        **ignored(Event.TOKEN_HOLD, Event.WAKE_REPEAT, Event.BEACON_SEND, *GATHER_TIMERS),
    },
    State.RECOVERY: {
        Event.RING_DATA: Recovery.data_in_recovery,
        Event.TOKEN: Recovery.token_in_recovery,
        Event.COMMIT_SECOND: CommitRotation.second_returned,
        Event.JOIN: CommitRotation.join_while_forming,
        Event.TOKEN_LOSS: Gather.token_lost,
        Event.TOKEN_RETRANSMIT: TokenPassing.retransmit_token,
        Event.TOKEN_HOLD: Recovery.release_token_in_recovery,
        Event.LEAVE: Gather.leave_now,
        **ignored(Event.OLD_DATA, Event.FOREIGN_DATA, Event.COMMIT_FIRST, Event.BEACON, Event.WAKE),
        **ignored(Event.WAKE_REPEAT, Event.BEACON_SEND, *GATHER_TIMERS),
    },
    State.STOPPED: ignored(*Event),
}
"""What TOCS95 figures 4 to 6 do with each event in each state."""

RUNNING: Final = tuple(state for state in State if state is not State.STOPPED)


@dataclass(frozen=True, slots=True)
class TotemInspection:
    """What tests look at and no output shows."""

    received_flg: bool
    """This node has received everything of the exchange, and its commit entries say so."""


class TotemEngine(EngineBase[TotemCore]):
    packets: ClassVar = (Token, Join, Commit, Wake)
    accuses: ClassVar = frozenset({Event.TOKEN_LOSS, Event.CONSENSUS})

    def __init__(self, config: Config, me: NodeId, ring_seq: int) -> None:
        self._parts = parts = TotemParts(config, me, ring_seq)
        handling = (parts.operational, parts.presence, parts.gather, parts.commit, parts.recovery, parts.passing)
        super().__init__(parts.core, HANDLERS, handling)

    # --- what is the ring's own -------------------------------------------------------------------------------------

    def prepare(self, now: int) -> None:
        """Reserve ring sequences while the node asks whether its name is free, so that the first view waits for no disk (W14)."""
        super().prepare(now)
        self._core.reserve(self._core.ring_seq)

    def persisted(self, now: int, ticket: int) -> None:
        super().persisted(now, ticket)
        if self._core.persisted(ticket):
            self._parts.commit.durable()

    def _first_view(self) -> View:
        """A node starts as a singleton ring, not in Gather (D2)."""
        core, ring = self._core, self._core.ring
        member = Member(core.me, core.config.address, None, core.config.info)
        return View(ring.view_id, ring.view_id, (member,), Cause("start"), core.tick())

    def _begin(self) -> None:
        core, ring = self._core, self._core.ring
        core.timeouts.begin_ring(1)
        self._parts.passing.forward_token(ring, Token(ring.tag, 0, 0, 1, 0, 0, 0, NOBODY, 0, 0, False, core.clock, []))

    def _queued(self) -> None:
        if self._core.state is not State.OPERATIONAL:
            self._core.trap(Trap.QUEUED)

    def _work(self) -> None:
        if self._core.outbox.has_work():
            self._parts.operational.submitted()

    def _begin_to_leave(self) -> None:
        self._parts.passing.hurry()

    def _fired_late(self, late_us: int) -> bool:
        return self._core.timeouts.fired_late(late_us)

    @property
    def _retry_us(self) -> int:
        return self._core.timeouts.token_retransmit_us

    # --- from a packet to its handler -------------------------------------------------------------------------------

    def _may_say(self, by: bytes, packet: Packet) -> bool:
        """Members repeat each other's data, but each passes tokens on as itself."""
        match packet:
            case Burst() | Wake():
                ring = self._ring_of(packet.ring)
                return ring is None or by in ring.speakers
            case Token():
                ring = self._ring_of(packet.ring)
                return ring is None or ring.speakers.get(by) == packet.sender
            case Commit():
                return by == transmitter_tag(packet.entries[packet.sender].node)
        return True

    def _ring_of(self, tag: RingTag) -> Ring | None:
        """The ring with this tag, of those that packets may be about."""
        core = self._core
        if core.forming is not None and tag == core.forming.tag:
            return core.forming
        return core.ring if tag == core.ring.tag else None

    def _dispatch(self, packet: Packet) -> None:
        match packet:
            case Burst():
                self._on_burst(packet)
            case Token():
                self._on_token(packet)
            case Commit():
                if packet.ring == self._core.ring.id:
                    self._core.trap(Trap.LATE_COMMIT)
                self._handle(Event.COMMIT_FIRST if packet.rotation == 1 else Event.COMMIT_SECOND, packet)
            case Join():
                self._on_hello(Event.JOIN, packet)
            case Beacon():
                self._on_hello(Event.BEACON, packet)
            case Wake():
                self._handle(Event.WAKE, packet)

    def _on_burst(self, burst: Burst) -> None:
        core = self._core
        in_use = core.forming or core.ring
        if burst.ring == in_use.tag:
            if burst.sender < len(in_use.members):
                self._handle(Event.RING_DATA, burst)
        elif burst.ring == core.ring.tag:
            core.trap(Trap.FROZEN)
            self._handle(Event.OLD_DATA, burst)
        else:
            self._handle(Event.FOREIGN_DATA, burst)

    def _on_token(self, token: Token) -> None:
        core = self._core
        if token.ring == (core.forming or core.ring).tag:
            self._handle(Event.TOKEN, token)
        else:
            core.trap(Trap.FOREIGN_TOKEN)

    def _on_hello(self, event: Event, packet: Join | Beacon) -> None:
        """Joins and Beacons introduce their senders."""
        if self._is_admitted(packet):
            self._core.observe(packet.timestamp)
            self._handle(event, packet)

    # --- looking in -------------------------------------------------------------------------------------------------

    @property
    def ring_id(self) -> RingId:
        return self._core.ring.id

    def statistics(self) -> dict[str, int]:
        """Figures for an operator. A lost token is counted in the state in which its timer fired and was believed."""
        core, ring = self._core, self._core.ring
        figures = {f"tokens_lost_{state.value.lower()}": self._fired(state, Event.TOKEN_LOSS) for state in RUNNING}
        return figures | {
            "tokens_sent_again": sum(self._fired(state, Event.TOKEN_RETRANSMIT) for state in RUNNING),
            "rotations": core.timeouts.rotations,
            "last_rotation_us": core.timeouts.last_rotation_us,
            "token_loss_us": core.timeouts.token_loss_us,
            "health": core.timeouts.health,
            "retransmitted": core.retransmitted,
            "requested": core.requested,
            "ring_backlog_bytes": ring.last_backlog,
            "outbox_bytes": core.outbox.queued(),
            "unsafe_datagrams": ring.store.highest - ring.safe_upto,
            "window": core.config.window.window,
            "window_used": ring.last_fcc,
        }

    def _fired(self, state: State, event: Event) -> int:
        return self._coverage[state, event]

    def inspect(self) -> TotemInspection:
        return TotemInspection(self._parts.recovery.received_flg)

    def check(self) -> None:
        super().check()
        core = self._core
        core.ring.check()
        self._parts.recovery.check()
        assert (core.forming is not None) == (core.state in (State.COMMIT, State.RECOVERY))
        if core.forming is not None:
            core.forming.store.check()
            assert core.forming.id.seq > core.ring.id.seq
