"""Control packets <-> bytes: everything on the wire that is not data.

A control packet is one byte of kind, then its fields. Most are msgpack arrays checked against a typed layout; the most frequent
packets have a fixed binary layout of their own. Each packet class stands beside its layout: here if both engines send it, else in
totem/packets.py or lansis/packets.py. The registry below knows them by kind.

1. Kinds are only ever appended; a layout never changes under the same kind.
2. msgspec checks types and bounds the length of every array before it allocates it. Decoders check what values mean: names,
   sorted tables, ranks within tables, sizes of digests, counters that leave room to count on.
3. Encoding is canonical: equal packets give equal bytes in every process. A packet names every node once, in a sorted table, and
   its sets are bitmaps over that table: with ids in full, a Join of 128 members and their rows would need hundreds of parts.
4. A packet larger than one datagram travels in parts (`split`, `PartAssembler`). Nobody acknowledges parts: a repetition is the
   same bytes under the same id, so parts of repetitions add up (D25).
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from enum import IntEnum
from functools import lru_cache
from hashlib import sha256
from typing import Annotated, Any, ClassVar, Final, NamedTuple, Protocol, Self, TypeGuard

import msgspec

from transis.types.errors import Rejection
from transis.types.ids import NodeId, RingId
from transis.types.limits import INFO_MAX, MEMBERS_MAX, NAME_MAX, NETWORK_ADDRESS_MAX, PARTS_MAX, PROC_SET_MAX
from transis.types.views import Cause
from transis.wire.burst import COUNTER_MAX
from transis.wire.envelope import WIRE_VERSION

# --- packets by kind --------------------------------------------------------------------------------------------------


class PacketLayout(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A packet on the wire. Fields are identified by position; an array that is too short or too long is not a packet."""


class Role(IntEnum):
    """What a packet says about its sender; each role includes those before it."""

    NONE = 0
    INTRODUCES = 1
    """It names its sender and the sender's address; nobody sends it on another's behalf."""
    ANNOUNCES = 2
    """It tells the world whom its sender is together with; only the newest packet of each sender counts."""
    ASKS = 3
    """Its sender wants to be together with every node that hears it."""


class ControlPacket:
    """A packet that was checked. `class Beacon(_Beacon, ControlPacket, kind=5, layout=BeaconLayout)` registers its kind.

    Its fields are a NamedTuple's, with sets as sets. `to_layout` and `from_layout` say how they travel; a kind without a layout
    has `to_bytes` and `parse`, or `read`, of its own.
    """

    __slots__ = ()

    kind: ClassVar[int]
    role: ClassVar[Role]
    _decoder: ClassVar[msgspec.msgpack.Decoder[Any]]

    def __init_subclass__(
        cls, *, kind: int | None = None, layout: type[PacketLayout] | None = None, role: Role = Role.NONE, **keywords: object
    ) -> None:
        super().__init_subclass__(**keywords)
        if kind is not None:
            assert kind not in _KINDS, f"kind {kind} is {_KINDS[kind].__name__}"
            cls.kind, cls.role = kind, role
            if layout is not None:
                cls._decoder = msgspec.msgpack.Decoder(layout)
        if "kind" in cls.__dict__:
            _KINDS[cls.kind], _READERS[cls.kind] = cls, cls.read  # A dataclass with slots is created twice: the second one stays.

    def to_bytes(self) -> bytes:
        """All bytes after the kind."""
        return msgspec.msgpack.encode(self.to_layout())

    def to_layout(self) -> PacketLayout:
        raise NotImplementedError(f"{type(self).__name__} has no layout")

    @classmethod
    def from_layout(cls, layout: Any) -> Self:
        raise NotImplementedError(f"{cls.__name__} has no layout")

    @classmethod
    def parse(cls, body: bytes) -> Self:
        """The packet in these bytes, which begin with the kind; raises what `_parse` catches."""
        return cls.from_layout(cls._decoder.decode(memoryview(body)[1:]))

    @classmethod
    def read(cls, body: bytes) -> ControlPacket | Rejection:
        """The packet in these bytes, or why there is none."""
        if len(body) <= _REMEMBERED_SIZE:
            return _parse_remembered(body)
        return _parse(body) if len(body) <= CONTROL_MAX else Rejection("length", f"{len(body)} bytes are no control packet")


