"""The regular token of the ring (TOCS95 sec. 4), with retransmission requests as ranges.

Big-endian layout: kind u8 | flags u8 (bit 0 retrans_flg) | sender u16 | target u16 | ring sequence u64 | ring boot u64
| token_seq u64 | round u32 | seq u64 | aru u64 | aru_id u16 | fcc u32 | backlog u64 | timestamp u64 | ranges u8, then six
bytes a range: how far its end lies behind seq (u24), how far its start lies behind its end (u24).

Requests count backwards from seq because that bounds them by the window whatever aru does; six bytes let a token
with RTR_RANGES_MAX ranges fit the smallest datagram a configuration may choose.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Final

from transis.types.errors import Rejection
from transis.types.ids import RingTag
from transis.types.limits import MEMBERS_MAX, RTR_RANGES_MAX
from transis.wire.header import COUNTER_MAX

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
