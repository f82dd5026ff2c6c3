"""ALIVE, the "I am alive" of transis-design-1995 section 3: unnumbered, never acknowledged or stored, harmless when lost or old.

Big-endian layout: kind u8 (10) | view tag u64 u64 | sender u16 | flags u8 (bit 0 frozen) | sent u64 | clock u64
| members u8 | one counter u64 for each member | nacks u8 | rank u8, first u64, count u16 for each nack.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from transis.types.errors import Rejection
from transis.types.ids import RingTag
from transis.types.limits import MEMBERS_MAX
from transis.wire.acks import NACK_RANGES_MAX, Nack, decode_nacks, encode_nacks
from transis.wire.header import COUNTER_MAX
from transis.wire.items import NACK_SIZE

KIND_ALIVE: Final = 10
FLAG_FROZEN: Final = 1

_ALIVE_HEAD: Final = struct.Struct(">BQQHBQQB")
_COUNTER_SIZE: Final = 8


class Alive(NamedTuple):
    """1. `sender` is a rank of the view of the tag, below len(recv). 2. `recv` has one counter for each rank.

    `sent` is the sender's own last counter, `clock` its Lamport clock: what it sends later is stamped above it.
    """

    tag: RingTag
    sender: int
    frozen: bool
    """The sender has made a statement about the next view: `recv` and `clock` stay what they were then."""
    sent: int
    clock: int
    recv: tuple[int, ...]
    nacks: tuple[Nack, ...]


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