_KINDS: Final[dict[int, type[ControlPacket]]] = {}
"""Kind 1 is data (wire/burst.py) and 9 a part of a packet; all others are classes."""
_READERS: Final[dict[int, Callable[[bytes], ControlPacket | Rejection]]] = {}


class Introduction(Protocol):
    """What every packet that introduces its sender has."""

    role: ClassVar[Role]

    @property
    def sender(self) -> NodeId: ...
    @property
    def address(self) -> str: ...


class SignedIntroduction(Introduction, Protocol):
    """An introduction that says how its sender is configured, which must be equal on all members of a view."""

    @property
    def digest(self) -> bytes: ...
    @property
    def versions(self) -> tuple[int, int]: ...


def introduces(packet: ControlPacket) -> TypeGuard[Introduction]:
    return packet.role >= Role.INTRODUCES


def announces(packet: ControlPacket | Introduction) -> TypeGuard[Introduction]:
    return packet.role >= Role.ANNOUNCES


def asks(packet: ControlPacket | Introduction) -> bool:
    return packet.role >= Role.ASKS


def role_of(body: bytes) -> Role:
    """The role of the packet in these bytes, by its kind alone."""
    packet = _KINDS.get(body[0]) if body else None
    return Role.NONE if packet is None else packet.role


def encode_control(packet: ControlPacket) -> bytes:
    return bytes((packet.kind,)) + packet.to_bytes()


def decode_control(body: bytes) -> ControlPacket | Rejection:
    """The packet in one inner body, or why there is none."""
    if not body:
        return Rejection("length", "0 bytes are no control packet")
    read = _READERS.get(body[0])
    return Rejection("kind", f"kind {body[0]} is no control packet") if read is None else read(body)


def _parse(body: bytes) -> ControlPacket | Rejection:
    try:
        return _KINDS[body[0]].parse(body)
    except BadField as refused:
        return refused.rejection
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        # ValueError covers text that is not UTF-8; nesting deeper than any layout ends in RecursionError.
        return Rejection("layout", str(error))


_REMEMBERED_SIZE: Final = 8192
_parse_remembered: Final = lru_cache(maxsize=256)(_parse)
"""Joins and beacons repeat with the same bytes, and packets are immutable: decode each once."""


# --- fields ------------------------------------------------------------------------------------------------------------

Nodes = Annotated[tuple[NodeId, ...], msgspec.Meta(max_length=PROC_SET_MAX)]
_Ranks = Annotated[tuple[int, ...], msgspec.Meta(max_length=PROC_SET_MAX)]

_BOOT_END: Final = 1 << 64
_EMPTY: Final[frozenset[NodeId]] = frozenset()


class BadField(Exception):
    """A field of a packet is wrong. It carries the rejection out of nested decoders and never leaves them."""

    def __init__(self, field: str, why: str) -> None:
        super().__init__(why)
        self.rejection = Rejection(field, why)


def require(holds: bool, field: str, why: str) -> None:
    if not holds:
        raise BadField(field, why)


@lru_cache(maxsize=PROC_SET_MAX)
def is_valid_node(node: NodeId) -> bool:
    """Ids repeat in every packet, so the answer is cached for as many nodes as one packet may name."""
    name, incarnation, boot = node
    return is_valid_text(name, 1, NAME_MAX) and 0 <= incarnation <= COUNTER_MAX and 0 <= boot < _BOOT_END


def is_valid_text(text: str, low: int, high: int) -> bool:
    return low <= len(text.encode("utf-8", "surrogatepass")) <= high and text.isprintable()


def require_node(node: NodeId) -> NodeId:
    require(is_valid_node(node), "node", "a node id with an unfit name or number")
    return node


def require_counters(*counters: int) -> None:
    require(min(counters) >= 0 and max(counters) <= COUNTER_MAX, "counter", "a counter out of range")


def require_about_node(address: str, info: bytes) -> None:
    require(is_valid_text(address, 0, NETWORK_ADDRESS_MAX), "address", "an address that is too long or not printable")
    require(len(info) <= INFO_MAX, "info", f"{len(info)} bytes of info")


