"""How runs become frames of sessions: none is larger than a frame should be, whatever was delivered together."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, pairwise

import pytest

from tests.sessions.hosting import Alone
from transis.sessions.fanout import OpenFrame, portions
from transis.sessions.frames import BATCH_BYTES, Stream, payload_cost
from transis.sessions.session import SessionPolicy
from transis.types.ids import NodeId, ProcessId, Service, ViewId, ViewKind
from transis.types.outputs import Delivered, GroupDelivered, Phase, Recipient
from transis.types.views import GroupId

ANN = NodeId("ann", 1, 7)
VIEW = ViewId(ViewKind.REGULAR, 4, ANN)
RECIPIENTS = (Recipient(1, (GroupId(1),)),)


def delivered(sizes: Sequence[int], each: int = 1, first: int = 9) -> GroupDelivered:
    """So many messages end in each datagram."""
    payloads = [(first + number).to_bytes(4)[-size:] + bytes(max(0, size - 4)) for number, size in enumerate(sizes)]
    stretches = [(40 + start, 0, min(each, len(sizes) - start)) for start in range(0, len(sizes), each)]
    what = (ProcessId(ANN, 1), b"\x01", Service.AGREED, first, payloads, VIEW, Phase.REGULAR, stretches)
    return GroupDelivered(Delivered(*what, False, 0, 0, True), RECIPIENTS)


def frames_of(*events: GroupDelivered) -> list[Stream]:
    frame, closed = OpenFrame(), []
    for portion in chain.from_iterable(map(portions, events)):
        if not frame.add(portion):
            if frame.recipients is not None:
                closed.append(frame.close().frame)
            frame.begin(portion, VIEW)
    closed.append(frame.close().frame)
    return [one for one in closed if isinstance(one, Stream)]


def test_a_run_that_fits_stays_whole() -> None:
    event = delivered([1000] * 40)
    assert list(portions(event)) == [event]


@pytest.mark.parametrize(
    "events",
    [
        pytest.param([delivered([1000] * (3 * BATCH_BYTES // 1000))], id="three frames of large messages"),
        pytest.param([delivered([1] * 65_000, each=1300)], id="whose headers are more than they"),
        pytest.param([delivered([1000] * 200, first=9 + 200 * at) for at in range(5)], id="runs that fill half a frame each"),
        pytest.param([delivered([0, 7, 2000] * 500, each=2)], id="of all sizes"),
    ],
)
def test_no_frame_is_larger_than_it_should_be_and_nothing_is_lost(events: list[GroupDelivered]) -> None:
    frames, runs = frames_of(*events), [event.run for event in events]
    assert all(payload_cost(frame.payloads) <= BATCH_BYTES for frame in frames)
    assert all(payload_cost([*one.payloads, *other.payloads]) > BATCH_BYTES // 2 for one, other in pairwise(frames))
    assert [payload for frame in frames for payload in frame.payloads] == [payload for run in runs for payload in run.payloads]
    assert [place for frame in frames for place in frame.stretches] == [place for run in runs for place in run.stretches]
    assert [frame.first for frame in frames] == [
        9 + sum(len(before.payloads) for before in frames[:at]) for at in range(len(frames))
    ]


def test_a_session_gets_a_large_run_in_frames_that_are_not() -> None:
    alone = Alone(SessionPolicy(queue_max=16 << 20))
    process = alone.member("x")
    recipients = (Recipient(process, (GroupId(1),)),)
    alone.hear(delivered([1000] * (3 * BATCH_BYTES // 1000))._replace(recipients=recipients))
    alone.take()
    frames = [frame for frame in alone.seen[process] if isinstance(frame, Stream)]
    assert len(frames) == 4
    assert all(payload_cost(frame.payloads) <= BATCH_BYTES for frame in frames)
