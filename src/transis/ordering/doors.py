"""What the engines have alike of the engine contract (ordering/engine.py): doors that only turn to the core, and the way from an
event to the handler that the engine's table names for it in its state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Generic, TypeVar

from transis.lansis.packets import Statement
from transis.ordering.core import BaseCore
from transis.ordering.engine import Packet
from transis.ordering.table import bind
from transis.totem.packets import Join
from transis.types.ids import NodeId
from transis.types.outputs import Lane, Output
from transis.wire.control import Beacon
from transis.wire.envelope import WIRE_VERSION, WIRE_VERSION_MIN

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

    def _is_admitted(self, packet: Join | Statement | Beacon) -> bool:
        """Whoever introduces itself is met, unless it is this node, or cannot read our datagrams: that is refused loudly."""
        core = self._core
        if packet.sender == core.me:
            return False
        if why := self._why_refused(packet):
            core.note("refused", node=str(packet.sender), why=why)
            return False
        core.meet(packet.sender, packet.address)
        return True

    def _why_refused(self, packet: Join | Statement | Beacon) -> str:
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
