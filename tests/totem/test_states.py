"""The table of states against the paper: figure 2 of TOCS95, with Stopped added."""

from __future__ import annotations

import pytest

from tests.engine.hand import node_id
from tests.totem.hand import config
from transis.engine.base import IGNORED
from transis.totem.commit import Forming
from transis.totem.engine import Engine
from transis.totem.gather import Gathering
from transis.totem.operational import Operational, Presence
from transis.totem.passing import Passing
from transis.totem.recovery import Recovering
from transis.totem.ring import Core
from transis.totem.states import TABLE, TRANSITIONS, Event, State
from transis.types.errors import InternalError

ORGANS = (Operational, Gathering, Forming, Recovering, Presence, Passing)
HANDLERS = sorted({name for events in TABLE.values() for name in events.values()} - {IGNORED})

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


@pytest.mark.parametrize("state", State)
def test_every_event_is_listed_in_every_state(state: State) -> None:
    assert list(TABLE[state]) == list(Event)


@pytest.mark.parametrize("handler", HANDLERS)
def test_every_handler_is_a_method_of_exactly_one_organ(handler: str) -> None:
    """The engine binds names to organs in order: a second organ with the same name would never be asked."""
    assert sum(callable(getattr(organ, handler, None)) for organ in ORGANS) == 1


def test_an_engine_binds_the_whole_table() -> None:
    engine = Engine(config("a"), node_id("a"), 0)
    assert engine.state is State.OPERATIONAL


@pytest.mark.parametrize("state", [State.COMMIT, State.RECOVERY])
def test_no_join_timer_runs_in_commit_and_recovery(state: State) -> None:
    """F5: a Join from there would look like abandonment."""
    assert TABLE[state][Event.JOIN_REPEAT] == TABLE[state][Event.JOIN_SEND] == IGNORED


def test_a_first_rotation_token_is_never_taken_for_a_second() -> None:
    """F2: the two rotations are different events with different handlers."""
    for state in State:
        first, second = TABLE[state][Event.COMMIT_FIRST], TABLE[state][Event.COMMIT_SECOND]
        assert IGNORED in (first, second) or first != second
    assert TABLE[State.RECOVERY][Event.COMMIT_FIRST] == IGNORED
    assert TABLE[State.GATHER][Event.COMMIT_SECOND] == IGNORED


def test_a_stopped_engine_ignores_everything() -> None:
    assert set(TABLE[State.STOPPED].values()) == {IGNORED}
    assert TRANSITIONS[State.STOPPED] == ()


@pytest.mark.parametrize("before", State)
@pytest.mark.parametrize("after", State)
def test_a_transition_outside_the_figure_is_an_internal_error(before: State, after: State) -> None:
    core = Core(config("a"), node_id("a"), 0)
    core.state = before
    if after in TRANSITIONS[before]:
        core.shift(after, "test")
        assert core.state is after
        return
    with pytest.raises(InternalError, match=f"{before.value} -> {after.value}"):
        core.shift(after, "test")
    assert core.state is before
