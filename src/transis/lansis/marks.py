"""What a burst of the mode `transis` is beside data: the two highest bits of the header's `round` say it, for which Lansis has no
other use; the rest of it is a number.

A *statement* is a JOIN or FA as a node of the DAG. A *flow* is payload on its way while views change: it belongs to no view, is
numbered by its sender through its life, and is named by a tag that is its sender's own. A *claim* is the first datagram of a
burst in an installed view: it says that the datagrams after it are the flow of that number, so who has the flow has the burst.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from transis.lansis.core import Flow
from transis.types.ids import NodeId, RingTag
from transis.wire.burst import COUNTER_MAX, DataHeader
from transis.wire.packer import Filled, FilledDatagram

NUMBER_BITS: Final = 30
NUMBER_MAX: Final = (1 << NUMBER_BITS) - 1


class Mark(IntEnum):
    DATA = 0
    STATEMENT = 1
    FLOW = 2
    CLAIM = 3


def mark_of(header: DataHeader) -> Mark:
    return Mark(header.round >> NUMBER_BITS)


def round_of(mark: Mark, number: int = 0) -> int:
    return mark << NUMBER_BITS | number


def number_of(header: DataHeader) -> int:
    return header.round & NUMBER_MAX


def flow_tag(node: NodeId) -> RingTag:
    """No view has so high a sequence."""
    return RingTag(COUNTER_MAX, node.boot)


def placed(flow: Flow, prefix: bytes, room: int) -> Filled:
    """What flowed as a burst of a view: behind what its sender acknowledges, which has datagrams of its own."""
    klass, datagrams = flow.filled
    heads = [prefix[start : start + room] for start in range(0, len(prefix), room)]
    ahead = [FilledDatagram(klass, body, index, False, ()) for index, body in enumerate(heads)]
    return Filled(klass, ahead + [part._replace(index=part.index + len(ahead)) for part in datagrams])


def claim_of(flow: Flow, filled: Filled) -> int:
    """The mark of a claim; none if more than one datagram is new in it: then all of it is sent."""
    is_short = len(filled.datagrams) == len(flow.filled.datagrams) + 1
    return round_of(Mark.CLAIM, flow.first) if is_short else round_of(Mark.DATA)
