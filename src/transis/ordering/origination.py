"""One way from what the Outbox filled to what leaves: stamped datagrams, their ids and places, the burst, the multicast."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from transis.ordering.core import BaseCore
from transis.types.ids import RingTag, Stretch, ViewId
from transis.types.outputs import Audience, Originated, Port, RunIds, Send
from transis.wire.burst import Burst, DataHeader, encode_ramp
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
    view, tag, rank, round_, timestamp, encapsulated = stamp
    parts = list(filled)
    first, is_last = parts[0], parts[-1].last
    header = DataHeader(first.klass, tag, rank, first_seq, round_, timestamp, core.now, first.index, first.last, encapsulated)
    for ids, stretches in _placed(parts, place_seq):
        core.emit(Originated(ids, view, stretches, timestamp))
    return Burst(header, encode_ramp(header, [part.body for part in parts], is_last))


def _placed(parts: Iterable[FilledDatagram], place_seq: int) -> Iterator[tuple[RunIds, list[Stretch]]]:
    """Runs that end in these datagrams, each as one however many they are, with the places of their messages."""
    run: RunIds | None = None
    stretches: list[Stretch] = []
    behind = 0
    for seq, part in enumerate(parts, place_seq):
        index = 0
        for ids in part.ended:
            if run is None or ids.first_counter != behind or not _is_alike(run, ids):
                if run is not None:
                    yield run._replace(count=behind - run.first_counter), stretches
                run, stretches = ids, []
            stretches.append((seq, index, ids.count))
            index += ids.count
            behind = ids.first_counter + ids.count
    if run is not None:
        yield run._replace(count=behind - run.first_counter), stretches


def _is_alike(run: RunIds, ids: RunIds) -> bool:
    return ids.process == run.process and ids.service is run.service and ids.address == run.address


def multicast(core: BaseCore[Any, Any], bursts: Iterable[Burst]) -> None:
    """New bursts and old ones alike: who sends a datagram again sends it byte for byte as it was."""
    for burst in bursts:
        core.emit(Send(Audience.RING, Port.DATA, burst.datagrams))
