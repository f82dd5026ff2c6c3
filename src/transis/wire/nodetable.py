"""Node ids in control packets: each packet names every node once, and its sets are bitmaps over that table.

A Join of 128 members carries 128 rows; with ids spelled out in each it would need hundreds of parts. `Refused` is
raised inside decoders of this room only and never leaves them: it carries the rejection out of nested loops.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final

from transis.types.errors import Rejection
from transis.types.ids import NodeId
from transis.types.limits import INFO_MAX, NAME_MAX, NETWORK_ADDRESS_MAX, PROC_SET_MAX
from transis.wire.header import COUNTER_MAX

_BOOT_END: Final = 1 << 64
_EMPTY: Final[frozenset[NodeId]] = frozenset()


class Refused(Exception):
    """A field of a packet is wrong. Internal to decoders."""

    def __init__(self, field: str, why: str) -> None:
        super().__init__(why)
        self.rejection = Rejection(field, why)


def require(holds: bool, field: str, why: str) -> None:
    if not holds:
        raise Refused(field, why)


@lru_cache(maxsize=PROC_SET_MAX)
def is_valid_node(node: NodeId) -> bool:
    """Ids repeat in every packet, so the answer is remembered for as many nodes as one packet may name."""
    name, incarnation, boot = node
    return is_valid_text(name, 1, NAME_MAX) and 0 <= incarnation <= COUNTER_MAX and 0 <= boot < _BOOT_END


def is_valid_text(text: str, low: int, high: int) -> bool:
    return low <= len(text.encode("utf-8", "surrogatepass")) <= high and text.isprintable()


def require_node(node: NodeId) -> NodeId:
    require(is_valid_node(node), "node", "a node id with an unfit name or number")
    return node


def require_counters(*counters: int) -> None:
    require(min(counters) >= 0 and max(counters) <= COUNTER_MAX, "counter", "a counter out of range")


def require_about_node(address: str, info: bytes) -> None:
    require(is_valid_text(address, 0, NETWORK_ADDRESS_MAX), "address", "an address that is too long or not printable")
    require(len(info) <= INFO_MAX, "info", f"{len(info)} bytes of info")


class NodeTable:
    """The nodes of one packet, sorted and unique, and the two ways between sets and bitmaps over them."""

    __slots__ = ("_ranks", "_width", "nodes")

    def __init__(self, nodes: tuple[NodeId, ...], ranks: dict[NodeId, int]) -> None:
        self.nodes = nodes
        self._width = (len(nodes) + 7) // 8
        self._ranks = ranks

    @classmethod
    def of(cls, *groups: Iterable[NodeId]) -> NodeTable:
        """The table of everyone in these groups, for encoding."""
        nodes: set[NodeId] = set()
        nodes.update(*groups)
        assert len(nodes) <= PROC_SET_MAX, f"a packet that names {len(nodes)} nodes"
        ordered = tuple(sorted(nodes))
        return cls(ordered, {node: rank for rank, node in enumerate(ordered)})

    @classmethod
    def received(cls, nodes: tuple[NodeId, ...]) -> NodeTable:
        """The checked table of a packet, for decoding, which never asks for ranks."""
        for node in nodes:
            require_node(node)
        require(all(map(tuple.__lt__, nodes, nodes[1:])), "nodes", "the node table is not sorted and unique")
        return cls(nodes, {})

    def rank(self, node: NodeId) -> int:
        return self._ranks[node]

    def node(self, rank: int) -> NodeId:
        require(0 <= rank < len(self.nodes), "rank", f"rank {rank} in a table of {len(self.nodes)}")
        return self.nodes[rank]

    def bitmap(self, members: Iterable[NodeId]) -> bytes:
        bits = 0
        for member in members:
            bits |= 1 << self._ranks[member]
        return bits.to_bytes(self._width, "little")

    def members(self, bitmap: bytes) -> frozenset[NodeId]:
        require(len(bitmap) == self._width, "bitmap", f"a bitmap of {len(bitmap)} bytes for {len(self.nodes)} nodes")
        bits = int.from_bytes(bitmap, "little")
        require(bits < 1 << len(self.nodes), "bitmap", "a bitmap with bits beyond its table")
        if bits == (1 << len(self.nodes)) - 1:
            return frozenset(self.nodes)
        return frozenset(self._chosen(bits)) if bits else _EMPTY

    def _chosen(self, bits: int) -> Iterator[NodeId]:
        """Most sets are nearly empty or nearly full, so this walks the set bits and not the table."""
        while bits:
            lowest = bits & -bits
            yield self.nodes[lowest.bit_length() - 1]
            bits ^= lowest
