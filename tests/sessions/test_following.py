"""Configurations in the streams of those who ask for them, checkpoints that clients tell, and what a node says about itself."""

from __future__ import annotations

from tests.sessions.hosting import PLENTY, Alone
from transis import __version__
from transis.sessions.frames import Answer, Ask, Changed, Checkpoint, Configured, Credit, Follow, Join, Stream, decode_value
from transis.sessions.host import SessionPolicy
from transis.sessions.session import CHECKPOINTS_PER_S
from transis.types.ids import Place, ViewId, ViewKind
from transis.types.outputs import Checkpoint as Reported
from transis.types.outputs import Configure
from transis.types.views import Cause, GroupViewId, Member, View, group_id


def next_view(alone: Alone, kind: ViewKind, seq: int) -> View:
    """One that a node of a ring of one might install."""
    me = alone.node.id
    regular = ViewId(ViewKind.REGULAR, seq, me)
    return View(ViewId(kind, seq, me), regular, (Member(me, "ann:1", None),), Cause("start"), 0)


def configured(alone: Alone, process: int) -> list[ViewId]:
    return [frame.view.id for frame in alone.seen.get(process, ()) if isinstance(frame, Configured)]


def test_who_follows_is_told_the_one_in_force_and_all_that_come() -> None:
    alone = Alone()
    follower, other = alone.connect(), alone.connect()
    alone.say(follower, Follow())
    alone.take()
    (in_force,) = configured(alone, follower)
    assert in_force.is_regular
    following = [next_view(alone, ViewKind.TRANSITIONAL, 90), next_view(alone, ViewKind.REGULAR, 92)]
    alone.hear(*map(Configure, following))
    alone.take()
    assert configured(alone, follower) == [in_force, following[0].id, following[1].id]
    assert configured(alone, other) == []


def test_to_follow_twice_is_to_follow() -> None:
    alone = Alone()
    follower = alone.connect()
    alone.say(follower, Follow(), Follow())
    alone.hear(Configure(next_view(alone, ViewKind.REGULAR, 92)))
    alone.take()
    assert len(configured(alone, follower)) == 2


def test_a_node_without_a_view_tells_its_first_one() -> None:
    alone = Alone(start=False)
    follower = alone.connect()
    alone.say(follower, Follow())
    alone.take()
    assert configured(alone, follower) == []
    alone.start()
    assert len(configured(alone, follower)) == 1


def test_a_configuration_stands_between_what_came_before_it_and_after_it() -> None:
    alone = Alone()
    follower = alone.connect()
    alone.say(follower, Follow(), Join("x"))
    alone.settle()
    alone.send(follower, "x", b"before")
    alone.settle()
    alone.hear(Configure(next_view(alone, ViewKind.REGULAR, 92)))
    alone.send(follower, "x", b"after")
    alone.settle()
    kinds = [type(frame) for frame in alone.seen[follower] if isinstance(frame, Configured | Changed | Stream)]
    assert kinds == [Configured, Changed, Stream, Configured, Stream]


def test_configurations_wait_for_credit_like_all_of_the_stream() -> None:
    alone = Alone(SessionPolicy(queue_max=64 * 1024))
    follower = alone.connect(credit=1)
    alone.say(follower, Follow())
    for seq in range(92, 99):
        alone.hear(Configure(next_view(alone, ViewKind.REGULAR, seq)))
    alone.take()
    assert len(configured(alone, follower)) == 1, "one may overdraw"
    alone.say(follower, Credit(PLENTY))
    alone.take()
    assert len(configured(alone, follower)) == 8


def test_a_follower_who_never_takes_is_too_slow() -> None:
    alone = Alone(SessionPolicy(queue_max=64 * 1024))
    follower = alone.connect(credit=1)
    alone.say(follower, Follow())
    alone.take()
    for seq in range(92, 2292):
        alone.hear(Configure(next_view(alone, ViewKind.REGULAR, seq)))
    alone.take()
    assert "too slow" in alone.goodbyes(follower)[0]


# --- checkpoints --------------------------------------------------------------------------------------------------------------


def checkpoint(alone: Alone, name: str, count: int = 0) -> Checkpoint:
    view = GroupViewId(ViewId(ViewKind.REGULAR, 4, alone.node.id), Place(3, 0))
    return Checkpoint(name, view, count, None, 0, Place(0, 0), b"state")


def test_a_checkpoint_of_a_member_reaches_the_node() -> None:
    alone = Alone()
    process = alone.member("x")
    told = checkpoint(alone, "x", 7)
    alone.say(process, told)
    alone.carry_out()
    assert alone.checkpoints == [Reported(process, group_id("x"), "x", told.view, 7, None, 0, told.place, told.digest)]
    assert alone.host.statistics(process)["checkpoints_dropped"] == 0


def test_a_checkpoint_about_the_groups_of_others_is_dropped_and_counted() -> None:
    alone = Alone()
    process = alone.member("x")
    alone.say(process, checkpoint(alone, "y"))
    alone.carry_out()
    assert alone.checkpoints == []
    assert alone.host.statistics(process)["checkpoints_dropped"] == 1
    assert alone.goodbyes(process) == []


def test_checkpoints_beyond_the_limit_of_a_second_are_dropped_and_the_next_second_begins_anew() -> None:
    alone = Alone()
    process, calm = alone.member("x"), alone.member("x")
    for count in range(CHECKPOINTS_PER_S + 5):
        alone.say(process, checkpoint(alone, "x", count))
    alone.say(calm, checkpoint(alone, "x"))
    alone.carry_out()
    assert len(alone.checkpoints) == CHECKPOINTS_PER_S + 1
    assert alone.host.statistics(process)["checkpoints_dropped"] == 5
    alone.now += 1_000_000
    alone.say(process, checkpoint(alone, "x"))
    alone.carry_out()
    assert len(alone.checkpoints) == CHECKPOINTS_PER_S + 2


def test_a_node_says_what_it_is() -> None:
    alone = Alone()
    process = alone.connect()
    alone.say(process, Ask(3, "about"))
    alone.take()
    (answer,) = alone.tail(process, Answer)
    assert isinstance(answer, Answer)
    about = {"engine": "totem", "order": "all-ack", "mode": "evs", "guarantees": "evs", "build": __version__, "quorum": ""}
    assert (answer.number, decode_value(answer.value)) == (3, about | {"cluster": "transis"})
