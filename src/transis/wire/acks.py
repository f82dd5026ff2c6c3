"""ACKS: what a burst of Lansis says about other bursts, ahead of its messages (lansis-1992 3.1: they ride on data).

Big-endian layout: kind u8 (4) | dep u64 | acks u8 | nacks u8, then rank u8 | counter u64 for each ack, then
rank u8 | first u64 | count u16 for each nack.

An ack names a burst by its sender's rank and the counter of its last datagram: it is held, and everything that it follows.
A nack asks for datagrams. `dep` says how far in the total order the sender had delivered when it sent (W5).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from transis.types.errors import Rejection
from transis.types.limits import MEMBERS_MAX
from transis.wire.header import COUNTER_MAX
from transis.wire.items import ACK_SIZE, ACKS, ACKS_HEAD_SIZE, INCOMPLETE, NACK_SIZE, Incomplete

NACK_RANGES_MAX: Final = 32
"""Ranges of requests in one packet: enough for a bad moment, and an ALIVE stays one small datagram."""
NACK_COUNT_MAX: Final = (1 << 16) - 1

_ACKS_HEAD: Final = struct.Struct(">BQBB")
_ACK: Final = struct.Struct(">BQ")
_NACK: Final = struct.Struct(">BQH")


class Nack(NamedTuple):
    """Datagrams first..last of a rank are asked for."""

    rank: int
    first: int
    last: int


class Acks(NamedTuple):
    """`acks` are (rank, counter), sorted by rank, one for a rank; `nacks` are ranges of datagrams."""

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
    """All of `body`, which has a whole number of ranges."""
    nacks = []
    for rank, first, count in _NACK.iter_unpack(body):
        if rank >= MEMBERS_MAX or count == 0 or not 1 <= first <= COUNTER_MAX:
            return Rejection("nacks", f"{count} datagrams of rank {rank} from {first} on")
        nacks.append(Nack(rank, first, first + count - 1))
    return tuple(nacks)
