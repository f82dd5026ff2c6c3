"""The Lansis engine: the doors of the engine contract, and the way from a packet to its handler.

No I/O, no clock, no randomness, as every engine (engine/base.py). The organs:

    states      the table of states and events          agreeing    who is in the next view
    operational the installed view at work              flush       holding all that the next view needs
    receiving   from a packet to the DAG                install     from one view to the next
    sending     from the Outbox to a burst              presence    beacons, strangers while a view is healthy
    repair      what is missing, here and elsewhere     detector    who is silent or lags
    alive       "I am alive"                            leaving     the way out

and in the mode `transis` only:

    flowing     sends that do not wait for the view     control_nodes   JOIN and FA as nodes of the DAG

Nothing here needs the disk: the representative of a view has flushed it, remembers that within its life, and its incarnation is
durable already, so a view's id is never used twice (W14).
"""

from __future__ import annotations

from typing import ClassVar, Final

from transis.engine.base import Doors, Packet
from transis.engine.core import Health
from transis.engine.presence import Quarantine
from transis.lansis.alive import Heartbeat
from transis.lansis.delivery import Delivery
from transis.lansis.detector import Detector
from transis.lansis.flush import Flush, Installing
from transis.lansis.membership import Agreeing
from transis.lansis.operational import Leaving, Operational
from transis.lansis.packets import Alive, Attempt, Faults, Flushed, Joining, Query
from transis.lansis.presence import Presence
from transis.lansis.receiving import Receiving
from transis.lansis.repair import Repair
from transis.lansis.sending import Sending
from transis.lansis.states import AGREEING, TABLE, Event, State, Trap
from transis.lansis.transis_mode import ControlNodes, Flowing
from transis.lansis.view import Core
from transis.types.config import Config
from transis.types.ids import NodeId, RingId, ViewId
from transis.types.outputs import NEVER, Configure, Lane, OutboundRun
from transis.types.views import Cause, Member, View
from transis.wire.burst import Burst
from transis.wire.control import Beacon

TIMERS_OF_OTHERS: Final = (Event.WATCH, Event.AGREE, Event.FLUSH_LATE)
"""Timers that accuse somebody else: when they fire late, it was this node that was away."""
STATEMENTS: Final = {Attempt: Event.AJ, Joining: Event.JOIN, Faults: Event.FA}


