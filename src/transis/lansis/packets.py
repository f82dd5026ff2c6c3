"""The packets of Lansis and their layouts: statements, Flushed, Query, Alive, and the acknowledgements at the head of bursts.

A *statement* is what a member says about the next membership (membership-1992 section 4): AJ, JOIN or FA, the paper's kinds of
message. It is cumulative: a later one says all that the same member's earlier ones said, so the newest version is enough, in
whatever order they arrive. Members know that they agree by a digest over the bytes of statements (lansis/statements.py), so the
encoding must be canonical, even more than on the ring.

Acknowledgements ride on data (lansis-1992 3.1): every burst begins with them. ALIVE is the "I am alive" of transis-design-1995
section 3: unnumbered, never acknowledged or stored, harmless when lost or old.

Marks. In mode `transis` the two highest bits of the header's `round`, which Lansis does not need otherwise, say what a burst is
if it is not data; the other bits are a number. A *statement* is a JOIN or FA as a node of the DAG. A *flow* is payload that is
sent while views change: it belongs to no view, is numbered by its sender throughout its life, and carries a tag of its sender's
own. A *claim* is the first datagram of a burst in a view: the datagrams after it are the flow with that number, so a member that
has the flow has the burst. Data has the number 1 if it is a *fence* (orders.py), in both modes, and 0 otherwise.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Annotated, Final, NamedTuple, Self

import msgspec

from transis.types.errors import Rejection
from transis.types.ids import NodeId, RingId, RingTag
from transis.types.limits import MEMBERS_MAX
from transis.types.views import Cause
from transis.wire.burst import COUNTER_MAX, DataHeader
from transis.wire.control import (
    CauseLayout,
    ControlPacket,
    Nodes,
    NodeTable,
    PacketLayout,
    Role,
    cause_layout,
    cause_of,
    require,
    require_about_node,
    require_counters,
    require_node,
    require_signature,
)
from transis.wire.items import ACK_SIZE, ACKS, ACKS_HEAD_SIZE, INCOMPLETE, NACK_SIZE, Incomplete

# --- statements -------------------------------------------------------------------------------------------------------

KIND_ATTEMPT: Final = 11
KIND_JOINING: Final = 12
KIND_FAULTS: Final = 13


class StatementLayout(PacketLayout, frozen=True):
    nodes: Nodes
    sender: int
    address: str
    info: bytes
    version: int
    view: tuple[int, int]
    view_seq: int
    j: bytes
    f_before: bytes
    f_after: bytes
    recv: Annotated[tuple[tuple[int, int], ...], msgspec.Meta(max_length=MEMBERS_MAX)]
    delivered: int
    clock: int
    cause: CauseLayout
    leaving: bool
    digest: bytes
    versions: tuple[int, int]


class _Statement(NamedTuple):
    sender: NodeId
    address: str
    info: bytes
    version: int
    """Grows with every statement throughout a life, whatever the view."""
    view: RingId
    """The view that the sender is in and is about to leave."""
    view_seq: int
    """The highest sequence of a view that the sender ever installed or promised to install."""
    j: frozenset[NodeId]
    f_before: frozenset[NodeId]
    """Faults that the sender knew before it said with whom it joins."""
    f_after: frozenset[NodeId]
    recv: tuple[tuple[NodeId, int], ...]
    delivered: int
    """Key of the last ordered burst that the sender delivered in its view."""
    clock: int
    cause: Cause
    leaving: bool
    digest: bytes
    versions: tuple[int, int]


class Statement(_Statement, ControlPacket):
    """What its sender holds of its view, and whom it wants in the next one. Its type is the paper's kind of message.

    `recv` is sorted by node: the last counter of each member of `view` that the sender holds with everything before it.
    """

    __slots__ = ()

    @property
    def f(self) -> frozenset[NodeId]:
        return self.f_before | self.f_after

    @property
    def accept(self) -> frozenset[NodeId]:
        """Whom the sender wants in the next view."""
        return self.j - self.f_before - self.f_after

    def to_layout(self) -> StatementLayout:
        table = NodeTable.of(self._named(), self.j, self.f_before, self.f_after)
        return StatementLayout(
            table.nodes,
            table.rank(self.sender),
            self.address,
            self.info,
            self.version,
            (self.view.seq, table.rank(self.view.rep)),
            self.view_seq,
            table.bitmap(self.j),
            table.bitmap(self.f_before),
            table.bitmap(self.f_after),
            tuple((table.rank(node), counter) for node, counter in self.recv),
            self.delivered,
            self.clock,
            cause_layout(self.cause, table),
            self.leaving,
            self.digest,
            self.versions,
        )

    def _named(self) -> Iterable[NodeId]:
        yield from (self.sender, self.view.rep, *self.cause.accused)
        yield from (node for node, _ in self.recv)
        if self.cause.accuser is not None:
            yield self.cause.accuser

    @classmethod
    def from_layout(cls, layout: StatementLayout) -> Self:
        table = NodeTable.received(layout.nodes)
        require_about_node(layout.address, layout.info)
        require_counters(layout.version, layout.view_seq, layout.delivered, layout.clock)
        require_signature(layout.digest, layout.versions)
        return cls(
            table.node(layout.sender),
            layout.address,
            layout.info,
            layout.version,
            _view(layout.view, table),
            layout.view_seq,
            table.members(layout.j),
            table.members(layout.f_before),
            table.members(layout.f_after),
            _recv(layout.recv, table),
            layout.delivered,
            layout.clock,
            cause_of(layout.cause, table),
            layout.leaving,
            layout.digest,
            layout.versions,
        )


class Attempt(Statement, kind=KIND_ATTEMPT, layout=StatementLayout, role=Role.ASKS):
    """AJ, the attempt to join: its sender heard of others and collects names. It commits itself to nothing."""

    __slots__ = ()


class Joining(Statement, kind=KIND_JOINING, layout=StatementLayout, role=Role.ASKS):
    """JOIN: its sender no longer sends or delivers in its view, and wants one view with strangers."""

    __slots__ = ()


class Faults(Statement, kind=KIND_FAULTS, layout=StatementLayout, role=Role.ANNOUNCES):
    """FA: its sender no longer sends or delivers in its view, and wants a view of the members that remain."""

    __slots__ = ()


def _view(view: tuple[int, int], table: NodeTable) -> RingId:
    require_counters(view[0])
    return RingId(view[0], table.node(view[1]))


def _recv(recv: tuple[tuple[int, int], ...], table: NodeTable) -> tuple[tuple[NodeId, int], ...]:
    ranks = [rank for rank, _ in recv]
    require(all(map(int.__lt__, ranks, ranks[1:])), "recv", "what was received is not sorted by node")
    require_counters(0, *(counter for _, counter in recv))
    return tuple((table.node(rank), counter) for rank, counter in recv)


# --- flushed and query ------------------------------------------------------------------------------------------------

KIND_FLUSHED: Final = 14
KIND_QUERY: Final = 15

PROPOSAL_SIZE: Final = 16
"""Bytes of the digest that names a proposal: two are never equal by chance."""
_BOOT_END: Final = 1 << 64


class FlushedLayout(PacketLayout, frozen=True):
    sender: NodeId
    address: str
    view: tuple[int, NodeId]
    proposal: bytes
    next_view: tuple[int, NodeId]


class _Flushed(NamedTuple):
    sender: NodeId
    address: str
    view: RingId
    """The view that the sender is in and is about to leave."""
    proposal: bytes
    next_view: RingId


class Flushed(_Flushed, ControlPacket, kind=KIND_FLUSHED, layout=FlushedLayout, role=Role.ANNOUNCES):
    """Its sender holds everything that the proposal with this digest needs, and will install it or a later one."""

    __slots__ = ()

    def to_layout(self) -> FlushedLayout:
        view, next_view = self.view, self.next_view
        return FlushedLayout(self.sender, self.address, (view.seq, view.rep), self.proposal, (next_view.seq, next_view.rep))

    @classmethod
    def from_layout(cls, layout: FlushedLayout) -> Self:
        require_about_node(layout.address, b"")
        require_counters(layout.view[0], layout.next_view[0])
        require(len(layout.proposal) == PROPOSAL_SIZE, "digest", f"a proposal named by {len(layout.proposal)} bytes")
        view = RingId(layout.view[0], require_node(layout.view[1]))
        next_view = RingId(layout.next_view[0], require_node(layout.next_view[1]))
        return cls(require_node(layout.sender), layout.address, view, layout.proposal, next_view)


class QueryLayout(PacketLayout, frozen=True):
    sender: NodeId
    address: str
    tag: tuple[int, int]
    is_reply: bool


class _Query(NamedTuple):
    sender: NodeId
    address: str
    tag: RingTag
    is_reply: bool


class Query(_Query, ControlPacket, kind=KIND_QUERY, layout=QueryLayout, role=Role.INTRODUCES):
    """ "Are you there?" and its answer, by unicast: they tell a member whose multicast is lost from one that is dead."""

    __slots__ = ()

    def to_layout(self) -> QueryLayout:
        return QueryLayout(self.sender, self.address, (self.tag.seq, self.tag.boot), self.is_reply)

    @classmethod
    def from_layout(cls, layout: QueryLayout) -> Self:
        require_about_node(layout.address, b"")
        require_counters(layout.tag[0])
        require(0 <= layout.tag[1] < _BOOT_END, "tag", "a boot id out of range")
        return cls(require_node(layout.sender), layout.address, RingTag(*layout.tag), layout.is_reply)


# --- acks -------------------------------------------------------------------------------------------------------------

NACK_RANGES_MAX: Final = 32
"""Ranges of requests in one packet: enough for a bad moment, and few enough that an ALIVE stays one small datagram."""
NACK_COUNT_MAX: Final = (1 << 16) - 1

_ACKS_HEAD: Final = struct.Struct(">BQBB")
"""Big-endian: kind u8 (4) | dep u64 | acks u8 | nacks u8, then the acks, then the nacks."""
_ACK: Final = struct.Struct(">BQ")
_NACK: Final = struct.Struct(">BQH")
"""rank u8 | first u64 | count u16."""


class Nack(NamedTuple):
    """A request for datagrams first..last of a rank."""

    rank: int
    first: int
    last: int


class Acks(NamedTuple):
    """What a burst says about other bursts, ahead of its messages.

    `dep` is how far in the total order the sender had delivered when it sent (W5). `acks` are (rank, counter), sorted by rank, at
    most one for each rank: the sender holds the burst whose last datagram has this counter, and everything that it follows.
    `nacks` are ranges of datagrams that it requests.
    """

    dep: int
    acks: tuple[tuple[int, int], ...]
    nacks: tuple[Nack, ...]


def encode_acks(dep: int, acks: Sequence[tuple[int, int]], nacks: Sequence[Nack]) -> bytes:
    assert len(acks) < MEMBERS_MAX, f"{len(acks)} acks: nobody acknowledges itself"
    head = _ACKS_HEAD.pack(ACKS, dep, len(acks), len(nacks))
    return head + b"".join([_ACK.pack(rank, counter) for rank, counter in acks]) + encode_nacks(nacks)


def encode_nacks(nacks: Sequence[Nack]) -> bytes:
    assert len(nacks) <= NACK_RANGES_MAX, f"{len(nacks)} ranges in one packet"
    return b"".join([_NACK.pack(rank, first, last - first + 1) for rank, first, last in nacks])


def decode_acks(stream: bytes | memoryview) -> Acks | Incomplete | Rejection:
    """The ACKS with which a burst's stream begins; Incomplete if it ends within them."""
    if stream and stream[0] != ACKS:
        return Rejection("acks", f"a burst that begins with an item of kind {stream[0]}")
    if len(stream) < ACKS_HEAD_SIZE:
        return INCOMPLETE
    _, dep, acks_count, nacks_count = _ACKS_HEAD.unpack_from(stream)
    if acks_count >= MEMBERS_MAX or nacks_count > NACK_RANGES_MAX:
        return Rejection("acks", f"{acks_count} acks, {nacks_count} nacks")
    nacks_start = ACKS_HEAD_SIZE + acks_count * ACK_SIZE
    end = nacks_start + nacks_count * NACK_SIZE
    if end > len(stream):
        return INCOMPLETE
    acks = tuple(_ACK.iter_unpack(stream[ACKS_HEAD_SIZE:nacks_start])) if acks_count else ()
    rejection = _check_acks(acks)
    if rejection is not None:
        return rejection
    nacks = decode_nacks(stream[nacks_start:end])
    return nacks if isinstance(nacks, Rejection) else Acks(dep, acks, nacks)


