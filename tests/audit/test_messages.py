"""The audit of ordered messages says what the checkers say, of good histories, simulated runs, open ones and every mutant."""

from __future__ import annotations

import pytest

from tests.audit.agreement import disagreements_by_property, run_key
from tests.audit.together import histories_for
from transis.audit.guarantees import PROPERTIES, check
from transis.audit.guarantees.property import Reads
from transis.audit.plans.finding import Result

pytestmark = pytest.mark.slow

OF_ORDER = [one.name for one in PROPERTIES.values() if one.reads is Reads.ORDER]


@pytest.fixture(scope="module")
def different(audit: Result) -> dict[str, list[str]]:
    return disagreements_by_property(histories_for("messages"), audit, OF_ORDER)


@pytest.mark.parametrize("name", OF_ORDER)
def test_audit_and_checker_agree(name: str, different: dict[str, list[str]]) -> None:
    assert different[name] == []


def test_a_swap_is_explained_with_the_events_that_show_it(audit: Result) -> None:
    rows = audit.broken.where(f"run = {run_key('messages: swapped_deliveries')} and property = 'no_holes_6_3'").collect()
    assert rows
    for row in rows:
        assert "delivered" in row.explanation
        assert row.explanation.endswith(("only after it", "not at all"))
        assert len(row.witness) >= 3
        assert len(row.messages) == 2


@pytest.mark.parametrize("mutant", ["skipped_behind_a_gap", "swapped_deliveries"])
def test_two_sequences_are_told_as_the_checker_tells_it(mutant: str, audit: Result) -> None:
    name = f"messages: {mutant}"
    expected = check(histories_for("messages")[name]).verdicts["one_sequence"].violations
    rows = audit.broken.where(f"run = {run_key(name)} and property = 'one_sequence'").collect()
    assert sorted(row.explanation for row in rows) == sorted(one.explanation for one in expected)
    assert sorted(len(row.witness) for row in rows) == sorted(len(one.witness) for one in expected)
