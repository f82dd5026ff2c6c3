"""What a sender may ask for, and how datagrams are classed on the wire (design 4)."""

from __future__ import annotations

from enum import IntEnum


class Service(IntEnum):
    """The delivery guarantee of one message, weakest first."""

    BASIC = 0
    CAUSAL = 1
    AGREED = 2
    SAFE = 3


class DatagramClass(IntEnum):
    """A datagram's class. Agreed and safe messages may share a datagram, which then counts as safe.

    Basic and causal never share one with ordered. On the ring causal messages are stamped ordered; Lansis keeps them apart.
    """

    BASIC = 0
    CAUSAL = 1
    ORDERED = 2
    SAFE = 3