def _check_acks(acks: tuple[tuple[int, int], ...]) -> Rejection | None:
    before = -1
    for rank, counter in acks:
        if not before < rank < MEMBERS_MAX or not 1 <= counter <= COUNTER_MAX:
            return Rejection("acks", f"rank {rank} after {before}, counter {counter}")
        before = rank
    return None


def decode_nacks(body: bytes | memoryview) -> tuple[Nack, ...] | Rejection:
    """The ranges in `body`, which has a whole number of them."""
    nacks = []
    for rank, first, count in _NACK.iter_unpack(body):
        if rank >= MEMBERS_MAX or count == 0 or not 1 <= first <= COUNTER_MAX:
            return Rejection("nacks", f"{count} datagrams of rank {rank} from {first} on")
        nacks.append(Nack(rank, first, first + count - 1))
    return tuple(nacks)


# --- alive ------------------------------------------------------------------------------------------------------------

KIND_ALIVE: Final = 10
FLAG_FROZEN: Final = 1

_ALIVE_HEAD: Final = struct.Struct(">BQQHBQQB")
"""Big-endian: kind u8 (10) | view tag u64 u64 | sender u16 | flags u8 (bit 0 frozen) | sent u64 | clock u64 | members u8, then
one counter u64 for each member, nacks u8, and the nacks as at the head of bursts."""
_COUNTER_SIZE: Final = 8


