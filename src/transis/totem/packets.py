"""The ring's packets and their layouts: Token, Join, Commit, Wake.

The token (TOCS95 section 4) carries retransmission requests as ranges. They count backwards from seq, so the window bounds them
whatever the aru does, and at six bytes a range a token with RTR_RANGES_MAX of them fits the smallest datagram that may be
configured. A Join carries rows of reachability, a proposal and the last attempt (W7, W8); a commit entry carries the obligation
and the flags of TOCS95 section 5 with the corrections F1 and W3.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Annotated, Final, NamedTuple, Self

import msgspec

from transis.types.errors import Rejection
from transis.types.ids import NodeId, RingId, RingTag
from transis.types.limits import MEMBERS_MAX, PROC_SET_MAX, RTR_RANGES_MAX
from transis.types.views import Cause
from transis.wire.burst import COUNTER_MAX
from transis.wire.control import (
    DIGEST_SIZE,
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
    require_signature,
)

# --- token ------------------------------------------------------------------------------------------------------------

KIND_TOKEN: Final = 2
NOBODY: Final = 0xFFFF
"""The aru_id of a token whose aru nobody has lowered."""
FCC_MAX: Final = (1 << 31) - 1

_TOKEN: Final = struct.Struct(">BBHHQQQIQQHIQQB")
"""Big-endian: kind u8 | flags u8 (bit 0 retrans_flg) | sender u16 | target u16 | ring sequence u64 | ring boot u64
| token_seq u64 | round u32 | seq u64 | aru u64 | aru_id u16 | fcc u32 | backlog u64 | timestamp u64 | ranges u8, then six bytes
a range: how far its end lies behind seq (u24), how far its start lies behind its end (u24)."""
_RANGE_SIZE: Final = 6
_DISTANCE_END: Final = 1 << 24
TOKEN_SIZE_MAX: Final = _TOKEN.size + _RANGE_SIZE * RTR_RANGES_MAX


def encode_token(token: Token) -> bytes:
    assert len(token.rtr) <= RTR_RANGES_MAX, f"{len(token.rtr)} ranges on one token"
    assert token.aru <= token.seq, f"aru {token.aru} is beyond seq {token.seq}"
    ring_seq, boot = token.ring
    head = _TOKEN.pack(
        KIND_TOKEN,
        token.retrans_flg,
        token.sender,
        token.target,
        ring_seq,
        boot,
        token.token_seq,
        token.round,
        token.seq,
        token.aru,
        token.aru_id,
        token.fcc,
        token.backlog,
        token.timestamp,
        len(token.rtr),
    )
    return head + _encode_ranges(token.seq, token.rtr) if token.rtr else head


def _encode_ranges(seq: int, ranges: list[tuple[int, int]]) -> bytes:
    encoded = []
    before = 0
    for first, last in ranges:
        assert before < first, f"range {first}..{last} is not behind {before}"
        assert first <= last, f"range {first}..{last} is empty"
        assert last <= seq, f"range {first}..{last} asks for what was never sent (seq {seq})"
        assert last - first < _DISTANCE_END, f"range {first}..{last} is wider than any window"
        assert seq - last < _DISTANCE_END, f"range {first}..{last} is farther behind {seq} than any window"
        encoded.append(((seq - last) << 24 | (last - first)).to_bytes(_RANGE_SIZE))
        before = last
    return b"".join(encoded)


def decode_token(body: bytes) -> Token | Rejection:
    if len(body) < _TOKEN.size:
        return Rejection("length", f"{len(body)} bytes are shorter than a token")
    (kind, flags, sender, target, ring_seq, boot, token_seq, round_, seq, aru, aru_id, fcc, backlog, timestamp, count) = (
        _TOKEN.unpack_from(body)
    )
    if kind != KIND_TOKEN or flags > 1:
        return Rejection("kind", f"kind {kind} with flags {flags:#04x} is not a token")
    if sender >= MEMBERS_MAX or target >= MEMBERS_MAX or (aru_id >= MEMBERS_MAX and aru_id != NOBODY):
        return Rejection("rank", f"sender {sender}, target {target}, aru_id {aru_id}")
    if max(ring_seq, token_seq, seq, backlog, timestamp) > COUNTER_MAX or fcc > FCC_MAX:
        return Rejection("counter", "a counter beyond anything a ring reaches")
    if aru > seq:
        return Rejection("aru", f"aru {aru} is beyond seq {seq}")
    ranges = _decode_ranges(body, count, seq) if count or len(body) != _TOKEN.size else []
    if isinstance(ranges, Rejection):
        return ranges
    ring = RingTag(ring_seq, boot)
    return Token(ring, sender, target, token_seq, round_, seq, aru, aru_id, fcc, backlog, flags == 1, timestamp, ranges)


def _decode_ranges(body: bytes, count: int, seq: int) -> list[tuple[int, int]] | Rejection:
    if count > RTR_RANGES_MAX or len(body) != _TOKEN.size + count * _RANGE_SIZE:
        return Rejection("ranges", f"{count} ranges in {len(body)} bytes")
    ranges: list[tuple[int, int]] = []
    before = 0
    for start in range(_TOKEN.size, len(body), _RANGE_SIZE):
        distances = int.from_bytes(body[start : start + _RANGE_SIZE])
        last = seq - (distances >> 24)
        first = last - distances % _DISTANCE_END
        if first <= before:
            return Rejection("ranges", f"range {first}..{last} does not follow {before}")
        ranges.append((first, last))
        before = last
    return ranges


@dataclass(slots=True)
class Token(ControlPacket, kind=KIND_TOKEN):
    """`sender` and `target` are ranks: a token sent by multicast names its addressee (W8).

    1. aru <= seq. 2. `rtr` holds inclusive (first, last) ranges, sorted and disjoint, 1 <= first <= last <= seq.
    """

    ring: RingTag
    sender: int
    target: int
    token_seq: int
    round: int
    seq: int
    aru: int
    aru_id: int
    fcc: int
    backlog: int
    retrans_flg: bool
    timestamp: int
    rtr: list[tuple[int, int]] = field(default_factory=list)

    def to_bytes(self) -> bytes:
        return encode_token(self)[1:]

    read = staticmethod(decode_token)


# --- join -------------------------------------------------------------------------------------------------------------

KIND_JOIN: Final = 3


class Row(NamedTuple):
    """The nodes that `node` says it does not hear; `version` is the number of its Gather, `beat` counts its Joins in it."""

    node: NodeId
    version: int
    beat: int
    unheard: frozenset[NodeId]


class RowLayout(PacketLayout, frozen=True):
    node: int
    version: int
    beat: int
    unheard: bytes


class JoinLayout(PacketLayout, frozen=True):
    nodes: Nodes
    sender: int
    address: str
    info: bytes
    ring_seq: int
    proc_set: bytes
    fail_set: bytes
    proposal: bytes
    rows: Annotated[tuple[RowLayout, ...], msgspec.Meta(max_length=PROC_SET_MAX)]
    attempt_seq: int
    attempt_index: int
    leaving: bool
    timestamp: int
    digest: bytes
    versions: tuple[int, int]


class _Join(NamedTuple):
    sender: NodeId
    address: str
    info: bytes
    ring_seq: int
    proc_set: frozenset[NodeId]
    fail_set: frozenset[NodeId]
    proposal: frozenset[NodeId]
    rows: tuple[Row, ...]
    attempt_seq: int
    attempt_index: int
    leaving: bool
    timestamp: int
    digest: bytes
    versions: tuple[int, int]


class Join(_Join, ControlPacket, kind=KIND_JOIN, layout=JoinLayout, role=Role.ASKS):
    """`rows` are sorted by node. `attempt_*` name the last ring tried and how far its commit token was seen to come."""

    __slots__ = ()

    def to_layout(self) -> JoinLayout:
        unheard = (row.unheard for row in self.rows)
        known = (row.node for row in self.rows)
        table = NodeTable.of((self.sender,), self.proc_set, self.fail_set, self.proposal, known, *unheard)
        rows = tuple(RowLayout(table.rank(row.node), row.version, row.beat, table.bitmap(row.unheard)) for row in self.rows)
        return JoinLayout(
            table.nodes,
            table.rank(self.sender),
            self.address,
            self.info,
            self.ring_seq,
            table.bitmap(self.proc_set),
            table.bitmap(self.fail_set),
            table.bitmap(self.proposal),
            rows,
            self.attempt_seq,
            self.attempt_index,
            self.leaving,
            self.timestamp,
            self.digest,
            self.versions,
        )

    @classmethod
    def from_layout(cls, layout: JoinLayout) -> Self:
        table = NodeTable.received(layout.nodes)
        require_about_node(layout.address, layout.info)
        require_counters(layout.ring_seq, layout.attempt_seq, layout.attempt_index, layout.timestamp)
        require_signature(layout.digest, layout.versions)
        rows = tuple(_row(row, table) for row in layout.rows)
        ranks = [row.node for row in layout.rows]
        require(all(map(int.__lt__, ranks, ranks[1:])), "rows", "rows are not sorted by node")
        return cls(
            table.node(layout.sender),
            layout.address,
            layout.info,
            layout.ring_seq,
            table.members(layout.proc_set),
            table.members(layout.fail_set),
            table.members(layout.proposal),
            rows,
            layout.attempt_seq,
            layout.attempt_index,
            layout.leaving,
            layout.timestamp,
            layout.digest,
            layout.versions,
        )


def _row(row: RowLayout, table: NodeTable) -> Row:
    require_counters(row.version, row.beat)
    return Row(table.node(row.node), row.version, row.beat, table.members(row.unheard))


# --- commit -----------------------------------------------------------------------------------------------------------

KIND_COMMIT: Final = 4


class CommitEntry(NamedTuple):
    """What a member enters about itself in the commit token; `filled` is false until it has."""

    node: NodeId
    address: str
    info: bytes
    filled: bool
    old_ring: RingId | None
    old_members_digest: bytes
    aru: int
    high_delivered: int
    received_flg: bool
    obligation: frozenset[NodeId]
    timestamp: int


class EntryLayout(PacketLayout, frozen=True):
    node: int
    address: str
    info: bytes
    filled: bool
    old_ring: tuple[int, int] | None
    old_members_digest: bytes
    aru: int
    high_delivered: int
    received_flg: bool
    obligation: bytes
    timestamp: int


class CommitLayout(PacketLayout, frozen=True):
    """The representative is the node of the first entry, so of the ring's id only the sequence travels."""

    nodes: Nodes
    ring_seq: int
    rotation: int
    token_seq: int
    sender: int
    target: int
    attempt: int
    cause: CauseLayout
    entries: Annotated[tuple[EntryLayout, ...], msgspec.Meta(min_length=1, max_length=MEMBERS_MAX)]


