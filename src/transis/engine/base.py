"""The contract of an engine, and what both engines have in common.

An engine orders bursts and agrees on views. It does no I/O and reads no clock: everything that happens enters through a method,
with the time as an argument, and everything that has to be done leaves through `take_outputs`, in the order in which it is to be
carried out.

1. A table says which handler runs for an event in a state. Nothing else decides that.
2. A handler is a method of one of the engine's parts. The table names it, and the engine binds it to the part that it has.
3. Every pair of state and event is in the table; one that does nothing says IGNORED. A missing pair is refused at construction.
4. What travels on the control lane is in one order with all messages but basic ones: a causal one comes before it at all members
   that go on together, or behind it at all. On the ring everything is in one order; Lansis has fences (lansis/orders.py).
5. A timer that accuses others, but fires late, is believed only after one more try: this node itself may have been away (D29).
6. What concerns a view is believed only if a member of it sent it, and what names its sender only if that member did. To have the
   cluster's key is not enough: the envelope proves which node a datagram comes from, and a view proves who its members are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, ClassVar, Final, Generic, TypeVar

from transis.engine.core import BaseCore
from transis.types.errors import InternalError, Rejection
from transis.types.ids import NodeId, ViewId
from transis.types.outputs import NEVER, Configure, Lane, OutboundRun, Output
from transis.types.views import View
from transis.wire.burst import Burst
from transis.wire.control import ControlPacket, SignedIntroduction
from transis.wire.envelope import WIRE_VERSION, WIRE_VERSION_MIN

Packet = Burst | ControlPacket
"""A packet that was checked on its way in. An engine ignores the kinds that are not its own."""

# --- handlers ---------------------------------------------------------------------------------------------------------

S = TypeVar("S", bound=Enum)
E = TypeVar("E", bound=Enum)

Handler = Callable[..., None]
IGNORED: Final = None
"""The entry of a pair of state and event that does nothing."""
Handlers = Mapping[S, Mapping[E, Handler | None]]


def ignored(*events: E) -> dict[E, Handler | None]:
    """Entries for events that do nothing in a state."""
    return dict.fromkeys(events, IGNORED)


def bind(handlers: Handlers[S, E], states: type[S], events: type[E], parts: Sequence[object]) -> dict[S, dict[E, Handler | None]]:
    """Bind each handler to the part whose method it is."""
    missing = [f"{state.value} x {event.value}" for state in states for event in events if event not in handlers.get(state, ())]
    if missing:
        raise InternalError(f"no handler is named for {', '.join(missing)}")
    return {
        state: {event: handler and _bound(handler, parts) for event, handler in entries.items()}
        for state, entries in handlers.items()
    }


def _bound(handler: Handler, parts: Sequence[object]) -> Handler:
    for part in parts:
        if getattr(type(part), handler.__name__, None) is handler:
            method: Handler = getattr(part, handler.__name__)
            return method
    raise InternalError(f"no part of the engine has the handler {handler.__qualname__}")


# --- engine -----------------------------------------------------------------------------------------------------------

C = TypeVar("C", bound=BaseCore[Any, Any])


class EngineBase(ABC, Generic[C]):
    """`C` is the engine's core: what its parts share."""

    packets: ClassVar[tuple[type[ControlPacket], ...]]
    """The kinds of packets that only this engine sends. Data, Beacons and questions about names are common to both."""
    accuses: ClassVar[frozenset[Any]]
    """Timers that accuse other members."""

    def __init__(self, core: C, handlers: Handlers[Any, Any], parts: Sequence[object]) -> None:
        self._core = core
        self._coverage: Counter[tuple[Enum, Enum]] = Counter()
        self._handlers = bind(handlers, type(core.state), core.events, parts)

    # --- from the node ----------------------------------------------------------------------------------------------

    def prepare(self, now: int) -> None:
        """The node is still asking whether its name is free: whatever needs the disk may begin."""
        self._core.now = now

    def start(self, now: int) -> None:
        """Install the view of this node alone and make it known."""
        core = self._core
        core.now = now
        core.outbox.hold(Lane.APPLICATION)
        core.emit(Configure(self._first_view()))
        core.arm(core.beacon_due, 0)
        self._begin()

    def submit(self, now: int, lane: Lane, run: OutboundRun, bound_to: ViewId | None = None) -> int:
        """Queue messages; return how many were taken: none after a stop, and after a leave none on the application's lane. The
        control lane stays open, because what was sent before may wait for an exchange that the groups have to finish first."""
        core = self._core
        core.now = now
        if core.state is core.stopped or (core.is_leaving and lane is Lane.APPLICATION):
            return 0
        taken = core.outbox.submit(lane, run, bound_to)
        self._queued()
        self._work()
        return taken

    def open(self, now: int, lane: Lane) -> None:
        """The groups' exchange in this view is over: the lane's messages may flow."""
        self._core.now = now
        self._core.outbox.open(lane)
        self._work()

    def withdraw(self, now: int, why: str) -> None:
        """This view is not primary: what was to be sent only in one that is will not be sent."""
        self._core.now = now
        if dropped := self._core.outbox.drop_for_primary():
            self._core.refuse(dropped, why)

    def hold(self, lane: Lane) -> None:
        self._core.outbox.hold(lane)

    def receive(self, now: int, packets: Sequence[Packet], by: Sequence[bytes] = ()) -> None:
        """Packets that the wire room has checked, and for each the tag of the node that sent it; without tags, the caller vouches
        for them. Never fires a timer."""
        self._core.now = now
        for place, packet in enumerate(packets):
            if not by or self._may_say(by[place], packet):
                self._dispatch(packet)
            else:
                self._core.reject(Rejection("speaker", f"a {type(packet).__name__} of a node that may not say it, with the key"))
        self._end_turn()

    def wake(self, now: int) -> None:
        """Fire what is due."""
        core = self._core
        core.now = now
        while (due := core.timers.take_due(now)) is not None:
            event, at = due
            if event not in self.accuses or self._may_believe(event, now - at):
                self._handle(event)
        self._end_turn()

    def deadline(self) -> int:
        """When `wake` must be called next."""
        return self._core.timers.deadline()

    def persisted(self, now: int, ticket: int) -> None:
        """What `Persist(ticket, ...)` asked for is durable."""
        self._core.now = now

    def leave(self, now: int) -> None:
        """Take nothing new from the application; once what was taken is sent and safe, say goodbye and stop (W16)."""
        core = self._core
        core.now = now
        if core.state is not core.stopped and not core.is_leaving:
            core.is_leaving = True
            core.arm(core.leave_due, core.config.timing.leave_us)
            self._begin_to_leave()

    def stop(self, now: int, why: str) -> None:
        """Stop at once, without goodbye: this identity may not go on (C4)."""
        self._core.now = now
        self._core.stop(why)

    def observe(self, timestamp: int) -> None:
        self._core.observe(timestamp)

    def take_outputs(self) -> list[Output]:
        outputs, self._core.out = self._core.out, []
        return outputs

    def address_of(self, node: NodeId) -> str:
        return self._core.addresses.get(node, "")

    # --- looking in -------------------------------------------------------------------------------------------------

    @property
    def state(self) -> Enum:
        """The state; its value is its name in traces, faults and coverage."""
        state: Enum = self._core.state
        return state

    @property
    def coverage(self) -> dict[tuple[str, str], int]:
        """How often each event occurred in each state."""
        return {(state.value, event.value): count for (state, event), count in self._coverage.items()}

    @property
    def rejections(self) -> Counter[str]:
        return self._core.rejections

    @abstractmethod
    def statistics(self) -> dict[str, int]:
        """Figures for an operator."""

    def check(self) -> None:
        """Assert every invariant; the simulator calls it after each step."""
        core = self._core
        assert core.state is core.stopped or core.timers.deadline() < NEVER, "something always happens next"

    # --- what an engine adds ----------------------------------------------------------------------------------------

    @abstractmethod
    def _first_view(self) -> View:
        """The view of this node alone, with which every life begins."""

    def _begin(self) -> None:
        """Start what runs by itself from the start on, besides the beacons."""

    @abstractmethod
    def _queued(self) -> None:
        """Messages were submitted: note the trap if no view is in force."""

    @abstractmethod
    def _work(self) -> None:
        """There may be something to send."""

    @abstractmethod
    def _begin_to_leave(self) -> None:
        """Hurry what has to be sent before the goodbye."""

    @abstractmethod
    def _may_say(self, by: bytes, packet: Packet) -> bool:
        """Does this packet come from a node that may send it? `by` is its transmitter's tag. The intake has looked at packets
        that introduce their senders; what belongs to no view that this node knows is ignored anyway."""

    @abstractmethod
    def _dispatch(self, packet: Packet) -> None:
        """Find the event that a packet stands for, and handle it."""

    def _end_turn(self) -> None:
        """All packets or timers of one call have been handled."""

    @abstractmethod
    def _fired_late(self, late_us: int) -> bool:
        """Does the lateness of this timer show that this node itself was away?"""

    @property
    @abstractmethod
    def _retry_us(self) -> int:
        """How long an accusing timer that fired late waits before its second try."""

    def _forgive(self) -> None:
        """This node was away: nobody else was late."""

    # --- from an event to its handler -------------------------------------------------------------------------------

    def _handle(self, event: Any, *arguments: Any) -> None:
        state = self._core.state
        self._coverage[state, event] += 1
        handler = self._handlers[state][event]
        if handler is not None:
            handler(*arguments)

    def _may_believe(self, event: Any, late_us: int) -> bool:
        """An accusing timer that fired late, because this node was away, gets a second try but no third."""
        core = self._core
        if not self._fired_late(late_us):
            return True
        core.note("fired late", timer=event.value, late_us=late_us)
        if not core.timers.postpone(event, core.now + self._retry_us):
            return True
        self._forgive()
        return False

    # --- whom to meet -----------------------------------------------------------------------------------------------

    def _is_admitted(self, packet: SignedIntroduction) -> bool:
        """Meet a node that introduces itself, unless it is this one, or could not read our datagrams: a note then says why."""
        core = self._core
        if packet.sender == core.me:
            return False
        if why := self._why_refused(packet):
            core.note("refused", node=str(packet.sender), why=why)
            return False
        core.meet(packet.sender, packet.address)
        return True

    def _why_refused(self, packet: SignedIntroduction) -> str:
        """What the operator has to change; empty if the node may be a member. A digest does not tell which setting differs."""
        low, high = packet.versions
        if not low <= WIRE_VERSION or not high >= WIRE_VERSION_MIN:
            return (
                f"it speaks wire version {low} to {high} and this node {WIRE_VERSION}; install one version of transis everywhere"
            )
        if packet.digest != self._core.digest:
            here = ", ".join(f"{name} {value}" for name, value in self._core.config.shared().items())
            return f"its engine, order, mode or datagram is not that of this node ({here}); make them equal on all nodes"
        return ""


Engine = EngineBase[Any]
"""What a node runs: Totem or Lansis."""