def encode_alive(alive: Alive) -> bytes:
    tag, sender, frozen, sent, clock, recv, nacks = alive
    assert sender < len(recv) <= MEMBERS_MAX, f"rank {sender} of {len(recv)}"
    head = _ALIVE_HEAD.pack(KIND_ALIVE, tag.seq, tag.boot, sender, frozen, sent, clock, len(recv))
    return head + struct.pack(f">{len(recv)}QB", *recv, len(nacks)) + encode_nacks(nacks)


def decode_alive(body: bytes) -> Alive | Rejection:
    if len(body) <= _ALIVE_HEAD.size:
        return Rejection("length", f"{len(body)} bytes are shorter than an ALIVE")
    kind, seq, boot, sender, flags, sent, clock, members = _ALIVE_HEAD.unpack_from(body)
    if kind != KIND_ALIVE or flags > FLAG_FROZEN:
        return Rejection("kind", f"kind {kind} with flags {flags:#04x} is not an ALIVE")
    if not sender < members <= MEMBERS_MAX:
        return Rejection("rank", f"rank {sender} of {members}")
    nacks_start = _ALIVE_HEAD.size + members * _COUNTER_SIZE + 1
    if len(body) < nacks_start:
        return Rejection("length", f"{len(body)} bytes with {members} members")
    *recv, nacks_count = struct.unpack_from(f">{members}QB", body, _ALIVE_HEAD.size)
    if max(seq, sent, clock, *recv) > COUNTER_MAX:
        return Rejection("counter", "a counter beyond anything a view reaches")
    if nacks_count > NACK_RANGES_MAX or len(body) != nacks_start + nacks_count * NACK_SIZE:
        return Rejection("nacks", f"{nacks_count} nacks in {len(body)} bytes")
    nacks = decode_nacks(body[nacks_start:])
    if isinstance(nacks, Rejection):
        return nacks
    return Alive(RingTag(seq, boot), sender, flags == FLAG_FROZEN, sent, clock, tuple(recv), nacks)