class NodeTable:
    """The nodes of one packet, sorted and unique, and the conversion between sets and bitmaps over them."""

    __slots__ = ("_ranks", "_width", "nodes")

    def __init__(self, nodes: tuple[NodeId, ...], ranks: dict[NodeId, int]) -> None:
        self.nodes = nodes
        self._width = (len(nodes) + 7) // 8
        self._ranks = ranks

    @classmethod
    def of(cls, *groups: Iterable[NodeId]) -> NodeTable:
        """The table of all nodes in these sets, for encoding."""
        nodes: set[NodeId] = set()
        nodes.update(*groups)
        assert len(nodes) <= PROC_SET_MAX, f"a packet that names {len(nodes)} nodes"
        ordered = tuple(sorted(nodes))
        return cls(ordered, {node: rank for rank, node in enumerate(ordered)})

    @classmethod
    def received(cls, nodes: tuple[NodeId, ...]) -> NodeTable:
        """The checked table of a packet, for decoding, which never needs ranks."""
        for node in nodes:
            require_node(node)
        require(all(map(tuple.__lt__, nodes, nodes[1:])), "nodes", "the node table is not sorted and unique")
        return cls(nodes, {})

    def rank(self, node: NodeId) -> int:
        return self._ranks[node]

    def node(self, rank: int) -> NodeId:
        require(0 <= rank < len(self.nodes), "rank", f"rank {rank} in a table of {len(self.nodes)}")
        return self.nodes[rank]

    def bitmap(self, members: Iterable[NodeId]) -> bytes:
        bits = 0
        for member in members:
            bits |= 1 << self._ranks[member]
        return bits.to_bytes(self._width, "little")

    def members(self, bitmap: bytes) -> frozenset[NodeId]:
        require(len(bitmap) == self._width, "bitmap", f"a bitmap of {len(bitmap)} bytes for {len(self.nodes)} nodes")
        bits = int.from_bytes(bitmap, "little")
        require(bits < 1 << len(self.nodes), "bitmap", "a bitmap with bits beyond its table")
        if bits == (1 << len(self.nodes)) - 1:
            return frozenset(self.nodes)
        return frozenset(self._chosen(bits)) if bits else _EMPTY

    def _chosen(self, bits: int) -> Iterator[NodeId]:
        """Most sets that are not full are nearly empty, so this walks the set bits and not the table."""
        while bits:
            lowest = bits & -bits
            yield self.nodes[lowest.bit_length() - 1]
            bits ^= lowest


DIGEST_SIZE: Final = 8
CAUSE_TEXT_MAX: Final = 64


class CauseLayout(PacketLayout, frozen=True):
    """Why a view is being changed."""

    what: str
    accuser: int | None
    accused: _Ranks
    timer: str


def require_signature(digest: bytes, versions: tuple[int, int]) -> None:
    require(len(digest) == DIGEST_SIZE, "digest", f"a digest of {len(digest)} bytes")
    require(0 <= versions[0] <= versions[1] <= 255, "versions", f"wire versions {versions[0]} to {versions[1]}")


def cause_layout(cause: Cause, table: NodeTable) -> CauseLayout:
    by = None if cause.accuser is None else table.rank(cause.accuser)
    return CauseLayout(cause.what, by, tuple(map(table.rank, cause.accused)), cause.timer)


def cause_of(cause: CauseLayout, table: NodeTable) -> Cause:
    require(is_valid_text(cause.what, 0, CAUSE_TEXT_MAX), "cause", "a cause that is too long or not printable")
    require(is_valid_text(cause.timer, 0, CAUSE_TEXT_MAX), "cause", "a timer that is too long or not printable")
    accuser = None if cause.accuser is None else table.node(cause.accuser)
    return Cause(cause.what, accuser, tuple(map(table.node, cause.accused)), cause.timer)


def config_digest(fields: tuple[object, ...]) -> bytes:
    """What two nodes must agree on to read each other, in 8 bytes; the wire version is part of it."""
    return sha256(msgspec.msgpack.encode((WIRE_VERSION, *fields))).digest()[:DIGEST_SIZE]


# --- parts ------------------------------------------------------------------------------------------------------------

KIND_PART: Final = 9
CONTROL_MAX: Final = 256 * 1024
"""Bytes of one control packet: twice what a Join with 512 known nodes and all their rows needs."""
REASSEMBLIES_MAX: Final = 4 * MEMBERS_MAX

