"""A node of the DAG: one burst, whole, with everything that it follows known (lansis-1992 3.1)."""

from __future__ import annotations

from transis.lansis.keys import order_key
from transis.types.ids import DatagramClass
from transis.wire.burst import Burst


class Node:
    """One burst in the DAG. Immutable but for `delivered`."""

    __slots__ = ("delivered", "dep", "first", "key", "klass", "last", "past", "pieces", "rank", "size", "ts")

    def __init__(self, base: int, rank: int, pieces: tuple[Burst, ...], dep: int, past: list[int]) -> None:
        header = pieces[0].header
        self.rank = rank
        self.first = pieces[0].first_seq
        self.last = pieces[-1].last_seq
        self.klass = header.klass
        self.ts = header.timestamp
        self.key = order_key(header.timestamp - base, rank)
        self.dep = dep
        self.pieces = pieces
        self.past = past
        self.size = sum(piece.size for piece in pieces)
        self.delivered = False

    def __repr__(self) -> str:
        return f"Node({self.klass.name} of {self.rank}, {self.first}..{self.last}, at {self.ts})"

    @property
    def is_ordered(self) -> bool:
        return self.klass >= DatagramClass.ORDERED

    def follows(self, other: Node) -> bool:
        """A node follows itself."""
        return self.past[other.rank] >= other.last
