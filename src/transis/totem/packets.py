"""Token, Join, Commit, Wake and their layouts (Beacon, Probe go to wire/control).

The regular token of the ring (TOCS95 sec. 4), with retransmission requests as ranges.

Big-endian layout: kind u8 | flags u8 (bit 0 retrans_flg) | sender u16 | target u16 | ring sequence u64 | ring boot u64
| token_seq u64 | round u32 | seq u64 | aru u64 | aru_id u16 | fcc u32 | backlog u64 | timestamp u64 | ranges u8, then six
bytes a range: how far its end lies behind seq (u24), how far its start lies behind its end (u24).

Requests count backwards from seq because that bounds them by the window whatever aru does; six bytes let a token
with RTR_RANGES_MAX ranges fit the smallest datagram a configuration may choose.

Control packets of the ring and how they lie on the wire.

Rows, proposals and attempts serve reachability and blame as common knowledge (W7, W8); obligations and flags of a
commit entry are those of TOCS95 sec. 5 with the corrections F1 and W3.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Annotated, Final, NamedTuple

import msgspec

from transis.types.errors import Rejection
from transis.types.ids import NodeId, RingId, RingTag
from transis.types.limits import MEMBERS_MAX, PROC_SET_MAX, RTR_RANGES_MAX
from transis.types.views import Cause
from transis.wire.burst import COUNTER_MAX
from transis.wire.control import (
    DIGEST_SIZE,
    CauseLayout,
    Layout,
    Nodes,
    NodeTable,
    Role,
    cause_layout,
    cause_of,
    register,
    require,
    require_about_node,
    require_counters,
    require_signature,
)

# --- token ------------------------------------------------------------------------------------------------------------

KIND_TOKEN: Final = 2
NOBODY: Final = 0xFFFF
"""aru_id when nobody has lowered aru."""

_LAYOUT: Final = struct.Struct(">BBHHQQQIQQHIQQB")
_RANGE_SIZE: Final = 6
_DISTANCE_END: Final = 1 << 24
TOKEN_SIZE_MAX: Final = _LAYOUT.size + _RANGE_SIZE * RTR_RANGES_MAX


@dataclass(slots=True)
class Token:
    """`sender` and `target` are ranks: a token sent by multicast says whom it is for (W8).

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


