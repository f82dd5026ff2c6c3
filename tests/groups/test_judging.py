"""A rule that never fires proves nothing: each rule of the judge sees a stream that breaks it, and spares one that does not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.groups.judging import Seen, StreamEvent, Streams, judge
from transis.model.groups import GroupCause, GroupId, GroupLeft, GroupView, GroupViewId
from transis.model.ids import MessageId, NodeId, Place, ProcessId, ViewId, ViewKind
from transis.model.service import Service

NODE = NodeId("a", 1, 1)
P, Q = ProcessId(NODE, 1), ProcessId(NODE, 2)
RED = GroupId(1)


def view(
    seq: int, members: tuple[ProcessId, ...], joined: tuple[ProcessId, ...] = (), left: tuple[ProcessId, ...] = ()
) -> GroupView:
    view_id = GroupViewId(ViewId(ViewKind.REGULAR, 4, NODE), Place(seq, 0))
    return GroupView(RED, "red", view_id, members, joined, left, (), GroupCause("join", P))


def message(counter: int) -> Seen:
    return Seen(MessageId(P, counter), Service.AGREED, b"", (RED,))


GOOD: list[StreamEvent] = [view(1, (P, Q), (P, Q)), message(1), message(2), view(2, (P,), (), (Q,))]
LEFT = GroupLeft(2, RED, "red", "left")


def good() -> dict[ProcessId, list[StreamEvent]]:
    return {P: list(GOOD), Q: [*GOOD[:3], LEFT]}


def another_view(streams: dict[ProcessId, list[StreamEvent]]) -> None:
    streams[Q][0] = view(1, (Q,), (Q,))


def without_itself(streams: dict[ProcessId, list[StreamEvent]]) -> None:
    streams[Q].insert(3, GOOD[3])


def outside(streams: dict[ProcessId, list[StreamEvent]]) -> None:
    streams[Q].append(message(3))


def twice(streams: dict[ProcessId, list[StreamEvent]]) -> None:
    streams[P].insert(2, message(1))


def wrong_difference(streams: dict[ProcessId, list[StreamEvent]]) -> None:
    streams[P][3] = view(2, (P,))


def missed(streams: dict[ProcessId, list[StreamEvent]]) -> None:
    streams[P].append(view(3, (P, Q), (Q,)))
    streams[Q] = [*GOOD[:2], view(2, (P, Q)), view(3, (P, Q))]
    streams[P][3] = view(2, (P, Q))


def other_order(streams: dict[ProcessId, list[StreamEvent]]) -> None:
    streams[Q][1:3] = [message(2), message(1)]


@pytest.mark.parametrize(
    ("break_it", "rule"),
    [
        (another_view, "agreement_on_views"),
        (without_itself, "members_only"),
        (outside, "members_only"),
        (twice, "no_duplicates"),
        (wrong_difference, "differences_add_up"),
        (missed, "together_the_same"),
        (other_order, "one_order"),
    ],
)
def test_the_judge_sees(break_it: Callable[[dict[ProcessId, list[StreamEvent]]], None], rule: str) -> None:
    streams = good()
    break_it(streams)
    assert rule in {finding.split(":")[0] for finding in judge(streams)}


def test_the_judge_spares_what_is_right() -> None:
    streams: Streams = good()
    assert judge(streams) == []
