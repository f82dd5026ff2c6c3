"""The Totem single-ring engine: the doors of the engine contract (design 4), and the way from a packet to its handler.

No I/O, no clock, no randomness. Everything that happens enters through a door with the time as an argument; everything
that must be done leaves through `take_outputs` in the order in which it is to be carried out. The organs:

    states      the table of states and events          gather      who forms the next ring
    visit       what happens at a token visit           forming     the two rotations of the commit token
    passing     handing the token on, retransmission    recovery    the exchange and the installation
    operational the installed ring, hold, wake, leave   presence    beacons, joins while a ring is healthy
"""

from __future__ import annotations

from typing import ClassVar, Final

from transis.engine.base import Doors, Packet
from transis.engine.presence import Quarantine
from transis.totem.commit import Forming
from transis.totem.gather import Gathering
from transis.totem.operational import Operational, Presence
from transis.totem.packets import NOBODY, Commit, Join, Token, Wake
from transis.totem.passing import Passing
from transis.totem.recovery import Recovering
from transis.totem.ring import Core, Delivery
from transis.totem.states import TABLE, Event, State, Trap
from transis.totem.visit import Visit
from transis.types.config import Config
from transis.types.ids import NodeId, RingId, ViewId
from transis.types.outputs import NEVER, Configure, Lane, OutboundRun
from transis.types.views import Cause, Member, View
from transis.wire.burst import Burst
from transis.wire.control import Beacon

TIMERS_OF_OTHERS: Final = (Event.TOKEN_LOSS, Event.CONSENSUS)
"""Timers that accuse somebody else: when they fire late, it was this node that was away."""
RUNNING: Final = tuple(state for state in State if state is not State.STOPPED)


class Engine(Doors[Core]):
    packets: ClassVar = (Token, Join, Commit, Wake)
    """Those that only this engine sends."""

    def __init__(self, config: Config, me: NodeId, ring_seq: int) -> None:
        core = Core(config, me, ring_seq)
        quarantine = Quarantine(config.timing)
        delivery = Delivery(core)
        passing = Passing(core)
        visit = Visit(core, passing, delivery)
        self._gathering = Gathering(core, passing, delivery, quarantine)
        self._operational = Operational(core, visit, passing, delivery, self._gathering)
        self._recovering = Recovering(core, visit, passing, delivery, self._gathering)
        self._forming = Forming(core, passing, self._gathering, self._recovering)
        self._gathering.form = self._forming.create
        presence = Presence(core, self._gathering, quarantine)
        self._passing = passing
        organs = (self._operational, self._gathering, self._forming, self._recovering, presence, passing)
        super().__init__(core, TABLE, organs)

    # --- doors ------------------------------------------------------------------------------------------------------

    def prepare(self, now: int) -> None:
        """Reserve ring sequences while the node still asks for its name, so that the first view waits for no disk (W14)."""
        self._core.now = now
        self._core.reserve(self._core.ring_seq)

    def start(self, now: int) -> None:
        """Install the singleton ring and make it known (protocols 1.11, D2)."""
        core = self._core
        core.now = now
        ring = core.ring
        member = Member(core.me, core.config.address, None, core.config.info)
        core.outbox.hold(Lane.APPLICATION)
        core.emit(Configure(View(ring.view_id, ring.view_id, (member,), Cause("start"), core.tick())))
        core.arm(Event.BEACON_SEND, 0)
        core.pace.begin_ring(1)
        self._passing.forward_token(ring, Token(ring.tag, 0, 0, 1, 0, 0, 0, NOBODY, 0, 0, False, core.clock, []))

    def submit(self, now: int, lane: Lane, run: OutboundRun, bound_to: ViewId | None = None) -> int:
        """Queue messages; how many were taken (engine/base.py says when none are)."""
        core = self._core
        core.now = now
        if core.state is State.STOPPED or (self._operational.is_leaving and lane is Lane.APPLICATION):
            return 0
        taken = core.outbox.submit(lane, run, bound_to)
        if core.state is not State.OPERATIONAL:
            core.trap(Trap.QUEUED)
        if core.outbox.has_work():
            self._operational.submitted()
        return taken

    def open(self, now: int, lane: Lane) -> None:
        """The stack has nothing to exchange in this view (any more): application messages may flow."""
        core = self._core
        core.now = now
        core.outbox.open(lane)
        if core.outbox.has_work():
            self._operational.submitted()

    def persisted(self, now: int, ticket: int) -> None:
        self._core.now = now
        if self._core.persisted(ticket):
            self._forming.durable()

    def leave(self, now: int) -> None:
        self._core.now = now
        self._operational.leave()

    def stop(self, now: int, why: str) -> None:
        """Stop at once, without goodbye: this identity may not go on (C4)."""
        self._core.now = now
        self._operational.stop(why)

    def _was_away(self, event: Event, late_us: int) -> bool:
        core = self._core
        if event not in TIMERS_OF_OTHERS or not core.pace.fired_late(late_us):
            return False
        core.note("fired late", timer=event.value, late_us=late_us)
        return core.timers.postpone(event, core.now + core.pace.token_retransmit_us)

    def _end_turn(self) -> None:
        """Whatever a packet or a timer asks for was done at once."""

    # --- from a packet to its handler -------------------------------------------------------------------------------

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
        """Figures for an operator. A token counts as lost in the state in which its timer was believed."""
        core, ring = self._core, self._core.ring
        figures = {f"tokens_lost_{state.value.lower()}": self._fired(state, Event.TOKEN_LOSS) for state in RUNNING}
        return figures | {
            "tokens_sent_again": sum(self._fired(state, Event.TOKEN_RETRANSMIT) for state in RUNNING),
            "rotations": core.pace.rotations,
            "last_rotation_us": core.pace.last_rotation_us,
            "token_loss_us": core.pace.token_loss_us,
            "health": core.pace.health,
            "retransmitted": core.retransmitted,
            "requested": core.requested,
            "ring_backlog_bytes": ring.last_backlog,
            "outbox_bytes": core.outbox.queued(),
            "unsafe_datagrams": ring.store.highest - ring.safe_upto,
            "window": core.config.window.window,
            "window_used": ring.last_fcc,
        }

    def _fired(self, state: State, event: Event) -> int:
        return self._core.coverage[state.value, event.value]

    def check(self) -> None:
        """Assert every invariant; the simulator calls it after each step."""
        core = self._core
        core.ring.check()
        self._recovering.check()
        assert (core.forming is not None) == (core.state in (State.COMMIT, State.RECOVERY))
        assert core.state is State.STOPPED or core.timers.deadline() < NEVER, "something always happens next"
        if core.forming is not None:
            core.forming.store.check()
            assert core.forming.id.seq > core.ring.id.seq
