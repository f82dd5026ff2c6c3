"""Control packets of Lansis as the engine sees them: plain immutable values, checked already, with sets as sets.

A *statement* is what a machine says about the next membership (membership-1992 section 4). It is cumulative: a later one of the
same machine says all that its earlier ones said, so the newest version is enough and none needs to arrive in order.
"""

from __future__ import annotations

from typing import NamedTuple

from transis.types.ids import NodeId, RingId, RingTag
from transis.types.views import Cause


class Statement(NamedTuple):
    """What its sender holds of its view and whom it wants in the next one. Its type is the paper's kind of message.

    `recv` is sorted by node: the last counter of each member of `view` that the sender holds with everything before it.
    """

    sender: NodeId
    address: str
    info: bytes
    version: int
    """Grows with every statement of one life, whatever the view."""
    view: RingId
    """The view that the sender is in and would leave."""
    view_seq: int
    """The highest sequence of a view that the sender ever installed or promised to install."""
    j: frozenset[NodeId]
    f_before: frozenset[NodeId]
    """Faults that the sender knew before it said whom it joins."""
    f_after: frozenset[NodeId]
    recv: tuple[tuple[NodeId, int], ...]
    delivered: int
    """Key of the last ordered burst that the sender delivered in its view."""
    clock: int
    cause: Cause
    leaving: bool
    digest: bytes
    versions: tuple[int, int]

    @property
    def f(self) -> frozenset[NodeId]:
        return self.f_before | self.f_after

    @property
    def accept(self) -> frozenset[NodeId]:
        """Whom the sender wants in the next view."""
        return self.j - self.f_before - self.f_after


class Attempt(Statement):
    """AJ, the attempt to join: I heard of others, let us gather. Its sender commits itself to nothing."""

    __slots__ = ()


class Joining(Statement):
    """JOIN: its sender has stopped to send and to deliver, and wants one view with strangers."""

    __slots__ = ()


class Faults(Statement):
    """FA: its sender has stopped to send and to deliver, and wants a view of those that are left."""

    __slots__ = ()


class Flushed(NamedTuple):
    """Its sender holds everything that the proposal with this digest needs, and will install it or a later one."""

    sender: NodeId
    address: str
    view: RingId
    """The view that the sender is in and would leave."""
    proposal: bytes
    next_view: RingId


class Query(NamedTuple):
    """Are you there? And the answer to it, by unicast: a member whose multicast is lost is told from one that is dead."""

    sender: NodeId
    address: str
    tag: RingTag
    is_reply: bool