_PART: Final = struct.Struct(">BBQHH")
"""kind u8 | kind of the whole packet u8 | packet id u64 | part i u16 | of n u16, then this part's share of the bytes."""


class _Part(NamedTuple):
    kind: int
    packet_id: int
    number: int
    parts: int
    share: bytes


class _Reassembly:
    __slots__ = ("count", "packet_id", "shares", "size")

    def __init__(self, packet_id: int, count: int) -> None:
        self.packet_id = packet_id
        self.count = count
        self.shares: dict[int, bytes] = {}
        self.size = 0


def split(packet_id: int, payload: bytes, limit: int) -> list[bytes]:
    """The payload itself when it fits `limit`, otherwise its parts, each of at most `limit` bytes."""
    assert payload, "a packet begins with its kind"
    if len(payload) <= limit:
        return [payload]
    room = limit - _PART.size
    assert room > 0, f"a limit of {limit} bytes leaves no room beside the part header"
    count = -(-len(payload) // room)
    assert count <= PARTS_MAX, f"a control packet of {len(payload)} bytes needs {count} parts"
    assert len(payload) <= CONTROL_MAX, f"a control packet of {len(payload)} bytes"
    return [
        _PART.pack(KIND_PART, payload[0], packet_id, index, count) + payload[index * room : (index + 1) * room]
        for index in range(count)
    ]


def _read_part(body: bytes) -> _Part | Rejection:
    if len(body) <= _PART.size:
        return Rejection("length", f"{len(body)} bytes are no part of anything")
    _, kind, packet_id, index, count = _PART.unpack_from(body)
    if kind == KIND_PART:
        return Rejection("kind", "a part of parts")
    if packet_id > COUNTER_MAX:
        return Rejection("packet id", f"packet id {packet_id}")
    if not 2 <= count <= PARTS_MAX or index >= count:
        return Rejection("parts", f"part {index} of {count}")
    return _Part(kind, packet_id, index, count, body[_PART.size :])


class PartAssembler:
    """Puts packets together again.

    1. There is one reassembly per transmitter and packet kind; a newer id replaces it, an older one is ignored.
    2. A packet that is sent again keeps its id, so the repetition fills in parts that were lost.
    3. Memory grows with bytes received only: the claimed number of parts is compared, never allocated. The transmitter heard
       least recently is forgotten first.
    """

    __slots__ = ("_reassemblies",)

    def __init__(self) -> None:
        self._reassemblies: OrderedDict[tuple[bytes, int], _Reassembly] = OrderedDict()

    def __len__(self) -> int:
        return len(self._reassemblies)

    def feed(self, transmitter: bytes, body: bytes) -> bytes | Rejection | None:
        """The whole packet once it is complete; a body that is not a part is whole already."""
        if not body:
            return Rejection("length", "an empty body")
        if body[0] != KIND_PART:
            return body
        part = _read_part(body)
        if isinstance(part, Rejection):
            return part
        reassembly = self._reassembly(transmitter, part)
        if reassembly is None:
            return None
        if part.parts != reassembly.count:
            return Rejection("parts", f"packet {part.packet_id} has {reassembly.count} parts, not {part.parts}")
        return self._add(reassembly, part)

    def _reassembly(self, transmitter: bytes, part: _Part) -> _Reassembly | None:
        """The reassembly this part belongs to, or None if a newer packet of that kind was seen."""
        key = (transmitter, part.kind)
        current = self._reassemblies.get(key)
        if current is not None and part.packet_id < current.packet_id:
            return None
        if current is None or part.packet_id > current.packet_id:
            current = self._reassemblies[key] = _Reassembly(part.packet_id, part.parts)
        self._reassemblies.move_to_end(key)
        if len(self._reassemblies) > REASSEMBLIES_MAX:
            self._reassemblies.popitem(last=False)
        return current

    @staticmethod
    def _add(reassembly: _Reassembly, part: _Part) -> bytes | Rejection | None:
        """A completed reassembly keeps its id but none of its bytes, and starts over with the next repetition."""
        if part.number in reassembly.shares:
            return None
        if reassembly.size + len(part.share) > CONTROL_MAX:
            return Rejection("size", f"packet {part.packet_id} grows beyond {CONTROL_MAX} bytes")
        reassembly.shares[part.number] = part.share
        reassembly.size += len(part.share)
        if len(reassembly.shares) < reassembly.count:
            return None
        whole = b"".join(reassembly.shares[index] for index in range(reassembly.count))
        reassembly.shares, reassembly.size = {}, 0
        if whole[0] != part.kind:
            return Rejection("kind", f"a packet of kind {whole[0]} in parts of kind {part.kind}")
        return whole


# --- packets of both engines ------------------------------------------------------------------------------------------

KIND_BEACON: Final = 5
KIND_PROBE: Final = 7
KIND_PROBE_ANSWER: Final = 16
"""Kind 8 was an answer that did not say which life its sender knows."""


class BeaconLayout(PacketLayout, frozen=True):
    nodes: Nodes
    sender: int
    address: str
    ring_seq: int
    ring_rep: int
    members: bytes
    heard: bytes
    timestamp: int
    digest: bytes
    versions: tuple[int, int]


class _Beacon(NamedTuple):
    sender: NodeId
    address: str
    ring: RingId
    members: frozenset[NodeId]
    heard: frozenset[NodeId]
    timestamp: int
    digest: bytes
    versions: tuple[int, int]


class Beacon(_Beacon, ControlPacket, kind=KIND_BEACON, layout=BeaconLayout, role=Role.ANNOUNCES):
    """ "I am here, in this view, and have heard these nodes": how views that share no traffic find each other."""

    __slots__ = ()

    def to_layout(self) -> BeaconLayout:
        table = NodeTable.of((self.sender, self.ring.rep), self.members, self.heard)
        return BeaconLayout(
            table.nodes,
            table.rank(self.sender),
            self.address,
            self.ring.seq,
            table.rank(self.ring.rep),
            table.bitmap(self.members),
            table.bitmap(self.heard),
            self.timestamp,
            self.digest,
            self.versions,
        )

    @classmethod
    def from_layout(cls, layout: BeaconLayout) -> Self:
        table = NodeTable.received(layout.nodes)
        require_about_node(layout.address, b"")
        require_counters(layout.ring_seq, layout.timestamp)
        require_signature(layout.digest, layout.versions)
        return cls(
            table.node(layout.sender),
            layout.address,
            RingId(layout.ring_seq, table.node(layout.ring_rep)),
            table.members(layout.members),
            table.members(layout.heard),
            layout.timestamp,
            layout.digest,
            layout.versions,
        )


class ProbeLayout(PacketLayout, frozen=True):
    sender: NodeId
    address: str


class _Probe(NamedTuple):
    sender: NodeId
    address: str


class Probe(_Probe, ControlPacket, kind=KIND_PROBE, layout=ProbeLayout, role=Role.INTRODUCES):
    """ "May I run under this name?", asked before a node joins anything (C4)."""

    __slots__ = ()

    def to_layout(self) -> ProbeLayout:
        return ProbeLayout(*self)

    @classmethod
    def from_layout(cls, layout: ProbeLayout) -> Self:
        require_about_node(layout.address, b"")
        return cls(require_node(layout.sender), layout.address)


VERDICTS = ("taken", "stale", "copied")


class ProbeAnswerLayout(PacketLayout, frozen=True):
    about: NodeId
    by: NodeId
    verdict: str
    known: NodeId


class _ProbeAnswer(NamedTuple):
    about: NodeId
    by: NodeId
    verdict: str
    known: NodeId


class ProbeAnswer(_ProbeAnswer, ControlPacket, kind=KIND_PROBE_ANSWER, layout=ProbeAnswerLayout):
    """`about` is the prober. taken: the name is alive elsewhere; stale: a higher incarnation was seen; copied:
    the same incarnation under another boot id. `known` is the life of that name which speaks against it."""

    __slots__ = ()

    def to_layout(self) -> ProbeAnswerLayout:
        return ProbeAnswerLayout(*self)

    @classmethod
    def from_layout(cls, layout: ProbeAnswerLayout) -> Self:
        require(layout.verdict in VERDICTS, "verdict", "a verdict that is none")
        require(layout.known[0] == layout.about[0], "known", "a life of another name")
        return cls(require_node(layout.about), require_node(layout.by), layout.verdict, require_node(layout.known))
