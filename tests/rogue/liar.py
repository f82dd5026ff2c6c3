"""A member with the key that lies: it follows the protocol, but one field in some of the packets that it sends is not true.

1. What leaves an honest node is opened, and with some chance one field of it, at any depth, is set to a lie: zero, a little or
   far too low or too high, the largest that travels, what another member said in that field, what it said itself long ago.
2. A seed decides which kinds of packets are touched, which fields, how often, and whether all hear the same lie.
3. Names of senders stay as they are, where the envelope proves them: a lie about that reaches nobody (node/intake.py). Data in
   the name of another member is not tried: whoever has the key can write it (docs/limits.md).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from struct import error as struct_error
from typing import Any, Final

from transis.lansis.packets import Acks, decode_acks, encode_acks
from transis.node.node import Node
from transis.sim.streams import RandomStream
from transis.totem.packets import NOBODY
from transis.types.config import Config
from transis.types.errors import Rejection
from transis.types.ids import NodeId
from transis.types.limits import SEQ_JUMP_MAX
from transis.types.outputs import Audience, NodeOutput, Transmit
from transis.types.views import Cause
from transis.wire.burst import (
    COUNTER_MAX,
    DATA_HEADER_SIZE,
    KIND_DATA,
    DataHeader,
    decode_data_header,
    encode_data,
)
from transis.wire.control import ControlPacket, PartAssembler, decode_control, encode_control, introduces, split
from transis.wire.envelope import ENVELOPE_SIZE, SEAL_SIZE, Opener, Sealer, apart

REMEMBERED: Final = 32
"""Old packets of each kind that may be said again, or from which a field is taken."""
HABITS_PERMILLE: Final = (20, 100, 300, 1000)
"""How often it lies."""
STEPS: Final = (1, 2, 4, 16, 300, 1 << 12, SEQ_JUMP_MAX, 1 << 40)
LARGEST: Final = (COUNTER_MAX, COUNTER_MAX - 1, (1 << 32) - 1, (1 << 31) - 1, NOBODY, 255)
UNTOUCHED: Final = frozenset({"klass", "time_us", "digest", "versions", "address", "info"})
"""Fields that no protocol step reads, and those that only make its packets somebody else's."""

Packet = ControlPacket | DataHeader | Acks


