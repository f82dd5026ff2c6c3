"""What delivery asks of a total order: all-ack, or another that a view may be told to use."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from transis.lansis.node import Node


class Order(Protocol):
    """Nodes of class ordered and safe, in the order in which they leave."""

    @property
    def frontier(self) -> int:
        """How far delivery got in this view; it rides as `dep` on what is sent, and compares with `dep` of others."""

    def inserted(self, node: Node) -> None:
        """Any node entered the DAG, whatever its class."""

    def heard_alive(self, member: int, sent: int, clock: int) -> None:
        """A member sent so many datagrams, and will stamp nothing at or below `clock` any more."""

    def next(self) -> Node | None:
        """What may leave in the regular view, as far as the order goes; None while it is not certain."""

    def rest(self, pre: Sequence[int], upto: int | None) -> Iterable[Node]:
        """The view ends: what of `pre` has not left, in order; up to a frontier that somebody reached, or all."""

    def took(self, node: Node) -> None:
        """It left: it was delivered here."""
