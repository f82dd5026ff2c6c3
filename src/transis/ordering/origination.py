"""One way from what the Outbox filled to what leaves: stamped datagrams, their ids and places, the burst, the multicast."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from transis.model.contract import Audience, Originated, Port, Send
from transis.model.ids import Place, RingTag, ViewId
from transis.ordering.core import BaseCore
from transis.wire.burst import Burst
from transis.wire.header import DataHeader, encode_data
from transis.wire.outbox import FilledDatagram


class Stamp(NamedTuple):
    """What all datagrams of a burst say alike: where they were sent, by which rank, when."""

    view: ViewId
    tag: RingTag
    rank: int
    round: int
    timestamp: int
    encapsulated: bool = False


def originate(core: BaseCore[Any, Any], stamp: Stamp, first_seq: int, place_seq: int, filled: Iterable[FilledDatagram]) -> Burst:
    """Number datagrams of one class from `first_seq` on and make them a burst; their places count up from `place_seq`."""
    datagrams: list[bytes] = []
    head: DataHeader | None = None
    view, tag, rank, round_, timestamp, encapsulated = stamp
    for ahead, part in enumerate(filled):
        header = DataHeader(
            part.klass, tag, rank, first_seq + ahead, round_, timestamp, core.now, part.index, part.last, encapsulated
        )
        head = head or header
        datagrams.append(encode_data(header, part.body))
        index = 0
        for ids in part.ended:
            core.emit(Originated(ids, view, Place(place_seq + ahead, index), timestamp))
            index += ids.count
    assert head is not None, "a burst has at least one datagram"
    return Burst(head, datagrams)


def multicast(core: BaseCore[Any, Any], bursts: Iterable[Burst]) -> None:
    """New bursts and old ones alike: who sends a datagram again sends it byte for byte as it was."""
    for burst in bursts:
        datagrams = [burst.datagram(seq) for seq in range(burst.first_seq, burst.last_seq + 1)]
        core.emit(Send(Audience.RING, Port.DATA, datagrams))
