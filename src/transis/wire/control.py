"""Control packets <-> bytes: one byte of kind, then a msgpack array checked against a typed layout (layouts.py).

1. The kind byte is the tag. Kinds are only ever appended; a layout never changes under the same kind.
2. msgspec checks types and bounds the length of every array before it makes room for it; decoders check meaning:
   names, tables in order, ranks within tables, sizes of digests, counters that leave room to count on.
3. Encoding is canonical: equal packets give equal bytes in every process (bitmaps over a sorted table, no sets).

Here are the packets that both engines send. Each engine registers its own.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from functools import lru_cache
from hashlib import sha256
from typing import Any, Final, NamedTuple, Protocol, TypeGuard, TypeVar

import msgspec

from transis.types.errors import Rejection
from transis.types.ids import NodeId, RingId
from transis.wire.causes import DIGEST_SIZE, require_signature
from transis.wire.envelope import WIRE_VERSION
from transis.wire.layouts import BeaconLayout, Layout, ProbeAnswerLayout, ProbeLayout
from transis.wire.nodetable import NodeTable, Refused, require, require_about_node, require_counters, require_node
from transis.wire.parts import CONTROL_MAX

ControlPacket = tuple[Any, ...]
"""Every control packet is an immutable value, a NamedTuple, checked already, with sets as sets."""
P = TypeVar("P", bound=ControlPacket)

KIND_BEACON: Final = 5
KIND_PROBE: Final = 7
KIND_PROBE_ANSWER: Final = 8
# 1 and 2 are data and the token, 9 is KIND_PART of parts.py; all others are registered by the engine that sends them.


class Role(IntEnum):
    """What a packet says of its sender; each role includes those before it."""

    NONE = 0
    INTRODUCES = 1
    """It names its sender and its address: nobody sends it for somebody else."""
    ANNOUNCES = 2
    """It tells the world who its sender is together with: only the newest of each sender counts."""
    ASKS = 3
    """Its sender wants to be together with whoever hears it."""


class Introduction(Protocol):
    """What every packet has that introduces its sender."""

    @property
    def sender(self) -> NodeId: ...
    @property
    def address(self) -> str: ...


_ENCODERS: Final[dict[type, Callable[[Any], bytes]]] = {}
_DECODERS: Final[dict[int, Callable[[bytes], ControlPacket]]] = {}
_ROLES: Final[dict[type, Role]] = {}


def register(
    packet: type[P], kind: int, encode: Callable[[P], Layout | bytes], decode: Callable[[bytes], P], role: Role = Role.NONE
) -> None:
    """Make a kind of packet known. `encode` gives a layout, or the bytes behind the kind."""
    assert kind not in _DECODERS and packet not in _ENCODERS, f"kind {kind} is registered twice"
    _ENCODERS[packet] = lambda value: bytes((kind,)) + _body(encode(value))
    _DECODERS[kind] = decode
    _ROLES[packet] = role


def _body(encoded: Layout | bytes) -> bytes:
    return encoded if isinstance(encoded, bytes) else msgspec.msgpack.encode(encoded)


def introduces(packet: object) -> TypeGuard[Introduction]:
    return _ROLES[type(packet)] >= Role.INTRODUCES


def announces(packet: object) -> TypeGuard[Introduction]:
    return _ROLES[type(packet)] >= Role.ANNOUNCES


def asks(packet: object) -> bool:
    return _ROLES[type(packet)] >= Role.ASKS


class Beacon(NamedTuple):
    sender: NodeId
    address: str
    ring: RingId
    members: frozenset[NodeId]
    heard: frozenset[NodeId]
    timestamp: int
    digest: bytes
    versions: tuple[int, int]


class Probe(NamedTuple):
    """May I run under this name? Asked before a node joins anything (C4)."""

    sender: NodeId
    address: str


class ProbeAnswer(NamedTuple):
    """`about` is the prober. taken: the name is alive elsewhere; stale: a higher incarnation was seen; copied:
    the same incarnation under another boot id."""

    about: NodeId
    by: NodeId
    verdict: str
    known_incarnation: int


VERDICTS = ("taken", "stale", "copied")


def config_digest(fields: tuple[object, ...]) -> bytes:
    """What two nodes must agree on to read each other, in 8 bytes; the wire version is part of it."""
    return sha256(msgspec.msgpack.encode((WIRE_VERSION, *fields))).digest()[:DIGEST_SIZE]


def encode_control(packet: ControlPacket) -> bytes:
    return _ENCODERS[type(packet)](packet)


def decode_control(body: bytes) -> ControlPacket | Rejection:
    """The packet in one inner body, or why there is none."""
    if not body or len(body) > CONTROL_MAX:
        return Rejection("length", f"{len(body)} bytes are no control packet")
    return _decode_remembered(body) if len(body) <= _REMEMBERED_SIZE else _decode(body)


def _decode(body: bytes) -> ControlPacket | Rejection:
    decoder = _DECODERS.get(body[0])
    if decoder is None:
        return Rejection("kind", f"kind {body[0]} is no control packet")
    try:
        return decoder(body)
    except Refused as refused:
        return refused.rejection
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        # ValueError covers text that is not UTF-8; nesting deeper than any layout ends in RecursionError.
        return Rejection("layout", str(error))


_REMEMBERED_SIZE: Final = 8192
_decode_remembered: Final = lru_cache(maxsize=256)(_decode)
"""Joins and beacons come again and again with the same bytes, and packets are immutable: decode each once."""


def _beacon_layout(beacon: Beacon) -> BeaconLayout:
    table = NodeTable.of((beacon.sender, beacon.ring.rep), beacon.members, beacon.heard)
    return BeaconLayout(
        table.nodes,
        table.rank(beacon.sender),
        beacon.address,
        beacon.ring.seq,
        table.rank(beacon.ring.rep),
        table.bitmap(beacon.members),
        table.bitmap(beacon.heard),
        beacon.timestamp,
        beacon.digest,
        beacon.versions,
    )


def _decode_beacon(body: bytes) -> Beacon:
    layout = _BEACON_DECODER.decode(memoryview(body)[1:])
    table = NodeTable.received(layout.nodes)
    require_about_node(layout.address, b"")
    require_counters(layout.ring_seq, layout.timestamp)
    require_signature(layout.digest, layout.versions)
    return Beacon(
        table.node(layout.sender),
        layout.address,
        RingId(layout.ring_seq, table.node(layout.ring_rep)),
        table.members(layout.members),
        table.members(layout.heard),
        layout.timestamp,
        layout.digest,
        layout.versions,
    )


def _decode_probe(body: bytes) -> Probe:
    layout = _PROBE_DECODER.decode(memoryview(body)[1:])
    require_about_node(layout.address, b"")
    return Probe(require_node(layout.sender), layout.address)


def _decode_probe_answer(body: bytes) -> ProbeAnswer:
    layout = _PROBE_ANSWER_DECODER.decode(memoryview(body)[1:])
    require(layout.verdict in VERDICTS, "verdict", "a verdict that is none")
    require_counters(layout.known_incarnation)
    return ProbeAnswer(require_node(layout.about), require_node(layout.by), layout.verdict, layout.known_incarnation)


_BEACON_DECODER: Final = msgspec.msgpack.Decoder(BeaconLayout)
_PROBE_DECODER: Final = msgspec.msgpack.Decoder(ProbeLayout)
_PROBE_ANSWER_DECODER: Final = msgspec.msgpack.Decoder(ProbeAnswerLayout)

register(Beacon, KIND_BEACON, _beacon_layout, _decode_beacon, Role.ANNOUNCES)
register(Probe, KIND_PROBE, lambda probe: ProbeLayout(*probe), _decode_probe, Role.INTRODUCES)
register(ProbeAnswer, KIND_PROBE_ANSWER, lambda answer: ProbeAnswerLayout(*answer), _decode_probe_answer)
