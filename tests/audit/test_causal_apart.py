"""The audit says what the checkers say where causal messages are not in the total order: of good histories, of open and torn
ones, and of every mutant."""

from __future__ import annotations

import pytest

from tests.audit.agreement import disagreements_by_property, run_key
from tests.audit.together import histories_for
from transis.audit.guarantees import NODE_PROPERTIES
from transis.audit.plans.finding import Result

pytestmark = pytest.mark.slow

PART = "causal apart"


@pytest.fixture(scope="module")
def different(audit: Result) -> dict[str, list[str]]:
    return disagreements_by_property(histories_for(PART), audit, NODE_PROPERTIES)


@pytest.mark.parametrize("name", NODE_PROPERTIES)
def test_audit_and_checker_agree(name: str, different: dict[str, list[str]]) -> None:
    assert different[name] == []


def test_a_count_that_falls_short_is_explained_as_the_checkers_do(audit: Result) -> None:
    rows = audit.broken.where(f"run = {run_key(f'{PART}: two causes')}").collect()
    assert [row.property for row in rows] == ["causal_5"]
    assert rows[0].explanation == (
        "b/1 had delivered 1 messages of a/1 in R4@a/1 before it sent b/1#0:1, but c/1 had delivered fewer of them "
        "when it delivered b/1#0:1 in R4@a/1"
    )
    assert len(rows[0].witness) == 2
