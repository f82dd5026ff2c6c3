"""Every mutant of a run with groups breaks what it must, and nothing outside what it may."""

from functools import cache
from itertools import islice
from random import Random

import pytest

from transis.sim.checkers import GROUP_PROPERTIES, check
from transis.sim.mutants import GROUP_MUTANTS, Mutant
from transis.sim.run import simulate
from transis.trace.events import History

SEEDS = (3, 4, 5, 6, 9, 11)
STRIKES = 3


@cache
def recorded(seed: int) -> History:
    return simulate(seed, nodes=4, groups=True).history


def wounded(mutant: Mutant) -> list[History]:
    tries = (mutant(recorded(seed), Random(f"{seed}:{mutant.name}")) for seed in SEEDS)
    return list(islice((history for history in tries if history is not None), STRIKES))


@pytest.mark.parametrize("mutant", GROUP_MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_breaks_its_set_and_nothing_else(mutant: Mutant) -> None:
    histories = wounded(mutant)
    assert histories, "it never found a place to strike"
    for history in histories:
        outcome = check(history)
        broken = set(outcome.broken)
        told = [violation.explanation for violation in outcome.violations]
        assert mutant.must <= broken, told
        assert broken <= mutant.must | mutant.may, told


def test_every_property_of_groups_is_broken_by_a_mutant() -> None:
    assert set().union(*(mutant.must for mutant in GROUP_MUTANTS)) == set(GROUP_PROPERTIES)


def test_the_histories_themselves_hold() -> None:
    for seed in SEEDS:
        assert check(recorded(seed)).broken == ()
