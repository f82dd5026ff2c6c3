"""What the organs of any engine share: identity, state, time, outputs, timers, acquaintances and the Outbox."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from typing import Generic, TypeVar

from transis.ordering.numbers import TIMESTAMP_TAKEN_MAX
from transis.ordering.timers import Timers
from transis.types.config import Config
from transis.types.errors import InternalError
from transis.types.ids import NodeId
from transis.types.limits import PROC_SET_MAX
from transis.types.outputs import Audience, Note, Output, Port, Refused, Room, RunIds, Send
from transis.types.views import Cause
from transis.wire.burst import body_max
from transis.wire.control import ControlPacket, config_digest, encode_control, split
from transis.wire.envelope import ENVELOPE_SIZE, SEAL_SIZE
from transis.wire.outbox import Outbox

S = TypeVar("S", bound=Enum)
E = TypeVar("E", bound=Enum)


class BaseCore(Generic[S, E]):
    """`S` is the enumeration of the engine's states, `E` that of its events, some of which are timers."""

    def __init__(self, config: Config, me: NodeId, state: S, transitions: Mapping[S, Collection[S]], events: type[E]) -> None:
        self.config = config
        self.me = me
        self.state = state
        self._transitions = transitions
        self.now = 0
        self.out: list[Output] = []
        self.timers = Timers(events)
        self.outbox = Outbox(body_max(config.datagram), config.window.outbox_bytes)
        self.digest = config_digest(config.digest_fields())
        self.coverage: Counter[tuple[str, str]] = Counter()
        self.clock = 0
        self.cause = Cause("start")
        self.heard_at: dict[NodeId, int] = {}
        self.addresses: dict[NodeId, str] = {me: config.address}
        self._packet_id = 0

    def shift(self, state: S, why: str) -> None:
        """Change the state, if the engine's table of transitions allows it."""
        if state not in self._transitions[self.state]:
            raise InternalError(f"{self.me}: {self.state.value} -> {state.value} on {why} is not a transition of the protocol")
        self.note("state", **{"from": self.state.value, "to": state.value, "event": why})
        self.state = state

    def emit(self, output: Output) -> None:
        self.out.append(output)

    def note(self, what: str, **detail: str | int) -> None:
        self.out.append(Note(what, tuple(detail.items())))

    def trap(self, trap: Enum) -> None:
        """One of the engine's Trap enumeration was met; its value is the text that coverage counts."""
        self.out.append(Note("trap", (("number", trap.value),)))

    def tick(self) -> int:
        """Advance the Lamport clock for something originated here."""
        self.clock += 1
        return self.clock

    def observe(self, timestamp: int) -> None:
        """Whatever a peer claims, the clock stays where everybody still reads it."""
        self.clock = max(self.clock, min(timestamp, TIMESTAMP_TAKEN_MAX))

    def arm(self, event: E, after_us: int) -> None:
        self.timers.arm(event, self.now + after_us)

    def packet(self, packet: ControlPacket) -> list[bytes]:
        """Encode a control packet, in parts if it is large. Who sends it again sends these very bytes (D25)."""
        return self.in_parts(encode_control(packet))

    def in_parts(self, encoded: bytes) -> list[bytes]:
        """What fits no datagram travels in several; each packet has a number of its own by which they are put together."""
        self._packet_id += 1
        return split(self._packet_id, encoded, self.config.datagram - ENVELOPE_SIZE - SEAL_SIZE)

    def broadcast(self, packet: ControlPacket) -> None:
        self.emit(Send(Audience.WORLD, Port.CONTROL, self.packet(packet)))

    def meet(self, node: NodeId, address: str) -> None:
        """Somebody introduced itself. A crowd larger than one change of membership can name is not remembered."""
        if node in self.addresses or len(self.addresses) < PROC_SET_MAX:
            self.heard_at[node] = self.now
            self.addresses[node] = address

    def forget_strangers(self, members: Iterable[NodeId]) -> None:
        """After an installation only the members' addresses matter; others introduce themselves again.

        Hearing starts afresh too: who was heard before the change may be out of reach by it.
        """
        self.heard_at.clear()
        self.addresses = {node: self.addresses.get(node, "") for node in members}

    def refuse(self, dropped: Iterable[RunIds], why: str) -> None:
        for ids in dropped:
            self.emit(Refused(ids, why))
        self.announce_room()

    def announce_room(self) -> None:
        """Tell who was cut short that its lane takes messages again."""
        for lane in self.outbox.take_room():
            self.emit(Room(lane))
