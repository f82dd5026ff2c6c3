"""Every mutant of a run with groups breaks what it must, and nothing outside what it may."""

from functools import cache

import pytest

from tests.guarantees.histories_of_fences import of_lansis
from tests.guarantees.mutants import FENCE_MUTANTS, GROUP_MUTANTS, Mutant
from tests.guarantees.wounds import assert_breaks_its_set_and_nothing_else, wounded
from transis.audit.guarantees import check
from transis.sim.run import simulate
from transis.trace.events import History

SEEDS = (3, 4, 5, 6, 9, 11)
STRIKES = 3


@cache
def recorded(seed: int) -> History:
    return simulate(seed, nodes=4, groups=True).history


@pytest.mark.parametrize("mutant", GROUP_MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_breaks_its_set_and_nothing_else(mutant: Mutant) -> None:
    assert_breaks_its_set_and_nothing_else(mutant, wounded(mutant, recorded, SEEDS, STRIKES))


def test_the_histories_themselves_hold() -> None:
    for seed in SEEDS:
        assert check(recorded(seed)).broken == ()


@pytest.mark.parametrize("mutant", FENCE_MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_of_causal_messages_breaks_its_set_and_nothing_else(mutant: Mutant) -> None:
    assert_breaks_its_set_and_nothing_else(mutant, wounded(mutant, of_lansis, (0, 7), STRIKES))


def test_the_histories_of_lansis_hold() -> None:
    assert check(of_lansis(0)).broken == check(of_lansis(7)).broken == ()