class _Commit(NamedTuple):
    ring: RingId
    rotation: int
    token_seq: int
    sender: int
    target: int
    attempt: int
    cause: Cause
    entries: tuple[CommitEntry, ...]


class Commit(_Commit, ControlPacket, kind=KIND_COMMIT, layout=CommitLayout):
    """Entries stand in ring order, the representative first; `sender` and `target` are indices into them."""

    __slots__ = ()

    def to_layout(self) -> CommitLayout:
        assert self.ring.rep == self.entries[0].node, "the representative leads the ring order"
        cause = self.cause
        accuser = () if cause.accuser is None else (cause.accuser,)
        old_reps = [entry.old_ring.rep for entry in self.entries if entry.old_ring is not None]
        obliged = (entry.obligation for entry in self.entries)
        table = NodeTable.of((entry.node for entry in self.entries), accuser, cause.accused, old_reps, *obliged)
        entries = tuple(_entry_layout(entry, table) for entry in self.entries)
        return CommitLayout(
            table.nodes,
            self.ring.seq,
            self.rotation,
            self.token_seq,
            self.sender,
            self.target,
            self.attempt,
            cause_layout(cause, table),
            entries,
        )

    @classmethod
    def from_layout(cls, layout: CommitLayout) -> Self:
        table = NodeTable.received(layout.nodes)
        require(layout.rotation in (1, 2), "rotation", f"rotation {layout.rotation}")
        require_counters(layout.ring_seq, layout.token_seq, layout.attempt)
        require(0 <= layout.sender < len(layout.entries), "rank", f"sender {layout.sender} of {len(layout.entries)} entries")
        require(0 <= layout.target < len(layout.entries), "rank", f"target {layout.target} of {len(layout.entries)} entries")
        entries = tuple(_entry(entry, table) for entry in layout.entries)
        require(len({entry.node for entry in entries}) == len(entries), "entries", "a node has two entries")
        ring = RingId(layout.ring_seq, entries[0].node)
        cause = cause_of(layout.cause, table)
        return cls(ring, layout.rotation, layout.token_seq, layout.sender, layout.target, layout.attempt, cause, entries)


