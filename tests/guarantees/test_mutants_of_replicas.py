"""Every mutant of a run with replicas breaks what it must, and nothing outside what it may."""

from __future__ import annotations

import pytest

from tests.guarantees.histories_of_replicas import SEEDS, of_replicas
from tests.guarantees.mutants import REPLICA_MUTANTS, Mutant
from tests.guarantees.wounds import assert_breaks_its_set_and_nothing_else, wounded
from transis.audit.guarantees import REPLICA_PROPERTIES, check

STRIKES = 3


@pytest.mark.parametrize("mutant", REPLICA_MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_breaks_its_set_and_nothing_else(mutant: Mutant) -> None:
    assert_breaks_its_set_and_nothing_else(mutant, wounded(mutant, of_replicas, SEEDS, STRIKES))


def test_the_histories_themselves_hold_and_exercise_everything() -> None:
    verdicts = [check(of_replicas(seed)).verdicts for seed in SEEDS]
    for name in REPLICA_PROPERTIES:
        assert {found[name].verdict for found in verdicts} <= {"held", "not exercised"}, name
        assert any(found[name].verdict == "held" for found in verdicts), name


def test_a_history_without_replicas_has_no_verdict_about_them() -> None:
    history = of_replicas(5)
    nodes = [trace for trace in history.nodes if "@" not in trace.node.name]
    assert not set(check(history._replace(nodes=nodes)).verdicts) & set(REPLICA_PROPERTIES)
