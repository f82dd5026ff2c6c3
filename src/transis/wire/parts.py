"""Control packets larger than one datagram travel in parts (design 5).

A part is: kind u8 | kind of the whole u8 | packet id u64 | i u16 | n u16, then its share of the bytes.

1. There is one reassembly per transmitter and packet kind; a newer id evicts, an older one is ignored.
2. A packet that is sent again keeps its id, so parts that were lost are filled in by the repetition.
3. Memory grows with bytes received only: the claimed number of parts is compared, never set aside.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from typing import Final, NamedTuple

from transis.types.errors import Rejection
from transis.types.limits import MEMBERS_MAX, PARTS_MAX
from transis.wire.header import COUNTER_MAX

KIND_PART: Final = 9
CONTROL_MAX: Final = 256 * 1024
"""Bytes of one control packet: twice what 512 known nodes with all their rows need."""
REASSEMBLIES_MAX: Final = 4 * MEMBERS_MAX

_LAYOUT: Final = struct.Struct(">BBQHH")


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
    room = limit - _LAYOUT.size
    assert room > 0, f"a limit of {limit} bytes leaves no room beside the part header"
    count = -(-len(payload) // room)
    assert count <= PARTS_MAX, f"a control packet of {len(payload)} bytes needs {count} parts"
    assert len(payload) <= CONTROL_MAX, f"a control packet of {len(payload)} bytes"
    return [
        _LAYOUT.pack(KIND_PART, payload[0], packet_id, index, count) + payload[index * room : (index + 1) * room]
        for index in range(count)
    ]


def _read_part(body: bytes) -> _Part | Rejection:
    if len(body) <= _LAYOUT.size:
        return Rejection("length", f"{len(body)} bytes are no part of anything")
    _, kind, packet_id, index, count = _LAYOUT.unpack_from(body)
    if kind == KIND_PART:
        return Rejection("kind", "a part of parts")
    if packet_id > COUNTER_MAX:
        return Rejection("packet id", f"packet id {packet_id}")
    if not 2 <= count <= PARTS_MAX or index >= count:
        return Rejection("parts", f"part {index} of {count}")
    return _Part(kind, packet_id, index, count, body[_LAYOUT.size :])


class PartAssembler:
    """Puts packets together again. The least recently heard transmitter is forgotten first."""

    __slots__ = ("_reassemblies",)

    def __init__(self) -> None:
        self._reassemblies: OrderedDict[tuple[bytes, int], _Reassembly] = OrderedDict()

    def __len__(self) -> int:
        return len(self._reassemblies)

    def feed(self, transmitter: bytes, body: bytes) -> bytes | Rejection | None:
        """The whole packet once it is complete; a body that is no part is whole already."""
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
