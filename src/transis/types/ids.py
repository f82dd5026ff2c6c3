"""Ids of nodes, processes, messages, rings and views, and the services a sender may ask for. Ids are immutable, ordered tuples.

For people an id is what `str` makes of it, everywhere: `ann/3` is the third life of the node ann, `ann/3#2` a process of it,
`ann/3#2:7` that process's seventh message, `R12@ann/3` a view.

A node is (name, incarnation, boot). A restarted node is a *new* identity (docs/protocol.md, Identity), and two nodes that run
from copies of one state directory still differ in their random boot id, so the protocol never confuses them even before one of
them is stopped.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, IntEnum
from typing import Final, Literal, NamedTuple

# --- ids --------------------------------------------------------------------------------------------------------------


class NodeId(NamedTuple):
    """One life of one node. Orders by name first, so the lowest name is the representative."""

    name: str
    incarnation: int
    boot: int

    def __str__(self) -> str:
        return f"{self.name}/{self.incarnation}"


class ProcessId(NamedTuple):
    """A process that talks through a node; number 0 is the node itself (an embedded application)."""

    node: NodeId
    number: int

    def __str__(self) -> str:
        return f"{self.node}#{self.number}"


class MessageId(NamedTuple):
    """Counters are dense from 1 per process and are given when the API accepts the message."""

    process: ProcessId
    counter: int

    def __str__(self) -> str:
        return f"{self.process}:{self.counter}"


class RingId(NamedTuple):
    """(ring_seq, representative): unique because a representative's incarnation is never reused."""

    seq: int
    rep: NodeId

    def __str__(self) -> str:
        return f"{self.seq}@{self.rep}"

    @property
    def tag(self) -> RingTag:
        return RingTag(self.seq, self.rep.boot)


class RingTag(NamedTuple):
    """A ring id as hot packets carry it: the representative by its 64-bit boot id."""

    seq: int
    boot: int


class NamedNumber(IntEnum):
    """A number on the wire and in tables, a word for people: `print(Service.SAFE)` says SAFE."""

    def __str__(self) -> str:
        return self.name

    __format__ = Enum.__format__


class ViewKind(NamedNumber):
    """What a configuration is: a regular one, or the transitional one between it and the next."""

    REGULAR = 0
    TRANSITIONAL = 1


PhaseName = Literal["regular", "transitional"]
"""In which kind of configuration a message was delivered."""


class ViewId(NamedTuple):
    """A configuration. A transitional one has the sequence of the new ring minus two (TOCS p. 17)."""

    kind: ViewKind
    seq: int
    rep: NodeId

    def __str__(self) -> str:
        return f"{'T' if self.kind else 'R'}{self.seq}@{self.rep}"

    @property
    def is_regular(self) -> bool:
        """Whether it is a regular configuration."""
        return self.kind is ViewKind.REGULAR

    @property
    def phase(self) -> PhaseName:
        """`regular` or `transitional`, for what is delivered in it."""
        return "regular" if self.kind is ViewKind.REGULAR else "transitional"


class Place(NamedTuple):
    """A message's place in the total order of its ring: its datagram, and its rank among those ending there."""

    seq: int
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody wants of a place

    def __str__(self) -> str:
        return f"{self.seq}.{self.index}"


Stretch = tuple[int, int, int]
"""(seq, index, count): `count` consecutive messages that end in one datagram have the places (seq, index), (seq, index + 1) and
so on. A plain tuple, because there is one for every datagram of a busy cluster, and tuples of numbers cost the collector nothing.
"""

LISTED_MAX: Final = 32
"""Ids in one line for people; of any more, only the number is shown."""


def listed(ids: Sequence[object], most: int = LISTED_MAX) -> str:
    """`ann/1 bob/1 cid/2`, or `ann/1 bob/1 and 40 more`."""
    shown = " ".join(map(str, ids[:most]))
    return shown if len(ids) <= most else f"{shown} and {len(ids) - most} more"


# --- service ----------------------------------------------------------------------------------------------------------


class Service(NamedNumber):
    """The delivery guarantee of one message, weakest first."""

    BASIC = 0
    CAUSAL = 1
    AGREED = 2
    SAFE = 3


class DatagramClass(IntEnum):
    """A datagram's class. Agreed and safe messages may share a datagram, which then counts as safe.

    Basic or causal messages never share one with ordered ones. On the ring causal messages are stamped ordered; Lansis keeps
    them apart.
    """

    BASIC = 0
    CAUSAL = 1
    ORDERED = 2
    SAFE = 3
