"""The doors of an engine, whichever it is (design 4). `stack.engines` alone knows which engines there are.

No I/O, no clock, no randomness. Everything that happens enters through a door with the time as an argument; everything
that must be done leaves through `take_outputs` in the order in which it is to be carried out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Protocol

from transis.lansis.packets import Alive
from transis.totem.packets import Token
from transis.types.config import Config
from transis.types.ids import NodeId, ViewId
from transis.types.outputs import Lane, OutboundRun, Output
from transis.wire.burst import Burst
from transis.wire.control import ControlPacket

Packet = Burst | Token | Alive | ControlPacket
"""What the wire room has checked; an engine passes over the kinds that are not its own."""


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
