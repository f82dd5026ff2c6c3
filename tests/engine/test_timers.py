"""Named timers against a twin that sorts a list."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from transis.engine.core import Timers
from transis.totem.states import Event
from transis.types.outputs import NEVER

EVENTS = list(Event)
arms = st.lists(st.tuples(st.sampled_from(EVENTS), st.integers(0, 20)), max_size=30)


def drained(timers: Timers[Event], now: int) -> list[tuple[Event, int]]:
    due = []
    while (one := timers.take_due(now)) is not None:
        due.append(one)
    return due


@given(arms, st.frozensets(st.sampled_from(EVENTS)), st.integers(0, 20))
def test_timers_fire_once_in_order_of_time_then_of_the_enumeration(
    armed: list[tuple[Event, int]], cancelled: frozenset[Event], now: int
) -> None:
    timers = Timers(Event)
    for event, at in armed:
        timers.arm(event, at)
    timers.cancel(*sorted(cancelled, key=EVENTS.index))
    expected = {event: at for event, at in armed if event not in cancelled}
    assert timers.deadline() == min(expected.values(), default=NEVER)
    due = sorted((at, EVENTS.index(event)) for event, at in expected.items() if at <= now)
    assert drained(timers, now) == [(EVENTS[rank], at) for at, rank in due]
    assert timers.deadline() == min((at for at in expected.values() if at > now), default=NEVER)
    assert {event for event in EVENTS if timers.armed(event)} == {event for event, at in expected.items() if at > now}


def test_arming_again_replaces() -> None:
    timers = Timers(Event)
    timers.arm(Event.TOKEN_LOSS, 5)
    timers.arm(Event.TOKEN_LOSS, 50)
    assert drained(timers, 49) == []
    assert drained(timers, 50) == [(Event.TOKEN_LOSS, 50)]


def test_the_order_of_arming_does_not_matter() -> None:
    timers, backwards = Timers(Event), Timers(Event)
    for event in EVENTS:
        timers.arm(event, 7)
    for event in reversed(EVENTS):
        backwards.arm(event, 7)
    assert drained(timers, 7) == drained(backwards, 7) == [(event, 7) for event in EVENTS]


def test_cancelling_what_is_not_armed_is_fine() -> None:
    timers = Timers(Event)
    timers.cancel(Event.LEAVE)
    timers.arm(Event.LEAVE, 1)
    timers.cancel_all()
    assert not timers.armed(Event.LEAVE)
    assert timers.deadline() == NEVER
