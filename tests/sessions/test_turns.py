"""Turns: whoever waits is served a little, in turn; what there is no time for goes on where it stood."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.sessions.hosting import STEP_US, Alone, send_to
from transis.sessions.frames import Checkpoint, Done, Join, Joined, Leave
from transis.sessions.host import TOLD_MAX
from transis.sessions.queues import SLICE_MESSAGES, UNDER_WAY_MAX, Turns
from transis.types.ids import Place, ViewId, ViewKind
from transis.types.outputs import Configure
from transis.types.views import GroupViewId


class Talker:
    """Says its name for every step; `steps` are left."""

    def __init__(self, name: int, steps: int, heard: list[int]) -> None:
        self.name = name
        self.steps = steps
        self._heard = heard

    def work_off(self) -> bool:
        self.steps -= 1
        self._heard.append(self.name)
        return self.steps > 0


@given(st.lists(st.integers(1, 20), min_size=1, max_size=6), st.lists(st.integers(1, 15), min_size=1))
def test_nobody_is_served_twice_while_another_waits(steps: list[int], budgets: list[int]) -> None:
    """Whatever time each turn has: between two steps of one, all others that still wait have had one."""
    heard: list[int] = []
    turns: Turns[Talker] = Turns()
    talkers = [Talker(name, count, heard) for name, count in enumerate(steps)]
    for talker in talkers:
        turns.add(talker)
        turns.add(talker)
    while turns:
        for budget in budgets:
            left = iter(range(budget - 1))
            before = len(heard)
            turns.work(lambda left=left: next(left, None) is not None)  # type: ignore[misc]
            assert len(heard) - before <= budget
    assert heard == [name for lap in range(max(steps)) for name, count in enumerate(steps) if count > lap]


def test_who_is_gone_has_no_turn() -> None:
    heard: list[int] = []
    turns, one, two = Turns[Talker](), Talker(1, 3, heard), Talker(2, 2, heard)
    turns.add(one)
    turns.add(two)
    turns.drop(one)
    turns.drop(one)
    assert one not in turns
    assert two in turns
    turns.work(lambda: True)
    assert heard == [2, 2]
    assert not turns


# --- joins and leaves ---------------------------------------------------------------------------------------------------------


def test_joins_go_into_the_order_a_few_at_a_time_and_sessions_take_turns() -> None:
    """One asks for thousands, another for one after that: it does not wait for them."""
    alone = Alone()
    many, one = alone.connect(), alone.connect()
    alone.say(many, *(Join(f"g{number}") for number in range(2_000)))
    alone.say(one, Join("mine"))
    alone.settle(12)
    asked = len(alone.tail(many, Joined))
    assert Joined("mine") in alone.seen[one]
    assert UNDER_WAY_MAX <= asked < 2_000 - UNDER_WAY_MAX
    alone.settle(100)
    assert len(alone.tail(many, Joined)) == 2_000


def test_one_turn_of_the_node_shows_no_more_views_than_may_be_under_way() -> None:
    """A node that has the token answers a join as soon as it is sent; the next ones wait until its sockets were heard."""
    alone = Alone()
    process = alone.connect()
    alone.take()
    alone.say(process, *(Join(f"g{number}") for number in range(2_000)))
    before = 0
    for _ in range(100):
        alone.now += min(STEP_US, max(0, alone.node.deadline() - alone.now))
        alone.node.wake(alone.now)
        alone.carry_out()
        alone.take()
        joined = len(alone.tail(process, Joined))
        assert joined - before <= UNDER_WAY_MAX
        before = joined
        alone.host.go_on(alone.now)
    assert before == 2_000


def test_what_an_ended_session_had_asked_for_keeps_nobody_waiting() -> None:
    alone = Alone()
    gone, stays = alone.connect(), alone.connect()
    alone.say(gone, *(Join(f"g{number}") for number in range(1_000)))
    alone.host.forget(alone.now, gone)
    alone.say(stays, *(Join(f"s{number}") for number in range(UNDER_WAY_MAX)), Leave("s0"))
    alone.settle(20)
    assert len(alone.tail(stays, Joined)) == UNDER_WAY_MAX


# --- messages that waited -----------------------------------------------------------------------------------------------------


def test_a_node_with_room_again_takes_a_slice_and_then_the_next() -> None:
    """It would otherwise take a window of each client in one go, which is seconds of the smallest messages."""
    alone = Alone(start=False)
    many = [alone.connect() for _ in range(4)]
    for process in many:
        for _ in range(10):
            alone.say(process, send_to("x", [b""] * 4_000))
    alone.take()
    alone.node.start(alone.now)
    configured = False
    while not configured:
        alone.now += min(STEP_US, max(0, alone.node.deadline() - alone.now))
        alone.node.wake(alone.now)
        for output in alone.node.outputs():
            alone.persist(output)
            if isinstance(output, Configure):
                configured = True
                alone.hear(output)
                assert sum(status.sent for status in alone.host.sessions()) <= SLICE_MESSAGES + 4_096
                assert alone.host.is_busy
    alone.settle(60)
    done = [frame for process in many for frame in alone.seen[process] if isinstance(frame, Done)]
    assert sum(frame.count for frame in done) == 4 * 40_000


def test_a_node_records_what_it_was_told_before_it_is_told_more() -> None:
    """Recording a checkpoint takes longer than telling it: nothing is lost, but the turn is over."""
    alone = Alone()
    process = alone.member("x")
    told = Checkpoint(
        "x", GroupViewId(ViewId(ViewKind.REGULAR, 4, alone.node.id), Place(1, 0)), 0, None, 0, Place(0, 0), b"digest"
    )
    for _ in range(TOLD_MAX - 1):
        alone.say(process, told)
    assert not alone.host.is_ahead
    alone.say(process, told)
    assert alone.host.is_ahead
    alone.carry_out()
    assert not alone.host.is_ahead
    assert len(alone.checkpoints) == TOLD_MAX
