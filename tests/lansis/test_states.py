"""The table of states against the paper's stages, with Flush and Stopped added."""

from __future__ import annotations

import pytest

from tests.engine.hand import node_id
from tests.lansis.hand import Table, brought_to, config, heard_by_one, is_statement
from tests.lansis.speech import said
from transis.engine.base import IGNORED
from transis.lansis.engine import HANDLERS
from transis.lansis.states import AGREEING, TRANSITIONS, State
from transis.lansis.view import LansisCore
from transis.types.errors import InternalError
from transis.types.ids import RingId

RUNNING = [state for state in State if state is not State.STOPPED]
FIGURES = """
    Operational -> Faults       a member is accused
    Operational -> Stage_1      a stranger is heard, AJ
    Operational -> Stage_2      JOIN
    Stage_1     -> Stage_2      alpha, a member is accused
    Faults      -> Stage_2      JOIN
    Faults      -> Flush        everybody says the same
    Stage_2     -> Flush        everybody says the same
    Flush       -> Faults       somebody more is accused
    Flush       -> Stage_2      the same, with strangers
    Flush       -> Operational  everybody flushed
    Faults      -> Operational  somebody is heard in the view that was flushed before
    Stage_2     -> Operational  the same
"""


def test_the_transitions_are_those_of_the_figures_and_from_everywhere_to_stopped() -> None:
    edges = {tuple(line.split()[0:3:2]) for line in FIGURES.strip().splitlines()}
    edges |= {(state.value.replace(" ", "_"), "Stopped") for state in RUNNING}
    found = {(before.value, after.value) for before, afters in TRANSITIONS.items() for after in afters}
    assert {(before.replace(" ", "_"), after.replace(" ", "_")) for before, after in found} == edges


def test_a_stopped_engine_ignores_everything() -> None:
    assert set(HANDLERS[State.STOPPED].values()) == {IGNORED}
    assert TRANSITIONS[State.STOPPED] == ()


def test_faults_and_stage_2_are_one_piece_of_code() -> None:
    assert HANDLERS[State.FAULTS] == HANDLERS[State.STAGE_2]


@pytest.mark.parametrize("before", State)
@pytest.mark.parametrize("after", State)
def test_a_transition_outside_the_figures_is_an_internal_error(before: State, after: State) -> None:
    core = LansisCore(config("a"), node_id("a"), 0)
    core.state = before
    if after in TRANSITIONS[before]:
        core.shift(after, "test")
        assert core.state is after
        return
    with pytest.raises(InternalError, match=f"{before.value} -> {after.value}"):
        core.shift(after, "test")
    assert core.state is before


def transitions(table: Table) -> set[tuple[str, str]]:
    found: set[tuple[str, str]] = set()
    for seat in [*table.seats.values(), *table.dead]:
        for note in seat.notes("state"):
            detail = dict(note.detail)
            found.add((str(detail["from"]), str(detail["to"])))
    return found


def test_every_transition_is_reached() -> None:
    """By ordinary stories: a merge, a crash, a leave, a join that meets a fault, accusations while flushing, and hearsay."""
    stories = (a_merge_and_a_leave, a_crash_meets_a_join, a_crash_while_flushing, a_crash_while_a_merge_is_flushed)
    reached = set[tuple[str, str]]().union(*(transitions(story()) for story in stories))
    reached |= transitions(followed("pqyz", "z")) | transitions(followed("pqy", ""))
    for state in RUNNING:
        table = brought_to(state)
        table["a"].engine.stop(table.now, "told so")
        table.carry("a")
        reached |= transitions(table)
    assert reached == {(before.value, after.value) for before, afters in TRANSITIONS.items() for after in afters}


def a_merge_and_a_leave() -> Table:
    table = Table("abc")
    table.form("abc")
    table.leave("c")
    table.run_until(lambda: table.all_in("ab"))
    return table


def a_crash_meets_a_join() -> Table:
    """a and b are in Faults because of c when d, which does not hear b's alone, brings its JOIN."""
    table = Table("abcd")
    table.form("abc")
    table.run(100_000)
    table.drops.append(is_statement)
    table.crash("c")
    table.run_until(lambda: table["a"].engine.state is State.FAULTS)
    stranger = said("d", j="abcd", view=RingId(0, node_id("d")))
    table.hand("a", stranger)
    assert table["a"].engine.state is State.STAGE_2
    table.drops.clear()
    table.start("d")
    table.run_until(lambda: table.all_in("abd"))
    return table


def a_crash_while_flushing() -> Table:
    table = brought_to(State.FLUSH)
    table.crash("b")
    table.run_until(lambda: table.all_in("a"))
    return table


def a_crash_while_a_merge_is_flushed() -> Table:
    table = brought_to(State.STAGE_2)
    table.run_until(lambda: table["a"].engine.state is State.FLUSH)
    table.crash("c")
    table.drops.clear()
    table.run_until(lambda: table.all_in("ab"))
    return table


def followed(members: str, lost: str) -> Table:
    """p hears of y in a view that it flushed before it lost y, after a fault or in a merge."""
    table = Table(members)
    together = members if lost else "pq"
    table.form(together)
    table.run(100_000)
    if lost:
        table.crash(lost)
    else:
        table.start("y")
    held_back = heard_by_one(table, "y", "pqy")
    table.run_until(lambda: table["p"].engine.state in (State.FAULTS, State.STAGE_2))
    table.hand("p", held_back[0])
    assert table["p"].view == "pqy"
    return table


@pytest.mark.parametrize("state", RUNNING)
def test_what_is_frozen_is_frozen_in_the_agreeing_states_only(state: State) -> None:
    frozen = brought_to(state)["a"].engine.inspect().frozen
    assert (frozen is not None) == (state in AGREEING)
