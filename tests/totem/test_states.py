"""The table of states against the paper: figure 2 of TOCS95, with Stopped added."""

from __future__ import annotations

import pytest

from tests.engine.hand import node_id
from tests.totem.hand import config
from transis.engine.base import IGNORED
from transis.totem.engine import HANDLERS
from transis.totem.ring import TotemCore
from transis.totem.states import TRANSITIONS, Event, State
from transis.types.errors import InternalError

FIGURE_2 = """
    Operational -> Gather      token loss, foreign ring, join, failure to receive
    Gather      -> Gather      join, consensus timeout
    Gather      -> Commit      consensus, commit token
    Commit      -> Recovery    commit token, second rotation
    Commit      -> Gather      token loss, join
    Recovery    -> Operational installed
    Recovery    -> Gather      token loss, join, failure to receive
"""


def test_the_transitions_are_those_of_the_figure_and_from_everywhere_to_stopped() -> None:
    edges = {(line.split()[0], line.split()[2]) for line in FIGURE_2.strip().splitlines()}
    edges |= {(state.value, "Stopped") for state in State if state is not State.STOPPED}
    assert {(before.value, after.value) for before, afters in TRANSITIONS.items() for after in afters} == edges


@pytest.mark.parametrize("state", [State.COMMIT, State.RECOVERY])
def test_no_join_timer_runs_in_commit_and_recovery(state: State) -> None:
    """F5: a Join from there would look like abandonment."""
    assert HANDLERS[state][Event.JOIN_REPEAT] is HANDLERS[state][Event.JOIN_SEND] is IGNORED


def test_a_first_rotation_token_is_never_taken_for_a_second() -> None:
    """F2: the two rotations are different events with different handlers."""
    for state in State:
        first, second = HANDLERS[state][Event.COMMIT_FIRST], HANDLERS[state][Event.COMMIT_SECOND]
        assert IGNORED in (first, second) or first != second
    assert HANDLERS[State.RECOVERY][Event.COMMIT_FIRST] is IGNORED
    assert HANDLERS[State.GATHER][Event.COMMIT_SECOND] is IGNORED


def test_a_stopped_engine_ignores_everything() -> None:
    assert set(HANDLERS[State.STOPPED].values()) == {IGNORED}
    assert TRANSITIONS[State.STOPPED] == ()


@pytest.mark.parametrize("before", State)
@pytest.mark.parametrize("after", State)
def test_a_transition_outside_the_figure_is_an_internal_error(before: State, after: State) -> None:
    core = TotemCore(config("a"), node_id("a"), 0)
    core.state = before
    if after in TRANSITIONS[before]:
        core.shift(after, "test")
        assert core.state is after
        return
    with pytest.raises(InternalError, match=f"{before.value} -> {after.value}"):
        core.shift(after, "test")
    assert core.state is before