class Liar:
    """What a seed makes of packets."""

    def __init__(self, stream: RandomStream, kinds: Sequence[str] = (), names: Sequence[str] = (), permille: int = 0) -> None:
        self._stream = stream
        self._kinds = kinds
        self._names = names
        self._permille = permille or stream.pick(HABITS_PERMILLE)
        self._said: dict[str, deque[Packet]] = {}
        self._nodes: list[NodeId] = []
        self.told: dict[str, int] = {}
        """How many lies about each field."""

    def hears(self, packet: Packet) -> None:
        """What others say is what it may say in their place."""
        name = type(packet).__name__
        self._said.setdefault(name, deque(maxlen=REMEMBERED)).append(packet)
        sender = getattr(packet, "sender", None)
        if isinstance(sender, NodeId) and sender not in self._nodes:
            self._nodes.append(sender)

    def chooses(self) -> bool:
        """One way or the other, by the seed."""
        return self._stream.chance(500)

    def retold(self, packet: Packet) -> Packet:
        name = type(packet).__name__
        self.hears(packet)
        if (self._kinds and name not in self._kinds) or not self._stream.chance(self._permille):
            return packet
        names = [one for one in _names(packet) if one not in UNTOUCHED and not _is_proven(packet, one)]
        if self._names:
            names = [one for one in names if one in self._names]
        if not names:
            return packet
        field = self._stream.pick(names)
        lie = self._lie(getattr(packet, field), [getattr(one, field) for one in self._said[name]])
        if lie == getattr(packet, field):
            return packet
        self.told[f"{name}.{field}"] = self.told.get(f"{name}.{field}", 0) + 1
        return _with(packet, field, lie)

    # --- lies -------------------------------------------------------------------------------------------------------

    def _lie(self, value: Any, others: Sequence[Any]) -> Any:
        """Something else of the same shape."""
        if others and self._stream.chance(200):
            return self._stream.pick(others)
        match value:
            case bool():
                return not value
            case int():
                return self._number(value)
            case bytes():
                return bytes(len(value)) if self._stream.chance(500) else bytes(byte ^ 1 for byte in value)
            case str():
                return self._stream.pick(("", "silent", "join while forming", "does not keep up"))
            case NodeId():
                return self._node(value)
            case frozenset():
                return self._set(value)
            case Cause():
                return value
            case tuple() if hasattr(value, "_fields"):
                place = self._stream.below(len(value))
                return value._replace(**{value._fields[place]: self._lie(value[place], ())})
            case tuple() | list():
                return self._sequence(value)
            case _:
                return value

    def _number(self, value: int) -> int:
        step = self._stream.pick(STEPS)
        return self._stream.pick((0, 1, max(0, value - step), max(0, value - step), value + step, value + step, self._largest))

    @property
    def _largest(self) -> int:
        return self._stream.pick(LARGEST)

    def _node(self, value: NodeId) -> NodeId:
        invented = value._replace(incarnation=value.incarnation + 1)
        return self._stream.pick([invented, NodeId("zz", 1, 1), *self._nodes])

    def _set(self, value: frozenset[NodeId]) -> frozenset[NodeId]:
        one = self._node(self._stream.pick(sorted(value) or self._nodes or [NodeId("zz", 1, 1)]))
        return self._stream.pick((frozenset(), value | {one}, value - {one}, frozenset(self._nodes), frozenset((one,))))

    def _sequence(self, value: Sequence[Any]) -> Sequence[Any]:
        make: Callable[[Sequence[Any]], Sequence[Any]] = type(value)
        if not value:
            return value
        place = self._stream.below(len(value))
        less = make([*value[:place], *value[place + 1 :]])
        other = make([*value[:place], self._lie(value[place], value), *value[place + 1 :]])
        return self._stream.pick((make(()), less, other, other, other))


def _names(packet: Packet) -> Sequence[str]:
    if is_dataclass(packet):
        return [field.name for field in fields(packet)]
    return packet._fields  # type: ignore[union-attr]


def _is_proven(packet: Packet, field: str) -> bool:
    """The envelope says who sent it."""
    return field == "sender" and isinstance(getattr(packet, field), NodeId | int) and not hasattr(packet, "token_seq")


def _with(packet: Packet, field: str, value: Any) -> Packet:
    if is_dataclass(packet):
        return replace(packet, **{field: value})  # type: ignore[type-var]
    return packet._replace(**{field: value})  # type: ignore[union-attr, return-value]


class Retelling:
    """Bodies of datagrams as the liar sends them on. One that is `named` tells some of what it hears about itself: it announces
    itself with what others say of themselves."""

    def __init__(self, liar: Liar, limit: int, *, is_lansis: bool, named: tuple[NodeId, str] | None = None) -> None:
        self._liar = liar
        self._named = named
        self._limit = limit
        self._is_lansis = is_lansis
        self._whole = PartAssembler()
        self._packet_id = 0

    def retold(self, transmitter: bytes, body: bytes) -> list[bytes]:
        if body[0] == KIND_DATA:
            return [self._data(body)]
        whole = self._whole.feed(transmitter, body)
        if not isinstance(whole, bytes):
            return []
        packet = decode_control(whole)
        if isinstance(packet, Rejection):
            return [body]
        try:
            encoded = encode_control(self._liar.retold(self._about_itself(packet)))
        except (AssertionError, ArithmeticError, LookupError, TypeError, ValueError, AttributeError, OverflowError, struct_error):
            encoded = whole  # It cannot even be written down.
        self._packet_id += 1
        return split(self._packet_id, encoded, self._limit)

    def _about_itself(self, packet: ControlPacket) -> ControlPacket:
        if self._named is None or not introduces(packet) or not self._liar.chooses():
            return packet
        sender, address = self._named
        return packet._replace(sender=sender, address=address)  # type: ignore[attr-defined, no-any-return]

    def _data(self, body: bytes) -> bytes:
        header = decode_data_header(body)
        if isinstance(header, Rejection):
            return body
        lied = self._liar.retold(header)
        rest = body[DATA_HEADER_SIZE:]
        acks = decode_acks(rest) if self._is_lansis and header.index == 0 else None
        try:
            if isinstance(acks, Acks):
                rest = encode_acks(*self._liar.retold(acks)) + rest[len(encode_acks(*acks)) :]
            return encode_data(lied, rest)  # type: ignore[arg-type]
        except (AssertionError, ArithmeticError, LookupError, TypeError, ValueError, struct_error):
            return body