def encode_token(token: Token) -> bytes:
    assert len(token.rtr) <= RTR_RANGES_MAX, f"{len(token.rtr)} ranges on one token"
    assert token.aru <= token.seq, f"aru {token.aru} is beyond seq {token.seq}"
    ring_seq, boot = token.ring
    head = _LAYOUT.pack(
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
    if len(body) < _LAYOUT.size:
        return Rejection("length", f"{len(body)} bytes are shorter than a token")
    (kind, flags, sender, target, ring_seq, boot, token_seq, round_, seq, aru, aru_id, fcc, backlog, timestamp, count) = (
        _LAYOUT.unpack_from(body)
    )
    if kind != KIND_TOKEN or flags > 1:
        return Rejection("kind", f"kind {kind} with flags {flags:#04x} is not a token")
    if sender >= MEMBERS_MAX or target >= MEMBERS_MAX or (aru_id >= MEMBERS_MAX and aru_id != NOBODY):
        return Rejection("rank", f"sender {sender}, target {target}, aru_id {aru_id}")
    if max(ring_seq, token_seq, seq, backlog, timestamp) > COUNTER_MAX or fcc >= 1 << 31:
        return Rejection("counter", "a counter beyond anything a ring reaches")
    if aru > seq:
        return Rejection("aru", f"aru {aru} is beyond seq {seq}")
    ranges = _decode_ranges(body, count, seq) if count or len(body) != _LAYOUT.size else []
    if isinstance(ranges, Rejection):
        return ranges
    ring = RingTag(ring_seq, boot)
    return Token(ring, sender, target, token_seq, round_, seq, aru, aru_id, fcc, backlog, flags == 1, timestamp, ranges)


def _decode_ranges(body: bytes, count: int, seq: int) -> list[tuple[int, int]] | Rejection:
    if count > RTR_RANGES_MAX or len(body) != _LAYOUT.size + count * _RANGE_SIZE:
        return Rejection("ranges", f"{count} ranges in {len(body)} bytes")
    ranges: list[tuple[int, int]] = []
    before = 0
    for start in range(_LAYOUT.size, len(body), _RANGE_SIZE):
        distances = int.from_bytes(body[start : start + _RANGE_SIZE])
        last = seq - (distances >> 24)
        first = last - distances % _DISTANCE_END
        if first <= before:
            return Rejection("ranges", f"range {first}..{last} does not follow {before}")
        ranges.append((first, last))
        before = last
    return ranges


# --- packets ----------------------------------------------------------------------------------------------------------

KIND_JOIN: Final = 3
KIND_COMMIT: Final = 4
KIND_WAKE: Final = 6

_WAKE: Final = struct.Struct(">QQQ")


class Row(NamedTuple):
    """Whom `node` does not hear, by its own word; `version` is the number of its Gather, `beat` counts its Joins in it."""

    node: NodeId
    version: int
    beat: int
    unheard: frozenset[NodeId]


class Join(NamedTuple):
    """`rows` are sorted by node. `attempt_*` name the last ring tried and the highest commit index seen in it."""

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


class CommitEntry(NamedTuple):
    """What one member says of itself while the commit token passes; `filled` tells said from not yet said."""

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


class Commit(NamedTuple):
    """Entries stand in ring order, the representative first; `sender` and `target` are indices into them."""

    ring: RingId
    rotation: int
    token_seq: int
    sender: int
    target: int
    attempt: int
    cause: Cause
    entries: tuple[CommitEntry, ...]


class Wake(NamedTuple):
    """Somebody has something to send: the representative should let a held token go."""

    ring: RingTag
    token_seq: int


class RowLayout(Layout, frozen=True):
    node: int
    version: int
    beat: int
    unheard: bytes


class JoinLayout(Layout, frozen=True):
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


class EntryLayout(Layout, frozen=True):
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


class CommitLayout(Layout, frozen=True):
    """The ring's representative is the first entry's node, so only the ring's sequence travels."""

    nodes: Nodes
    ring_seq: int
    rotation: int
    token_seq: int
    sender: int
    target: int
    attempt: int
    cause: CauseLayout
    entries: Annotated[tuple[EntryLayout, ...], msgspec.Meta(min_length=1, max_length=MEMBERS_MAX)]


def _join_layout(join: Join) -> JoinLayout:
    unheard = (row.unheard for row in join.rows)
    known = (row.node for row in join.rows)
    table = NodeTable.of((join.sender,), join.proc_set, join.fail_set, join.proposal, known, *unheard)
    rows = tuple(RowLayout(table.rank(row.node), row.version, row.beat, table.bitmap(row.unheard)) for row in join.rows)
    return JoinLayout(
        table.nodes,
        table.rank(join.sender),
        join.address,
        join.info,
        join.ring_seq,
        table.bitmap(join.proc_set),
        table.bitmap(join.fail_set),
        table.bitmap(join.proposal),
        rows,
        join.attempt_seq,
        join.attempt_index,
        join.leaving,
        join.timestamp,
        join.digest,
        join.versions,
    )


def _commit_layout(commit: Commit) -> CommitLayout:
    assert commit.ring.rep == commit.entries[0].node, "the representative leads the ring order"
    cause = commit.cause
    accuser = () if cause.accuser is None else (cause.accuser,)
    old_reps = [entry.old_ring.rep for entry in commit.entries if entry.old_ring is not None]
    obliged = (entry.obligation for entry in commit.entries)
    table = NodeTable.of((entry.node for entry in commit.entries), accuser, cause.accused, old_reps, *obliged)
    entries = tuple(_entry_layout(entry, table) for entry in commit.entries)
    return CommitLayout(
        table.nodes,
        commit.ring.seq,
        commit.rotation,
        commit.token_seq,
        commit.sender,
        commit.target,
        commit.attempt,
        cause_layout(cause, table),
        entries,
    )


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


def _decode_join(body: bytes) -> Join:
    layout = _JOIN_DECODER.decode(memoryview(body)[1:])
    table = NodeTable.received(layout.nodes)
    require_about_node(layout.address, layout.info)
    require_counters(layout.ring_seq, layout.attempt_seq, layout.attempt_index, layout.timestamp)
    require_signature(layout.digest, layout.versions)
    rows = tuple(_row(row, table) for row in layout.rows)
    ranks = [row.node for row in layout.rows]
    require(all(map(int.__lt__, ranks, ranks[1:])), "rows", "rows are not sorted by node")
    return Join(
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


def _decode_commit(body: bytes) -> Commit:
    layout = _COMMIT_DECODER.decode(memoryview(body)[1:])
    table = NodeTable.received(layout.nodes)
    require(layout.rotation in (1, 2), "rotation", f"rotation {layout.rotation}")
    require_counters(layout.ring_seq, layout.token_seq, layout.attempt)
    require(0 <= layout.sender < len(layout.entries), "rank", f"sender {layout.sender} of {len(layout.entries)} entries")
    require(0 <= layout.target < len(layout.entries), "rank", f"target {layout.target} of {len(layout.entries)} entries")
    entries = tuple(_entry(entry, table) for entry in layout.entries)
    require(len({entry.node for entry in entries}) == len(entries), "entries", "a node has two entries")
    ring = RingId(layout.ring_seq, entries[0].node)
    cause = cause_of(layout.cause, table)
    return Commit(ring, layout.rotation, layout.token_seq, layout.sender, layout.target, layout.attempt, cause, entries)


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


def _decode_wake(body: bytes) -> Wake:
    require(len(body) == 1 + _WAKE.size, "length", f"a wake of {len(body)} bytes")
    ring_seq, boot, token_seq = _WAKE.unpack_from(body, 1)
    require(ring_seq <= COUNTER_MAX, "counter", "a ring sequence out of range")
    require(token_seq <= COUNTER_MAX, "counter", "a token sequence out of range")
    return Wake(RingTag(ring_seq, boot), token_seq)


def _encode_wake(wake: Wake) -> bytes:
    return _WAKE.pack(*wake.ring, wake.token_seq)


_JOIN_DECODER: Final = msgspec.msgpack.Decoder(JoinLayout)
_COMMIT_DECODER: Final = msgspec.msgpack.Decoder(CommitLayout)

register(Join, KIND_JOIN, _join_layout, _decode_join, Role.ASKS)
register(Commit, KIND_COMMIT, _commit_layout, _decode_commit)
register(Wake, KIND_WAKE, _encode_wake, _decode_wake)
