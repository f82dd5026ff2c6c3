"""The header of a data datagram: where it belongs in the order, and nothing about what is inside.

Big-endian layout, 52 bytes. What all datagrams of one burst share comes first, what counts up comes last, so that a
ramp of datagrams is recognised by comparing a byte string and three numbers of each (burst.py):

    kind u8 | class u8 | flags u8 (bit 0 encapsulated) | sender u16 | ring sequence u64 | ring boot u64 | round u32
    | timestamp u64 | time u64   ... 41 bytes, then ...   seq u64 | index u16 | last u8

Rule: counters that a peer may send end at COUNTER_MAX, far below 2^64, so that adding to a received one cannot
overflow what this node encodes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from transis.types.errors import Rejection
from transis.types.ids import DatagramClass, RingTag
from transis.types.limits import MEMBERS_MAX
from transis.wire.envelope import ENVELOPE_SIZE, SEAL_SIZE

KIND_DATA: Final = 1
COUNTER_MAX: Final = 1 << 62
INDEX_MAX: Final = (1 << 16) - 1
FLAG_ENCAPSULATED: Final = 1
FORWARDING_RESERVE: Final = 32
"""Bytes kept free for the wrapper with which gateways will forward between rings."""

_LAYOUT: Final = struct.Struct(">BBBHQQIQQQHB")
_RAMP: Final = struct.Struct(">QHB")
_CLASSES: Final = {int(klass): klass for klass in DatagramClass}
DATA_HEADER_SIZE: Final = _LAYOUT.size
RAMP_OFFSET: Final = DATA_HEADER_SIZE - _RAMP.size
"""Where the counting part starts: seq, index, last."""
FLAGS_OFFSET: Final = 2
LAST_OFFSET: Final = DATA_HEADER_SIZE - 1


class DataHeader(NamedTuple):
    """`index` is the datagram's rank in its sender's visit of that stream, `last` marks the visit's end."""

    klass: DatagramClass
    ring: RingTag
    sender: int
    seq: int
    round: int
    timestamp: int
    time_us: int
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody wants of a header
    last: bool
    encapsulated: bool


def body_max(datagram: int) -> int:
    """What a UDP payload leaves for a body. Recovery wraps a datagram in a second header: reserved always.

    Otherwise a full datagram could be sent but never be recovered (traps 22).
    """
    return datagram - ENVELOPE_SIZE - SEAL_SIZE - 2 * DATA_HEADER_SIZE - FORWARDING_RESERVE


def encode_data(header: DataHeader, body: bytes) -> bytes:
    klass, ring, sender, seq, round_, timestamp, time_us, index, last, encapsulated = header
    return (
        _LAYOUT.pack(KIND_DATA, klass, encapsulated, sender, ring[0], ring[1], round_, timestamp, time_us, seq, index, last)
        + body
    )


def encode_ramp(header: DataHeader, bodies: Sequence[bytes], ends_visit: bool) -> list[bytes]:
    """The datagrams of one burst, which begins with this header."""
    shared, seq, index = encode_data(header, b"")[:RAMP_OFFSET], header.seq, header.index
    datagrams = [shared + _RAMP.pack(seq + ahead, index + ahead, 0) + body for ahead, body in enumerate(bodies[:-1])]
    ahead = len(datagrams)
    return [*datagrams, shared + _RAMP.pack(seq + ahead, index + ahead, ends_visit) + bodies[-1]]


read_ramp: Final = _RAMP.unpack_from
"""(seq, index, last) of a datagram, at RAMP_OFFSET."""


def decode_data_header(datagram: bytes | memoryview, start: int = 0) -> DataHeader | Rejection:
    """Of a datagram that begins there."""
    if len(datagram) - start < DATA_HEADER_SIZE:
        return Rejection("length", f"{len(datagram) - start} bytes are shorter than a data header")
    fields = _LAYOUT.unpack_from(datagram, start)
    kind, klass, flags, sender, ring_seq, boot, round_, timestamp, time_us, seq, index, last = fields
    if kind != KIND_DATA:
        return Rejection("kind", f"kind {kind} is not data")
    if klass not in _CLASSES or flags > FLAG_ENCAPSULATED or last > 1:
        return Rejection("flags", f"class {klass}, flags {flags:#04x}, last {last}")
    if sender >= MEMBERS_MAX:
        return Rejection("sender", f"rank {sender} is beyond {MEMBERS_MAX} members")
    if not 1 <= seq <= COUNTER_MAX:
        return Rejection("seq", f"sequence number {seq}")
    if ring_seq > COUNTER_MAX or timestamp > COUNTER_MAX or time_us > COUNTER_MAX:
        return Rejection("counter", f"ring sequence {ring_seq}, timestamp {timestamp}, time {time_us}")
    ring = RingTag(ring_seq, boot)
    return DataHeader(_CLASSES[klass], ring, sender, seq, round_, timestamp, time_us, index, last == 1, flags == 1)
