"""At least two mutants break each guarantee through its SQL; tests/guarantees/test_mutants.py asks the checkers the same."""

from __future__ import annotations

import pytest

from tests.audit.agreement import run_key
from tests.guarantees.mutants import CAUSAL_MUTANTS, FENCE_MUTANTS, GROUP_MUTANTS, MUTANTS, REPLICA_MUTANTS
from transis.audit.guarantees import PROPERTIES
from transis.audit.plans.finding import Result

pytestmark = pytest.mark.slow

STRUCK = {
    "views": MUTANTS,
    "messages": MUTANTS,
    "causal apart": (*CAUSAL_MUTANTS, *MUTANTS),
    "groups": (*GROUP_MUTANTS, *FENCE_MUTANTS),
    "replicas": REPLICA_MUTANTS,
}
"""Which mutants have struck in which histories of together.py."""


@pytest.fixture(scope="module")
def broken(audit: Result) -> set[tuple[int, str]]:
    return {(row.run, row.property) for row in audit.broken.select("run", "property").distinct().collect()}


@pytest.mark.parametrize("name", PROPERTIES)
def test_two_mutants_break_it(name: str, broken: set[tuple[int, str]]) -> None:
    seen = {
        mutant.name
        for part, mutants in STRUCK.items()
        for mutant in mutants
        if name in mutant.must and (run_key(f"{part}: {mutant.name}"), name) in broken
    }
    assert len(seen) >= 2, seen