class Engine(Doors[Core]):
    packets: ClassVar = (Alive, Attempt, Joining, Faults, Flushed, Query)
    """Those that only this engine sends."""

    def __init__(self, config: Config, me: NodeId, view_seq: int) -> None:
        core = Core(config, me, view_seq)
        quarantine, health = Quarantine(config.timing), Health()
        self._delivery = delivery = Delivery(core)
        self._repair = repair = Repair(core)
        self._heartbeat = heartbeat = Heartbeat(core, repair)
        self._receiving = receiving = Receiving(core, delivery, repair, heartbeat)
        self._sending = sending = Sending(core, receiving, repair, heartbeat)
        self._operational = operational = Operational(core, receiving, sending, delivery, repair)
        self._agreeing = agreeing = Agreeing(core, delivery, heartbeat, health)
        self._detector = detector = Detector(core, agreeing, health)
        installing = Installing(core, agreeing, delivery, heartbeat, detector, quarantine)
        self._flush = flush = Flush(core, agreeing, operational, repair, installing)
        self._leaving = leaving = Leaving(core, agreeing)
        agreeing.assented = flush.enter
        installing.work = operational.submitted
        sending.renew = agreeing.renew
        presence = Presence(core, agreeing, quarantine)
        self._flowing = Flowing(core, agreeing) if core.flows else None
        self._control = ControlNodes(core, agreeing, receiving) if core.flows else None
        if self._flowing is not None and self._control is not None:
            agreeing.statement_out = self._control.statement_out
            receiving.is_control = self._control.is_control
            installing.keep_after_install = self._flowing.installed
        organs = (operational, agreeing, flush, presence, detector, heartbeat, repair, leaving)
        super().__init__(core, TABLE, organs)

    # --- doors ------------------------------------------------------------------------------------------------------

    def prepare(self, now: int) -> None:
        """Nothing is written ahead: this engine never waits for the disk."""
        self._core.now = now

    def start(self, now: int) -> None:
        """Install the view of this node alone and make it known."""
        core = self._core
        core.now = now
        view = core.view
        member = Member(core.me, core.config.address, None, core.config.info)
        core.outbox.hold(Lane.APPLICATION)
        cause, guarantees = Cause("start"), core.config.guarantees
        core.emit(Configure(View(view.view_id, view.view_id, (member,), cause, view.base, guarantees)))
        core.arm(Event.BEACON_SEND, 0)

    def submit(self, now: int, lane: Lane, run: OutboundRun, bound_to: ViewId | None = None) -> int:
        """Queue messages; how many were taken (engine/base.py says when none are)."""
        core = self._core
        core.now = now
        if core.state is State.STOPPED or (self._leaving.is_leaving and lane is Lane.APPLICATION):
            return 0
        taken = core.outbox.submit(lane, run, bound_to)
        if core.state in AGREEING:
            core.trap(Trap.QUEUED)
        self._operational.submitted()
        self._flow()
        return taken

    def open(self, now: int, lane: Lane) -> None:
        """The stack has nothing to exchange in this view (any more): application messages may flow."""
        self._core.now = now
        self._core.outbox.open(lane)
        self._operational.submitted()
        self._flow()

    def persisted(self, now: int, ticket: int) -> None:
        """Nothing is asked of the disk, so nothing is waited for."""
        self._core.now = now

    def leave(self, now: int) -> None:
        self._core.now = now
        self._leaving.leave()

    def stop(self, now: int, why: str) -> None:
        """Stop at once, without goodbye: this identity may not go on (C4)."""
        self._core.now = now
        self._leaving.stop(why)

    def _was_away(self, event: Event, late_us: int) -> bool:
        return event in TIMERS_OF_OTHERS and self._detector.was_away(event, late_us)

    def _end_turn(self) -> None:
        self._flow()
        self._leaving.look()

    def _flow(self) -> None:
        if self._flowing is not None:
            self._flowing.flow()

    # --- from a packet to its handler -------------------------------------------------------------------------------

    def _dispatch(self, packet: Packet) -> None:
        match packet:
            case Burst():
                self._on_burst(packet)
            case Alive():
                self._on_alive(packet)
            case Attempt() | Joining() | Faults():
                self._on_hello(STATEMENTS[type(packet)], packet)
            case Beacon():
                self._on_hello(Event.BEACON, packet)
            case Flushed():
                if packet.sender != self._core.me:
                    self._handle(Event.FLUSHED, packet)
            case Query():
                self._handle(Event.QUERY, packet)

    def _on_burst(self, burst: Burst) -> None:
        """In the mode `transis` there is more in bursts than data of a view (marks.py)."""
        if self._flowing is None or self._control is None:
            self._on_data(burst)
        elif not self._flowing.is_flow(burst):
            self._control.noticed(burst)
            self._on_data(burst)
            rest = self._flowing.rest_of(burst)
            if rest is not None:
                self._on_data(rest)
            for said in self._control.take_heard():
                self._handle(STATEMENTS[type(said)], said)

    def _on_data(self, burst: Burst) -> None:
        core = self._core
        if burst.ring != core.view.tag:
            self._flush.hearsay(burst.ring)
        if burst.ring != core.view.tag:
            self._handle(Event.FOREIGN_DATA, burst)
        elif burst.sender < len(core.view) and not burst.encapsulated:
            self._handle(Event.DATA, burst)

    def _on_alive(self, alive: Alive) -> None:
        core = self._core
        if alive.tag != core.view.tag:
            self._flush.hearsay(alive.tag)
        if alive.tag == core.view.tag and len(alive.recv) == len(core.view):
            self._handle(Event.ALIVE, alive)

    def _on_hello(self, event: Event, packet: Attempt | Joining | Faults | Beacon) -> None:
        """Statements and Beacons introduce their senders."""
        if self._is_admitted(packet) and not self._is_said_in_the_graph(packet):
            self._handle(event, packet)

    def _is_said_in_the_graph(self, packet: Attempt | Joining | Faults | Beacon) -> bool:
        return self._control is not None and isinstance(packet, Joining | Faults) and self._control.is_in_the_graph(packet)

    # --- looking in -------------------------------------------------------------------------------------------------

    @property
    def ring_id(self) -> RingId:
        """The view in use, by the name that the ring's engine has for it."""
        return self._core.view.id

    def statistics(self) -> dict[str, int]:
        """Figures for an operator: each organ has its own."""
        core = self._core
        figures = {
            "view_members": len(core.view),
            "outbox_bytes": core.outbox.queued(),
            "statements_sent": self._agreeing.statements_sent,
        }
        organs = (self._sending, self._receiving, self._heartbeat, self._repair, self._delivery, self._detector, self._flush)
        for organ in organs:
            figures |= organ.figures()
        return figures if self._flowing is None else figures | self._flowing.figures()

    def check(self) -> None:
        """Assert every invariant; the simulator calls it after each step."""
        core = self._core
        core.view.check()
        self._delivery.check()
        assert core.state is State.STOPPED or core.timers.deadline() < NEVER, "something always happens next"
        if core.state is not State.STOPPED:
            self._flush.check()
            assert (core.frozen is not None) == (core.state in AGREEING)