class _Alive(NamedTuple):
    tag: RingTag
    sender: int
    frozen: bool
    """The sender has made a statement about the next view: `recv` and `clock` stay as they were then."""
    sent: int
    clock: int
    recv: tuple[int, ...]
    nacks: tuple[Nack, ...]


class Alive(_Alive, ControlPacket, kind=KIND_ALIVE):
    """1. `sender` is a rank in the view with this tag, below len(recv). 2. `recv` has one counter for each rank.

    `sent` is the sender's own last counter, `clock` its Lamport clock: what it sends later is stamped above it.
    """

    __slots__ = ()

    def to_bytes(self) -> bytes:
        return encode_alive(self)[1:]

    read = staticmethod(decode_alive)


# --- marks ------------------------------------------------------------------------------------------------------------

NUMBER_BITS: Final = 30
NUMBER_MAX: Final = (1 << NUMBER_BITS) - 1


class BurstMark(IntEnum):
    DATA = 0
    STATEMENT = 1
    FLOW = 2
    CLAIM = 3


def mark_of(header: DataHeader) -> BurstMark:
    return BurstMark(header.round >> NUMBER_BITS)


def round_of(mark: BurstMark, number: int = 0) -> int:
    return mark << NUMBER_BITS | number


def number_of(header: DataHeader) -> int:
    return header.round & NUMBER_MAX


FENCE: Final = round_of(BurstMark.DATA, 1)
