"""A burst: consecutive datagrams of one sender as one object, from socket to application.

1. The headers of a burst differ only in `seq` and `index`, which both count up by one, and in `last`, which only the final
   datagram may have set. The header says where a datagram belongs in the order, and nothing about what is inside.
2. Bursts are immutable. The raw datagrams are kept as they came, so that a retransmission is byte-identical with the original. If
   they came in one piece, they are views of it. Slices of a burst share them; to keep a slice, copy it with `by_itself`, so that
   one datagram does not hold a piece of many in memory.
3. A peer may send counters up to COUNTER_MAX, far below 2^64, so that adding to one cannot overflow what this node encodes.

The header, big-endian, 52 bytes. The part that all datagrams of a burst share comes first, the part that counts up (the ramp)
last, so that a burst is recognised by comparing one byte string and three numbers of each datagram:

    kind u8 | class u8 | flags u8 (bit 0 encapsulated) | sender u16 | ring sequence u64 | ring boot u64 | round u32
    | timestamp u64 | time u64   ... 41 bytes, then ...   seq u64 | index u16 | last u8
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from transis.types.errors import Rejection
from transis.types.ids import DatagramClass, RingTag
from transis.types.limits import MEMBERS_MAX
from transis.wire.envelope import ENVELOPE_SIZE, SEAL_SIZE, Segments

# --- header -----------------------------------------------------------------------------------------------------------

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
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody needs here
    last: bool
    encapsulated: bool


def body_max(datagram: int) -> int:
    """What a UDP payload leaves for a body. Room for the second header that recovery wraps around a datagram is always kept.

    Otherwise a full datagram could be sent but never be recovered (trap 22).
    """
    return datagram - ENVELOPE_SIZE - SEAL_SIZE - 2 * DATA_HEADER_SIZE - FORWARDING_RESERVE


def encode_data(header: DataHeader, body: bytes) -> bytes:
    klass, ring, sender, seq, round_, timestamp, time_us, index, last, encapsulated = header
    return (
        _LAYOUT.pack(KIND_DATA, klass, encapsulated, sender, ring[0], ring[1], round_, timestamp, time_us, seq, index, last)
        + body
    )


def encode_ramp(header: DataHeader, bodies: Sequence[bytes], ends_visit: bool) -> list[bytes]:
    """The datagrams of the burst that begins with this header."""
    shared, seq, index = encode_data(header, b"")[:RAMP_OFFSET], header.seq, header.index
    datagrams = [shared + _RAMP.pack(seq + ahead, index + ahead, 0) + body for ahead, body in enumerate(bodies[:-1])]
    ahead = len(datagrams)
    return [*datagrams, shared + _RAMP.pack(seq + ahead, index + ahead, ends_visit) + bodies[-1]]


read_ramp: Final = _RAMP.unpack_from
"""Read (seq, index, last) of a datagram, at RAMP_OFFSET."""


def decode_data_header(datagram: bytes | memoryview, start: int = 0) -> DataHeader | Rejection:
    """The header of the datagram that begins at `start`."""
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


# --- burst ------------------------------------------------------------------------------------------------------------


class Burst:
    """Consecutive datagrams of one sender; see the head of the file for its invariants."""

    __slots__ = ("datagrams", "first_seq", "header", "last_seq")

    header: DataHeader
    first_seq: int
    last_seq: int

    def __init__(self, header: DataHeader, datagrams: Sequence[bytes | memoryview]) -> None:
        assert datagrams, "a burst has at least one datagram"
        self.datagrams = tuple(datagrams)
        self.header = header
        self.first_seq = header.seq
        self.last_seq = header.seq + len(datagrams) - 1

    def __len__(self) -> int:
        return len(self.datagrams)

    def __repr__(self) -> str:
        return f"Burst({self.klass.name} of {self.sender}, {self.first_seq}..{self.last_seq})"

    @property
    def ring(self) -> RingTag:
        return self.header.ring

    @property
    def sender(self) -> int:
        return self.header.sender

    @property
    def klass(self) -> DatagramClass:
        return self.header.klass

    @property
    def encapsulated(self) -> bool:
        return self.header.encapsulated

    @property
    def size(self) -> int:
        return sum(map(len, self.datagrams))

    @property
    def ends_visit(self) -> bool:
        return self.datagrams[-1][LAST_OFFSET] != 0

    def datagram(self, seq: int) -> bytes:
        assert self.first_seq <= seq <= self.last_seq, f"{seq} is not in {self!r}"
        return bytes(self.datagrams[seq - self.first_seq])

    def bodies(self) -> Sequence[memoryview]:
        return [
            (datagram if isinstance(datagram, memoryview) else memoryview(datagram))[DATA_HEADER_SIZE:]
            for datagram in self.datagrams
        ]

    def by_itself(self) -> Burst:
        """A copy in memory of its own."""
        return Burst(self.header, [bytes(datagram) for datagram in self.datagrams])

    def joined(self, after: Burst) -> Burst | None:
        """Both bursts as one, if `after` continues where this one ends; otherwise None."""
        header, its = self.header, after.header
        if self.ends_visit or its.seq != self.last_seq + 1 or its.index != header.index + len(self):
            return None
        if its._replace(seq=header.seq, index=header.index, last=header.last) != header:
            return None
        return Burst(header, self.datagrams + after.datagrams)

    def slice(self, first_seq: int, last_seq: int) -> Burst:
        """The datagrams from first_seq to last_seq, both included; the burst itself if that is all of them."""
        if first_seq == self.first_seq and last_seq == self.last_seq:
            return self
        assert self.first_seq <= first_seq, f"{first_seq} is before {self!r}"
        assert first_seq <= last_seq, "an empty slice is not a burst"
        assert last_seq <= self.last_seq, f"{last_seq} is behind {self!r}"
        start = first_seq - self.first_seq
        datagrams = self.datagrams[start : last_seq - self.first_seq + 1]
        header = self.header
        if start:
            last = datagrams[0][LAST_OFFSET] != 0
            header = header._replace(seq=first_seq, index=header.index + start, last=last)
        return Burst(header, datagrams)

    def check(self) -> None:
        """Assert the invariants: every datagram carries the header that its place in the ramp demands."""
        for offset, datagram in enumerate(self.datagrams):
            final = offset == len(self) - 1
            expected = self.header._replace(
                seq=self.first_seq + offset, index=self.header.index + offset, last=final and self.ends_visit
            )
            assert decode_data_header(datagram) == expected, f"datagram {offset} of {self!r} breaks the ramp"


def read_bursts(datagrams: Sequence[bytes]) -> tuple[list[Burst], list[Rejection]]:
    """Group arrivals into bursts, in order of arrival. An arrival that is not a data datagram is rejected by itself."""
    bursts: list[Burst] = []
    rejections: list[Rejection] = []
    start = 0
    while start < len(datagrams):
        header = decode_data_header(datagrams[start])
        if isinstance(header, Rejection):
            rejections.append(header)
            start += 1
            continue
        end = _ramp_end(datagrams, start, header)
        bursts.append(Burst(header, datagrams[start:end]))
        start = end
    return bursts, rejections


def read_whole(segments: Segments, start: int) -> Burst | None:
    """Read a piece as one burst, without a copy; None if it is not one. The data begins `start` bytes into each datagram."""
    content, size = segments.content, segments.size
    header = decode_data_header(content, start)
    starts = range(start, len(content), size)
    if isinstance(header, Rejection) or len(starts) < len(segments) or len(content) - starts[-1] < DATA_HEADER_SIZE:
        return None
    if not _is_ramp(content, header, starts):
        return None
    view = memoryview(content)
    return Burst(header, [view[at : at + size - start] for at in starts])


def _is_ramp(content: bytes, header: DataHeader, starts: range) -> bool:
    """Do the headers at `starts` differ from the first only as those of a burst do?"""
    count = len(starts)
    if header.index + count - 1 > INDEX_MAX:
        return False
    shared = content[starts[0] : starts[0] + RAMP_OFFSET]
    ramp = [read_ramp(content, start + RAMP_OFFSET) for start in starts]
    ends_visit = min(1, ramp[-1][2])
    seqs, indexes = range(header.seq, header.seq + count), range(header.index, header.index + count)
    return ramp == list(zip(seqs, indexes, [0] * (count - 1) + [ends_visit], strict=True)) and False not in [
        content.startswith(shared, start) for start in starts
    ]


def _ramp_end(datagrams: Sequence[bytes], start: int, header: DataHeader) -> int:
    """Where the ramp that begins at `start` ends. Headers are compared as bytes and numbers: none but the first is decoded."""
    if header.last:
        return start + 1
    end = min(len(datagrams), start + 1 + INDEX_MAX - header.index)
    shared = datagrams[start][:RAMP_OFFSET]
    seq, index = header.seq - start, header.index - start
    for position in range(start + 1, end):
        datagram = datagrams[position]
        if len(datagram) < DATA_HEADER_SIZE or not datagram.startswith(shared):
            return position
        found_seq, found_index, last = read_ramp(datagram, RAMP_OFFSET)
        if found_seq != seq + position or found_index != index + position or last > 1:
            return position
        if last:
            return position + 1
    return end


def encapsulate(header: DataHeader, old: bytes) -> bytes:
    """A whole datagram of the old ring as the body of one on the new ring, so that it is recovered exactly as it was."""
    assert header.encapsulated, "the header of an encapsulating datagram says so"
    return encode_data(header, old)


def decapsulate(burst: Burst) -> tuple[list[Burst], list[Rejection]]:
    """The old ring's bursts inside. An encapsulated datagram is never encapsulated again, so nesting is rejected."""
    assert burst.encapsulated, "only an encapsulating burst has datagrams inside"
    rejections: list[Rejection] = []
    inner: list[bytes] = []
    for body in burst.bodies():
        if len(body) > FLAGS_OFFSET and body[FLAGS_OFFSET] != 0:
            rejections.append(Rejection("encapsulated", "an encapsulated datagram inside another"))
        else:
            inner.append(bytes(body))
    bursts, malformed = read_bursts(inner)
    return bursts, rejections + malformed
