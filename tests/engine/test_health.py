"""The health of an observer: bad with every timer of its own that fires late, better with what goes well."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from transis.engine.core import CURE, HEALTH_MAX, Health


def test_a_timer_is_late_from_its_limit_on() -> None:
    health = Health()
    assert not health.fired_late(99, 100)
    assert health.score == 0
    assert health.fired_late(100, 100)
    assert health.score == 1


def test_only_what_goes_well_without_a_break_cures() -> None:
    health = Health()
    health.fired_late(1, 1)
    for _ in range(CURE - 1):
        health.went_well()
    health.fired_late(1, 1)
    for _ in range(CURE - 1):
        health.went_well()
    assert health.score == 2
    health.went_well()
    assert health.score == 1


@given(st.lists(st.booleans(), max_size=300))
def test_the_score_stays_between_its_ends(late: list[bool]) -> None:
    health = Health()
    for one in late:
        if one:
            health.fired_late(5, 5)
        else:
            health.went_well()
        assert 0 <= health.score <= HEALTH_MAX
    assert (health.score > 0) == any(late[-CURE:]) or len(late) > CURE
