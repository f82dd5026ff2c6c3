"""The engine of Lansis: its parts, which of them handles which event, and the way from a packet to its event.

    operational  the installed view at work              membership   who is in the next view
    receiving    from a packet to the DAG                flush        holding all that it needs, then installing it
    sending      from the Outbox to a burst              presence     how views find each other
    repair       what is missing, here and elsewhere     detector     who is silent or lags
    alive        "I am alive"


and in mode `transis` only: transis_mode, sends that do not wait for the next view, JOIN and FA as nodes of the DAG.

Nothing here needs the disk: a view's representative has flushed it and remembers that for its life, and its incarnation is
durable already, so a view's id is never used twice (W14).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

from transis.engine.base import IGNORED, EngineBase, Handler, Handlers, Packet, ignored
from transis.engine.core import Health
from transis.engine.presence import Quarantine
from transis.lansis.alive import Heartbeat
from transis.lansis.delivery import DagDelivery
from transis.lansis.detector import Detector
from transis.lansis.flush import Flush, Installation
from transis.lansis.membership import MembershipChange
from transis.lansis.operational import OperationalView
from transis.lansis.packets import Alive, Attempt, BurstMark, Faults, Flushed, Joining, Query, mark_of
from transis.lansis.presence import ViewPresence
from transis.lansis.receiving import Receiver
from transis.lansis.repair import Repair
from transis.lansis.sending import BurstSender
from transis.lansis.statements import MembershipSets, Proposal
from transis.lansis.states import AGREEING, Event, State, Trap
from transis.lansis.transis_mode import ControlNodes, FlowThrough, Steps
from transis.lansis.view import Frozen, LansisCore, ViewState
from transis.types.config import Config
from transis.types.ids import NodeId, RingId, RingTag
from transis.types.views import Cause, Member, View
from transis.wire.burst import Burst
from transis.wire.control import Beacon
from transis.wire.envelope import transmitter_tag


@dataclass(slots=True, init=False)
class LansisParts:
    """The parts of this engine. Each is built from earlier ones; a part reaches later ones through this record."""

    core: LansisCore
    quarantine: Quarantine
    delivery: DagDelivery
    repair: Repair
    heartbeat: Heartbeat
    receiver: Receiver
    sending: BurstSender
    operational: OperationalView
    membership: MembershipChange
    detector: Detector
    installation: Installation
    flush: Flush
    presence: ViewPresence
    flow: FlowThrough | None
    control: ControlNodes | None
    steps: Steps | None
    """Like `flow` and `control` only in mode `transis`."""

    def __init__(self, config: Config, me: NodeId, view_seq: int) -> None:
        self.core = core = LansisCore(config, me, view_seq)
        health = Health()
        self.quarantine = Quarantine(config.timing)
        self.delivery = DagDelivery(core)
        self.repair = Repair(core)
        self.heartbeat = Heartbeat(core, self.repair)
        self.receiver = Receiver(core, self.delivery, self.repair, self.heartbeat, self)
        self.sending = BurstSender(core, self.receiver, self.repair, self.heartbeat, self)
        self.operational = OperationalView(core, self.receiver, self.sending, self.delivery, self.repair)
        self.membership = MembershipChange(core, self.delivery, self.heartbeat, health, self)
        self.detector = Detector(core, self.membership, health)
        self.installation = Installation(self)
        self.flush = Flush(self)
        self.presence = ViewPresence(core, self.membership, self.quarantine)
        self.flow = FlowThrough(core, self.membership) if core.flows else None
        self.control = ControlNodes(core, self.membership, self.receiver) if core.flows else None
        self.steps = self._steps_of(self.flow, self.control)

    def _steps_of(self, flow: FlowThrough | None, control: ControlNodes | None) -> Steps | None:
        if flow is None or control is None:
            return None
        return Steps(self.core, self.membership, self.delivery, self.sending, flow, control)


_OPERATIONAL: Final[dict[Event, Handler | None]] = {
    Event.DATA: OperationalView.data_in_view,
    Event.ALIVE: OperationalView.alive_in_view,
    Event.AJ: ViewPresence.attempt_in_operational,
    Event.JOIN: ViewPresence.statement_in_operational,
    Event.FA: ViewPresence.statement_in_operational,
    Event.FLUSHED: Flush.flushed_in_view,
    Event.BEACON: ViewPresence.beacon_in_operational,
    Event.QUERY: Detector.query,
    Event.SEND_DUE: OperationalView.send_due,
    Event.ALIVE_DUE: Heartbeat.alive_due,
    Event.NACK_DUE: Heartbeat.nack_due,
    Event.ANSWER_DUE: Repair.answer_due,
    Event.WATCH: Detector.watch,
    Event.BEACON_SEND: ViewPresence.send_beacon,
    Event.LEAVE: MembershipChange.leave_now,
    **ignored(Event.FOREIGN_DATA, Event.ALPHA, Event.STATEMENT_SEND, Event.STATEMENT_REPEAT),
    **ignored(Event.AGREE, Event.FLUSH_REPEAT, Event.FLUSH_LATE),
}

_STAGE_1: Final[dict[Event, Handler | None]] = _OPERATIONAL | {
    Event.AJ: MembershipChange.attempt_in_stage_1,
    Event.JOIN: MembershipChange.statement_in_stage_1,
    Event.FA: MembershipChange.statement_in_stage_1,
    Event.BEACON: ViewPresence.beacon_of_member,
    Event.ALPHA: MembershipChange.alpha,
    Event.STATEMENT_REPEAT: MembershipChange.repeat_attempt,
}

_STAGE_2: Final[dict[Event, Handler | None]] = {
    Event.DATA: OperationalView.data_while_frozen,
    Event.ALIVE: OperationalView.alive_while_frozen,
    Event.JOIN: MembershipChange.statement_while_agreeing,
    Event.FA: MembershipChange.statement_while_agreeing,
    Event.FLUSHED: Flush.flushed_while_agreeing,
    Event.BEACON: ViewPresence.beacon_of_member,
    Event.QUERY: Detector.query,
    Event.ALIVE_DUE: Heartbeat.alive_due,
    Event.NACK_DUE: Heartbeat.nack_due,
    Event.ANSWER_DUE: Repair.answer_due,
    Event.STATEMENT_SEND: MembershipChange.send_statement,
    Event.STATEMENT_REPEAT: MembershipChange.repeat_statement,
    Event.AGREE: MembershipChange.agree_expired,
    Event.LEAVE: MembershipChange.leave_now,
    **ignored(Event.FOREIGN_DATA, Event.AJ, Event.SEND_DUE, Event.WATCH, Event.ALPHA),
    **ignored(Event.FLUSH_REPEAT, Event.FLUSH_LATE, Event.BEACON_SEND),
}

_FLUSH: Final[dict[Event, Handler | None]] = _STAGE_2 | {
    Event.DATA: Flush.data_in_flush,
    Event.ALIVE: Flush.alive_in_flush,
    Event.AGREE: IGNORED,
    Event.FLUSH_REPEAT: Flush.repeat_flushed,
    Event.FLUSH_LATE: Flush.flush_late,
}

HANDLERS: Final[Handlers[State, Event]] = {
    State.OPERATIONAL: _OPERATIONAL,
    State.STAGE_1: _STAGE_1,
    State.STAGE_2: _STAGE_2,
    State.FAULTS: _STAGE_2,
    State.FLUSH: _FLUSH,
    State.STOPPED: ignored(*Event),
}
"""What membership-1992 figures 3 to 7 do with each event in each state. Faults and Stage 2 run the same code:
in Faults everybody comes from my view, in Stage 2 strangers join."""

STATEMENTS: Final = {Attempt: Event.AJ, Joining: Event.JOIN, Faults: Event.FA}


@dataclass(frozen=True, slots=True)
class LansisInspection:
    """What tests look at and no output shows. Read only: these are the engine's own objects, as they are now."""

    view: ViewState
    frozen: Frozen | None
    digest: bytes
    cause: Cause
    sets: MembershipSets
    heard_at: Mapping[NodeId, int]
    """When each member last said anything about this change."""
    assented: Proposal | None
    flushed: Proposal | None
    promises: int
    """The number of members of which a FLUSHED is remembered."""


