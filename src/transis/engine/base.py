"""The Engine contract, and EngineBase: submit, open, start, leave, stop, wake, dispatch, timer rule.

The doors of an engine, whichever it is (design 4). `stack.engines` alone knows which engines there are.

No I/O, no clock, no randomness. Everything that happens enters through a door with the time as an argument; everything
that must be done leaves through `take_outputs` in the order in which it is to be carried out.

Table-driven engines: a table says which handler runs for an event in a state, and organs have the handlers.

Rule 1: whatever decides which handler runs lives in the engine's table and nowhere else.
Rule 2: a missing pair is an error by construction; a pair that does nothing says IGNORED.

What the engines have alike of the engine contract (engine/base.py): doors that only turn to the core, and the way from an
event to the handler that the engine's table names for it in its state.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, Final, Generic, Protocol, TypeVar

from transis.engine.core import BaseCore
from transis.types.config import Config
from transis.types.ids import NodeId, ViewId
from transis.types.outputs import Lane, OutboundRun, Output
from transis.wire.burst import Burst
from transis.wire.control import ControlPacket, SignedIntroduction
from transis.wire.envelope import WIRE_VERSION, WIRE_VERSION_MIN

# --- engine -----------------------------------------------------------------------------------------------------------

Packet = Burst | ControlPacket
"""What was checked on its way in; an engine passes over the kinds that are not its own."""


class Engine(Protocol):
    def prepare(self, now: int) -> None:
        """The node still asks for its name: whatever needs the disk may begin."""

    def start(self, now: int) -> None:
        """Install the view of this node alone and make it known."""

    def receive(self, now: int, packets: Sequence[Packet]) -> None:
        """Packets that the wire room has checked. Never fires a timer."""

    def submit(self, now: int, lane: Lane, run: OutboundRun, bound_to: ViewId | None = None) -> int:
        """Queue messages; how many were taken. None after a stop, and none of the application after a leave: what it said
        before may wait for an exchange that the stack has to end first."""

    def open(self, now: int, lane: Lane) -> None:
        """The stack has nothing to exchange in this view (any more): application messages may flow."""

    def hold(self, lane: Lane) -> None: ...

    def wake(self, now: int) -> None:
        """Fire what is due."""

    def deadline(self) -> int:
        """When `wake` wants to be called next."""

    def persisted(self, now: int, ticket: int) -> None:
        """What `Persist(ticket, ...)` asked for is durable."""

    def leave(self, now: int) -> None:
        """Say goodbye, then stop."""

    def stop(self, now: int, why: str) -> None:
        """Stop at once, without goodbye: this identity may not go on (C4)."""

    def observe(self, timestamp: int) -> None: ...

    def take_outputs(self) -> list[Output]: ...

    def address_of(self, node: NodeId) -> str: ...

    @property
    def state(self) -> Enum:
        """Its value is the name by which traces, faults and coverage know it."""

    @property
    def coverage(self) -> dict[tuple[str, str], int]:
        """How often each event came in each state."""

    def statistics(self) -> dict[str, int]:
        """Figures for an operator."""

    def check(self) -> None:
        """Assert every invariant; the simulator calls it after each step."""


EngineFactory = Callable[[Config, NodeId, int], Engine]
"""Who it is, and the highest view sequence that this node's earlier lives made durable."""


# --- table ------------------------------------------------------------------------------------------------------------

S = TypeVar("S", bound=Enum)
E = TypeVar("E", bound=Enum)

Handler = Callable[..., None]

IGNORED: Final = ""


def bind(table: Mapping[S, Mapping[E, str]], organs: Sequence[object]) -> dict[S, dict[E, Handler | None]]:
    """Resolve the handler names of the table to the methods of the organs; None where an event is ignored."""
    return {
        state: {event: None if name == IGNORED else _find(organs, name) for event, name in events.items()}
        for state, events in table.items()
    }


def _find(organs: Sequence[object], name: str) -> Handler:
    for organ in organs:
        if hasattr(organ, name):
            handler: Handler = getattr(organ, name)
            return handler
    raise AssertionError(f"no organ has the handler {name}")


# --- doors ------------------------------------------------------------------------------------------------------------

C = TypeVar("C", bound=BaseCore[Any, Any])


class Doors(ABC, Generic[C]):
    """`C` is the engine's core."""

    def __init__(self, core: C, table: Mapping[Any, Mapping[Any, str]], organs: Sequence[object]) -> None:
        self._core = core
        self._handlers = bind(table, organs)

    # --- doors ------------------------------------------------------------------------------------------------------

    def receive(self, now: int, packets: Sequence[Packet]) -> None:
        """Packets that the wire room has checked. Never fires a timer."""
        self._core.now = now
        for packet in packets:
            self._dispatch(packet)
        self._end_turn()

    def wake(self, now: int) -> None:
        """Fire what is due. A timer that accuses others but fires late is believed only after one more try."""
        core = self._core
        core.now = now
        while (due := core.timers.take_due(now)) is not None:
            event, at = due
            if not self._was_away(event, now - at):
                self._handle(event)
        self._end_turn()

    def hold(self, lane: Lane) -> None:
        self._core.outbox.hold(lane)

    def deadline(self) -> int:
        return self._core.timers.deadline()

    def observe(self, timestamp: int) -> None:
        self._core.observe(timestamp)

    def take_outputs(self) -> list[Output]:
        outputs, self._core.out = self._core.out, []
        return outputs

    def address_of(self, node: NodeId) -> str:
        return self._core.addresses.get(node, "")

    # --- from an event to its handler -------------------------------------------------------------------------------

    @abstractmethod
    def _dispatch(self, packet: Packet) -> None:
        """Find the event that a packet is here."""

    @abstractmethod
    def _was_away(self, event: Any, late_us: int) -> bool:
        """Did this node miss the moment itself? Then a timer that accuses others gets one second chance, and no third."""

    @abstractmethod
    def _end_turn(self) -> None:
        """Everything that came at once has been handled."""

    def _is_admitted(self, packet: SignedIntroduction) -> bool:
        """Whoever introduces itself is met, unless it is this node, or cannot read our datagrams: that is refused loudly."""
        core = self._core
        if packet.sender == core.me:
            return False
        if why := self._why_refused(packet):
            core.note("refused", node=str(packet.sender), why=why)
            return False
        core.meet(packet.sender, packet.address)
        return True

    def _why_refused(self, packet: SignedIntroduction) -> str:
        """What its operator has to change; nothing if it may be a member. Its digest does not say which setting is another."""
        low, high = packet.versions
        if not low <= WIRE_VERSION or not high >= WIRE_VERSION_MIN:
            return (
                f"it speaks wire version {low} to {high} and this node {WIRE_VERSION}; install one version of transis everywhere"
            )
        if packet.digest != self._core.digest:
            here = ", ".join(f"{name} {value}" for name, value in self._core.config.shared().items())
            return f"its engine, order, mode or datagram is not that of this node ({here}); make them equal on all nodes"
        return ""

    def _handle(self, event: Any, *arguments: Any) -> None:
        state = self._core.state
        self._core.coverage[state.value, event.value] += 1
        handler = self._handlers[state][event]
        if handler is not None:
            handler(*arguments)

    # --- looking in -------------------------------------------------------------------------------------------------

    @property
    def state(self) -> Enum:
        state: Enum = self._core.state
        return state

    @property
    def coverage(self) -> dict[tuple[str, str], int]:
        return dict(self._core.coverage)
