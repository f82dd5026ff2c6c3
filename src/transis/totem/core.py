"""What the organs of the engine share: identity, time, outputs, timers, the installed ring and the one being formed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from transis.model.config import Config
from transis.model.contract import Audience, Note, Output, Persist, Port, Refused, Room, RunIds, Send
from transis.model.errors import InternalError
from transis.model.ids import NodeId, RingId
from transis.model.limits import PROC_SET_MAX
from transis.model.view import Cause
from transis.totem.pace import Pace
from transis.totem.ring import Ring
from transis.totem.states import TRANSITIONS, Event, State
from transis.totem.timers import Timers
from transis.totem.traps import Trap
from transis.wire.control import ControlPacket, config_digest, encode_control
from transis.wire.envelope import ENVELOPE_SIZE, SEAL_SIZE
from transis.wire.header import COUNTER_MAX, body_max
from transis.wire.outbox import Outbox
from transis.wire.parts import split

RESERVE = 4_000
"""Ring sequence numbers reserved on disk ahead of use, so that a view change waits for no fsync (W14)."""
TIMESTAMP_TAKEN_MAX = COUNTER_MAX >> 1
"""Timestamps beyond it are taken from nobody: own ticks must never reach what receivers reject."""


class Core:
    def __init__(self, config: Config, me: NodeId, ring_seq: int) -> None:
        self.config = config
        self.me = me
        self.now = 0
        self.out: list[Output] = []
        self.timers = Timers()
        self.pace = Pace(config.timing)
        self.outbox = Outbox(body_max(config.datagram), config.window.outbox_bytes)
        self.digest = config_digest(config.digest_fields())
        self.state = State.OPERATIONAL
        self.coverage: Counter[tuple[str, str]] = Counter()
        self.clock = 0
        self.cause = Cause("start")
        self.heard_at: dict[NodeId, int] = {}
        self.addresses: dict[NodeId, str] = {me: config.address}
        self.ring_seq = ring_seq
        """The highest ring sequence that this node ever accepted, proposed or installed (W9)."""
        self.ring_seq_seen = ring_seq
        """The highest ring sequence in any Join: a new ring goes beyond it."""
        self.durable_seq = ring_seq
        self._reserving = 0
        self.ring = Ring(RingId(ring_seq, me), (me,), me)
        self.forming: Ring | None = None
        self._tickets = 0
        self._packet_id = 0
        self.retransmitted = 0
        """Datagrams sent again because somebody asked for them."""
        self.requested = 0
        """Datagrams asked for; one that is asked for at several visits counts at each."""

    def emit(self, output: Output) -> None:
        self.out.append(output)

    def note(self, what: str, **detail: str | int) -> None:
        self.out.append(Note(what, tuple(detail.items())))

    def trap(self, trap: Trap) -> None:
        self.out.append(Note("trap", (("number", trap.value),)))

    def shift(self, state: State, why: str) -> None:
        """Change the state, if figure 2 of the paper allows it."""
        if state not in TRANSITIONS[self.state]:
            raise InternalError(f"{self.me}: {self.state.value} -> {state.value} on {why} is not a transition of the protocol")
        self.note("state", **{"from": self.state.value, "to": state.value, "event": why})
        self.state = state

    def tick(self) -> int:
        """Advance the Lamport clock for something originated here."""
        self.clock += 1
        return self.clock

    def observe(self, timestamp: int) -> None:
        """Whatever a peer claims, the clock stays where everybody still reads it."""
        self.clock = max(self.clock, min(timestamp, TIMESTAMP_TAKEN_MAX))

    def arm(self, event: Event, after_us: int) -> None:
        self.timers.arm(event, self.now + after_us)

    def packet(self, packet: ControlPacket) -> list[bytes]:
        """Encode a control packet, in parts if it is large. Who sends it again sends these very bytes (D25)."""
        self._packet_id += 1
        return split(self._packet_id, encode_control(packet), self.config.datagram - ENVELOPE_SIZE - SEAL_SIZE)

    def broadcast(self, packet: ControlPacket) -> None:
        self.emit(Send(Audience.WORLD, Port.CONTROL, self.packet(packet)))

    def meet(self, node: NodeId, address: str) -> None:
        """Somebody introduced itself. A crowd larger than a Gather can name is not remembered."""
        if node in self.addresses or len(self.addresses) < PROC_SET_MAX:
            self.heard_at[node] = self.now
            self.addresses[node] = address

    def forget_strangers(self) -> None:
        """After an installation only the members' addresses matter; others introduce themselves again.

        Hearing starts afresh too: who was heard before the change may be out of reach by it.
        """
        self.heard_at.clear()
        self.addresses = {node: self.addresses.get(node, "") for node in self.ring.members}

    def refuse(self, dropped: Iterable[RunIds], why: str) -> None:
        for ids in dropped:
            self.emit(Refused(ids, why))
        self.announce_room()

    def announce_room(self) -> None:
        """Tell who was cut short that its lane takes messages again."""
        for lane in self.outbox.take_room():
            self.emit(Room(lane))

    def reserve(self, seq: int) -> None:
        """Make sure that ring sequences up to `seq` and well beyond are, or soon will be, durable."""
        if seq + RESERVE // 2 > max(self.durable_seq, self._reserving):
            self._reserving = seq + RESERVE
            self._tickets += 1
            self.emit(Persist(self._tickets, "ring_seq", self._reserving))

    def persisted(self, ticket: int) -> bool:
        """A write completed. True if everything that was asked for is durable now."""
        if ticket == self._tickets:
            self.durable_seq = max(self.durable_seq, self._reserving)
        return ticket == self._tickets
