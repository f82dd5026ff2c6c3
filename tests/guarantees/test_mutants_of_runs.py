"""Mutants of simulated runs: what the checkers see in drawn histories they also see in those of the real engine."""

from random import Random

import pytest

from tests.guarantees.mutants import MUTANTS
from transis.audit.guarantees import check
from transis.sim.run import simulate


@pytest.mark.parametrize("seed", [1, 17])
def test_mutants_of_a_run_break_their_set_and_nothing_else(seed: int) -> None:
    history = simulate(seed).history
    assert check(history).broken == ()
    struck = 0
    for mutant in MUTANTS:
        wounded = mutant(history, Random(f"{seed}:{mutant.name}"))
        if wounded is not None:
            broken = set(check(wounded).broken)
            assert mutant.must <= broken <= mutant.must | mutant.may, mutant.name
            struck += 1
    assert struck > len(MUTANTS) // 2