class LansisEngine(EngineBase[LansisCore]):
    packets: ClassVar = (Alive, Attempt, Joining, Faults, Flushed, Query)
    accuses: ClassVar = frozenset({Event.WATCH, Event.AGREE, Event.FLUSH_LATE})

    def __init__(self, config: Config, me: NodeId, view_seq: int) -> None:
        self._parts = parts = LansisParts(config, me, view_seq)
        self._flow, self._control, self._steps = parts.flow, parts.control, parts.steps
        handling = (
            parts.operational, parts.membership, parts.flush, parts.presence, parts.detector, parts.heartbeat, parts.repair,
        )  # fmt: skip
        super().__init__(parts.core, HANDLERS, handling)

    # --- what is Lansis's own ---------------------------------------------------------------------------------------

    def _first_view(self) -> View:
        core, view = self._core, self._core.view
        member = Member(core.me, core.config.address, None, core.config.info)
        return View(view.view_id, view.view_id, (member,), Cause("start"), view.base, core.config.guarantees)

    def _queued(self) -> None:
        if self._core.state in AGREEING:
            self._core.trap(Trap.QUEUED)

    def _work(self) -> None:
        self._parts.operational.submitted()
        if self._flow is not None:
            self._flow.flow()

    def _begin_to_leave(self) -> None:
        self._try_to_leave()

    def _end_turn(self) -> None:
        if self._flow is not None and self._steps is not None:
            self._flow.flow()
            self._steps.step()
        if self._core.is_leaving:
            self._try_to_leave()

    def _try_to_leave(self) -> None:
        """Leave as soon as nothing of mine is on its way any more."""
        if self._core.may_send and not self._parts.operational.is_on_its_way():
            self._parts.membership.leave_now()

    def _fired_late(self, late_us: int) -> bool:
        return self._parts.detector.fired_late(late_us)

    @property
    def _retry_us(self) -> int:
        return self._core.config.pulse.probe_us

    def _forgive(self) -> None:
        self._parts.detector.forgive()

    # --- from a packet to its handler -------------------------------------------------------------------------------

    def _may_say(self, by: bytes, packet: Packet) -> bool:
        """Members repeat each other's data, but each says for itself what it has."""
        if isinstance(packet, Alive):
            speakers = self._speakers_of(packet.tag)
            return speakers is None or speakers.get(by) == packet.sender
        if not isinstance(packet, Burst):
            return True
        if self._flow is not None and mark_of(packet.header) is BurstMark.FLOW:
            return self._flow.is_by_its_sender(by, packet)
        speakers = self._speakers_of(packet.ring)
        return speakers is None or by in speakers

    def _speakers_of(self, tag: RingTag) -> Mapping[bytes, int] | None:
        """The ranks of the members of the view with this tag: mine, or the one that I promised to install."""
        view = self._core.view
        if tag == view.tag:
            return view.speakers
        promised = self._parts.membership.barrier.hearsay(tag)
        return None if promised is None else {transmitter_tag(node): rank for rank, node in enumerate(promised.members)}

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
        """In mode `transis` bursts carry more than data of a view (marks: packets.py)."""
        if self._flow is None or self._control is None:
            self._on_data(burst)
        elif not self._flow.is_flow(burst):
            self._control.noticed(burst)
            self._on_data(burst)
            rest = self._flow.rest_of(burst)
            if rest is not None:
                self._on_data(rest)
            for said in self._control.take_heard():
                self._handle(STATEMENTS[type(said)], said)

    def _on_data(self, burst: Burst) -> None:
        core = self._core
        if burst.ring != core.view.tag:
            self._parts.flush.hearsay(burst.ring)
        if burst.ring != core.view.tag:
            self._handle(Event.FOREIGN_DATA, burst)
        elif burst.sender < len(core.view) and not burst.encapsulated:
            self._handle(Event.DATA, burst)

    def _on_alive(self, alive: Alive) -> None:
        core = self._core
        if alive.tag != core.view.tag:
            self._parts.flush.hearsay(alive.tag)
        if alive.tag == core.view.tag and len(alive.recv) == len(core.view):
            self._handle(Event.ALIVE, alive)

    def _on_hello(self, event: Event, packet: Attempt | Joining | Faults | Beacon) -> None:
        """Statements and Beacons introduce their senders."""
        if self._is_admitted(packet) and not self._is_said_in_the_dag(packet):
            self._handle(event, packet)

    def _is_said_in_the_dag(self, packet: Attempt | Joining | Faults | Beacon) -> bool:
        return self._control is not None and isinstance(packet, Joining | Faults) and self._control.is_in_the_dag(packet)

    # --- looking in -------------------------------------------------------------------------------------------------

    @property
    def ring_id(self) -> RingId:
        """The id of the view in use, under the same name as in the ring's engine."""
        return self._core.view.id

    def statistics(self) -> dict[str, int]:
        core, parts = self._core, self._parts
        figures = {
            "view_members": len(core.view),
            "outbox_bytes": core.outbox.queued(),
            "statements_sent": parts.membership.statements_sent,
        }
        own = (parts.sending, parts.receiver, parts.heartbeat, parts.repair, parts.delivery, parts.detector, parts.flush)
        for part in own:
            figures |= part.statistics()
        return figures if parts.flow is None else figures | parts.flow.statistics()

    def inspect(self) -> LansisInspection:
        core, membership = self._core, self._parts.membership
        barrier = membership.barrier
        return LansisInspection(
            core.view, core.frozen, core.digest, core.cause, membership.sets, membership.heard_at,
            barrier.assented, barrier.flushed, barrier.promises,
        )  # fmt: skip

    def check(self) -> None:
        super().check()
        core = self._core
        core.view.check()
        self._parts.delivery.check()
        if core.state is not State.STOPPED:
            self._parts.flush.check()
            assert (core.frozen is not None) == (core.state in AGREEING)
