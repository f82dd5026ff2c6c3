"""How runs become frames of sessions: none is larger than a frame should be, whatever was delivered together."""

from __future__ import annotations

from itertools import chain

from transis.model.contract import Delivered, Phase
from transis.model.groups import GroupDelivered, GroupId, Recipient
from transis.model.ids import NodeId, ProcessId, ViewId, ViewKind
from transis.model.service import Service
from transis.stack.streaming import OpenFrame, portions
from transis.wire.session import BATCH_BYTES, Stream, payload_cost

ANN = NodeId("ann", 1, 7)
VIEW = ViewId(ViewKind.REGULAR, 4, ANN)
SIZE = 1000
DATAGRAMS = 3 * BATCH_BYTES // SIZE


def delivered(datagrams: int) -> GroupDelivered:
    """One message ends in each of them."""
    payloads = [number.to_bytes(8) + bytes(SIZE - 8) for number in range(datagrams)]
    stretches = [(40 + number, 0, 1) for number in range(datagrams)]
    what = (ProcessId(ANN, 1), b"\x01", Service.AGREED, 9, payloads, VIEW, Phase.REGULAR, stretches)
    return GroupDelivered(Delivered(*what, False, 0, 0, True), (Recipient(1, (GroupId(1),)),))


def frames_of(event: GroupDelivered) -> list[Stream]:
    frame, closed = OpenFrame(), []
    for portion in portions(event):
        if not frame.add(portion):
            if frame.recipients is not None:
                closed.append(frame.close().frame)
            frame.begin(portion, VIEW)
    closed.append(frame.close().frame)
    return [one for one in closed if isinstance(one, Stream)]


def test_a_run_that_fits_stays_whole() -> None:
    event = delivered(40)
    assert list(portions(event)) == [event]


def test_a_run_larger_than_a_frame_is_divided_and_nothing_is_lost() -> None:
    event = delivered(DATAGRAMS)
    frames = frames_of(event)
    assert all(payload_cost(frame.payloads) <= BATCH_BYTES + 2 * SIZE for frame in frames)
    assert 3 <= len(frames) <= 4
    assert list(chain.from_iterable(frame.payloads for frame in frames)) == event.run.payloads
    assert list(chain.from_iterable(frame.stretches for frame in frames)) == event.run.stretches
    assert [frame.first for frame in frames] == [
        9 + sum(len(before.payloads) for before in frames[:at]) for at in range(len(frames))
    ]
