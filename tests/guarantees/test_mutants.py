"""Every mutant breaks what it must, and nothing outside what it may."""

from functools import cache
from random import Random

import pytest

from tests.guarantees.mutants import CAUSAL_MUTANTS, GROUP_MUTANTS, MUTANTS, REPLICA_MUTANTS, Mutant
from tests.guarantees.oracle import good_history
from tests.guarantees.wounds import assert_breaks_its_set_and_nothing_else, wounded
from transis.audit.guarantees import GROUP_PROPERTIES, NODE_PROPERTIES, PROPERTIES, REPLICA_PROPERTIES
from transis.trace.events import History

SEEDS = 60
STRIKES = 4


@cache
def drawn(seed: int) -> History:
    return good_history(seed, steps=300)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_breaks_its_set_and_nothing_else(mutant: Mutant) -> None:
    assert_breaks_its_set_and_nothing_else(mutant, wounded(mutant, drawn, range(SEEDS), STRIKES))


@pytest.mark.parametrize("name", PROPERTIES)
def test_every_property_is_broken_by_two_mutants(name: str) -> None:
    """That each mutant breaks what it must is shown above, here and for runs with groups and for causal messages."""
    of_nodes = (*MUTANTS, *CAUSAL_MUTANTS)
    kinds = GROUP_MUTANTS if name in GROUP_PROPERTIES else REPLICA_MUTANTS if name in REPLICA_PROPERTIES else of_nodes
    assert len([mutant.name for mutant in kinds if name in mutant.must]) >= 2


def test_names_are_unique_and_properties_exist() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 20
    for mutant in MUTANTS:
        assert mutant.must | mutant.may <= set(NODE_PROPERTIES)
        assert not mutant.must & mutant.may


def test_a_mutant_leaves_its_history_alone() -> None:
    before = good_history(3, steps=300)
    for mutant in MUTANTS:
        mutant(drawn(3), Random(1))
    assert drawn(3) == before