# --- node -------------------------------------------------------------------------------------------------------------


class LyingNode(Node):
    """An honest node behind a mouth that lies."""

    def __init__(
        self, liar: Liar, config: Config, stored: Mapping[str, int], boot: int, key: bytes | None = None, *, with_groups: bool
    ) -> None:
        super().__init__(config, stored, boot, key, with_groups=with_groups)
        self.liar = liar
        limit = config.datagram - ENVELOPE_SIZE - SEAL_SIZE
        self._retelling = Retelling(liar, limit, is_lansis=config.engine == "lansis")
        self._envelopes = Opener(config.cluster, key)
        self._own_seal = Sealer(config.cluster, self.id, key)
        self._heard = PartAssembler()

    def receive(self, now: int, port: Any, arrivals: Sequence[Any]) -> None:
        for arrival in arrivals:
            opened = self._envelopes.open(arrival)
            if not isinstance(opened, Rejection) and opened[1][:1] != bytes([KIND_DATA]):
                whole = self._heard.feed(*opened)
                packet = decode_control(whole) if isinstance(whole, bytes) else None
                if isinstance(packet, ControlPacket):
                    self.liar.hears(packet)
        super().receive(now, port, arrivals)

    def outputs(self) -> list[NodeOutput]:
        return [self._told(output) if isinstance(output, Transmit) else output for output in super().outputs()]

    def _told(self, output: Transmit) -> Transmit:
        bodies: list[bytes] = []
        for datagram in output.datagrams:
            opened = self._envelopes.open(datagram)
            assert not isinstance(opened, Rejection)
            bodies += self._retelling.retold(*opened)
        return Transmit(output.to, output.port, self._own_seal.seal_all(bodies))


class StrangerNode(Node):
    """A node with the key that is in no view: it tells everybody what it hears, with lies, under its own seal."""

    def __init__(
        self, liar: Liar, config: Config, stored: Mapping[str, int], boot: int, key: bytes | None = None, *, with_groups: bool
    ) -> None:
        super().__init__(config, stored, boot, key, with_groups=with_groups)
        limit = config.datagram - ENVELOPE_SIZE - SEAL_SIZE
        self._retelling = Retelling(liar, limit, is_lansis=config.engine == "lansis", named=(self.id, config.address))
        self._envelopes = Opener(config.cluster, key)
        self._own_seal = Sealer(config.cluster, self.id, key)
        self._lies: list[Transmit] = []

    def receive(self, now: int, port: Any, arrivals: Sequence[Any]) -> None:
        for arrival in apart(arrivals):
            opened = self._envelopes.open(arrival)
            if not isinstance(opened, Rejection) and (bodies := self._retelling.retold(*opened)):
                self._lies.append(Transmit(Audience.WORLD, port, self._own_seal.seal_all(bodies)))

    def outputs(self) -> list[NodeOutput]:
        lies, self._lies = self._lies, []
        return [*(output for output in super().outputs() if not isinstance(output, Transmit)), *lies]