def _entry_layout(entry: CommitEntry, table: NodeTable) -> EntryLayout:
    old = entry.old_ring
    return EntryLayout(
        table.rank(entry.node),
        entry.address,
        entry.info,
        entry.filled,
        None if old is None else (old.seq, table.rank(old.rep)),
        entry.old_members_digest,
        entry.aru,
        entry.high_delivered,
        entry.received_flg,
        table.bitmap(entry.obligation),
        entry.timestamp,
    )


def _entry(entry: EntryLayout, table: NodeTable) -> CommitEntry:
    require_about_node(entry.address, entry.info)
    require_counters(entry.aru, entry.high_delivered, entry.timestamp)
    require(len(entry.old_members_digest) in (0, DIGEST_SIZE), "digest", f"a digest of {len(entry.old_members_digest)} bytes")
    return CommitEntry(
        table.node(entry.node),
        entry.address,
        entry.info,
        entry.filled,
        _old_ring(entry.old_ring, table),
        entry.old_members_digest,
        entry.aru,
        entry.high_delivered,
        entry.received_flg,
        table.members(entry.obligation),
        entry.timestamp,
    )


def _old_ring(old: tuple[int, int] | None, table: NodeTable) -> RingId | None:
    if old is None:
        return None
    require_counters(old[0])
    return RingId(old[0], table.node(old[1]))


# --- wake -------------------------------------------------------------------------------------------------------------

KIND_WAKE: Final = 6

_WAKE: Final = struct.Struct(">QQQ")
"""Sequence and boot of the ring's tag, then token_seq."""


class _Wake(NamedTuple):
    ring: RingTag
    token_seq: int


class Wake(_Wake, ControlPacket, kind=KIND_WAKE):
    """The sender has something to send: the representative should let a held token go."""

    __slots__ = ()

    def to_bytes(self) -> bytes:
        return _WAKE.pack(*self.ring, self.token_seq)

    @classmethod
    def parse(cls, body: bytes) -> Self:
        require(len(body) == 1 + _WAKE.size, "length", f"a wake of {len(body)} bytes")
        ring_seq, boot, token_seq = _WAKE.unpack_from(body, 1)
        require(ring_seq <= COUNTER_MAX, "counter", "a ring sequence out of range")
        require(token_seq <= COUNTER_MAX, "counter", "a token sequence out of range")
        return cls(RingTag(ring_seq, boot), token_seq)
