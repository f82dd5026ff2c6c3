"""Control packets <-> bytes: one byte of kind, then a msgpack array checked against a typed layout (layouts.py).

1. The kind byte is the tag. Kinds are only ever appended to the list; a layout never changes under the same kind.
2. msgspec checks types and bounds the length of every array before it makes room for it; this file checks meaning:
   names, tables in order, ranks within tables, sizes of digests, counters that leave room to count on.
3. Encoding is canonical: equal packets give equal bytes in every process (bitmaps over a sorted table, no sets).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache
from hashlib import sha256
from typing import Any, Final

import msgspec

from transis.model.ids import RingId, RingTag
from transis.wire.causes import DIGEST_SIZE, cause_layout, cause_of, require_signature
from transis.wire.envelope import WIRE_VERSION
from transis.wire.header import COUNTER_MAX
from transis.wire.lansis_control import DECODERS as LANSIS_DECODERS
from transis.wire.lansis_control import ENCODERS as LANSIS_ENCODERS
from transis.wire.layouts import (
    BeaconLayout,
    CommitLayout,
    EntryLayout,
    JoinLayout,
    Layout,
    ProbeAnswerLayout,
    ProbeLayout,
    RowLayout,
)
from transis.wire.nodetable import (
    NodeTable,
    Refused,
    require,
    require_about_node,
    require_counters,
    require_node,
)
from transis.wire.packets import (
    VERDICTS,
    Beacon,
    Commit,
    CommitEntry,
    ControlPacket,
    Join,
    Probe,
    ProbeAnswer,
    Row,
    Wake,
)
from transis.wire.parts import CONTROL_MAX
from transis.wire.rejection import Rejection

__all__ = [
    "Beacon",
    "Commit",
    "CommitEntry",
    "ControlPacket",
    "Join",
    "Probe",
    "ProbeAnswer",
    "Row",
    "Wake",
    "config_digest",
    "decode_control",
    "encode_control",
]

KIND_JOIN: Final = 3
KIND_COMMIT: Final = 4
KIND_BEACON: Final = 5
KIND_WAKE: Final = 6
KIND_PROBE: Final = 7
KIND_PROBE_ANSWER: Final = 8
# 9 is KIND_PART of parts.py, 10 KIND_ALIVE of alive.py; from 11 on they are those of lansis_control.py.

_WAKE: Final = struct.Struct(">BQQQ")


def config_digest(fields: tuple[object, ...]) -> bytes:
    """What two nodes must agree on to read each other, in 8 bytes; the wire version is part of it."""
    return sha256(msgspec.msgpack.encode((WIRE_VERSION, *fields))).digest()[:DIGEST_SIZE]


def encode_control(packet: ControlPacket) -> bytes:
    kind, layout = _ENCODERS[type(packet)]
    if isinstance(packet, Wake):
        return _WAKE.pack(kind, *packet.ring, packet.token_seq)
    return bytes((kind,)) + msgspec.msgpack.encode(layout(packet))


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


def _decode_wake(body: bytes) -> Wake:
    require(len(body) == _WAKE.size, "length", f"a wake of {len(body)} bytes")
    _, ring_seq, boot, token_seq = _WAKE.unpack(body)
    require(ring_seq <= COUNTER_MAX, "counter", "a ring sequence out of range")
    require(token_seq <= COUNTER_MAX, "counter", "a token sequence out of range")
    return Wake(RingTag(ring_seq, boot), token_seq)


def _decode_probe(body: bytes) -> Probe:
    layout = _PROBE_DECODER.decode(memoryview(body)[1:])
    require_about_node(layout.address, b"")
    return Probe(require_node(layout.sender), layout.address)


def _decode_probe_answer(body: bytes) -> ProbeAnswer:
    layout = _PROBE_ANSWER_DECODER.decode(memoryview(body)[1:])
    require(layout.verdict in VERDICTS, "verdict", "a verdict that is none")
    require_counters(layout.known_incarnation)
    return ProbeAnswer(require_node(layout.about), require_node(layout.by), layout.verdict, layout.known_incarnation)


_JOIN_DECODER: Final = msgspec.msgpack.Decoder(JoinLayout)
_COMMIT_DECODER: Final = msgspec.msgpack.Decoder(CommitLayout)
_BEACON_DECODER: Final = msgspec.msgpack.Decoder(BeaconLayout)
_PROBE_DECODER: Final = msgspec.msgpack.Decoder(ProbeLayout)
_PROBE_ANSWER_DECODER: Final = msgspec.msgpack.Decoder(ProbeAnswerLayout)

_ENCODERS: Final[dict[type, tuple[int, Callable[[Any], Layout | Wake]]]] = {
    Join: (KIND_JOIN, _join_layout),
    Commit: (KIND_COMMIT, _commit_layout),
    Beacon: (KIND_BEACON, _beacon_layout),
    Wake: (KIND_WAKE, lambda wake: wake),
    Probe: (KIND_PROBE, lambda probe: ProbeLayout(*probe)),
    ProbeAnswer: (KIND_PROBE_ANSWER, lambda answer: ProbeAnswerLayout(*answer)),
    **LANSIS_ENCODERS,
}
_DECODERS: Final[dict[int, Callable[[bytes], ControlPacket]]] = {
    KIND_JOIN: _decode_join,
    KIND_COMMIT: _decode_commit,
    KIND_BEACON: _decode_beacon,
    KIND_WAKE: _decode_wake,
    KIND_PROBE: _decode_probe,
    KIND_PROBE_ANSWER: _decode_probe_answer,
    **LANSIS_DECODERS,
}
