"""Groups: the audit says what the checkers say, of good histories and of bad ones of every kind."""

from __future__ import annotations

import pytest
from pyspark.sql import functions as F

from tests.audit.agreement import disagreements, run_key
from tests.audit.together import histories_for
from transis.audit.guarantees import GROUP_PROPERTIES, check, check_groups
from transis.audit.guarantees.property import BROKEN, HELD, PENDING
from transis.audit.plans.finding import Result
from transis.trace.events import History

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def drawn() -> dict[str, History]:
    return histories_for("groups")


def test_the_audit_and_the_checkers_agree(audit: Result, drawn: dict[str, History]) -> None:
    assert disagreements(drawn, audit, GROUP_PROPERTIES) == []


def test_nothing_agrees_for_want_of_trying(drawn: dict[str, History]) -> None:
    """Every property is held in one of the histories and broken in another; those that oblige are pending in a third."""
    oblige = {"group_members_only", "group_differences", "group_no_ghosts"}
    reports = [verdicts for history in drawn.values() if "group_order" in (verdicts := check(history).verdicts)]
    for name in GROUP_PROPERTIES:
        expected = {HELD, BROKEN, PENDING} if name in oblige else {HELD, BROKEN}
        assert {report[name].verdict for report in reports} >= expected, name


def test_a_gap_alone_breaks_nothing(drawn: dict[str, History]) -> None:
    """Whatever it hides, also the configuration in which the next group view stands."""
    assert [check_groups(drawn[f"groups: gap-{at}"]).broken for at in range(3)] == [(), (), ()]


@pytest.mark.parametrize(
    ("mutant", "name", "sentence"),
    [
        ("message_twice", "group_no_duplicates", "a/1#4 got a/1#0:8 twice"),
        ("handed_to_an_outsider", "group_members_only", "a/1#3 got d/1#3:25 through 1 groups, but is not addressed"),
        (
            "transitional_group_view_missing",
            "group_one_view_per_change",
            "a/1: T26@a/1 lost members of R16@a/1+4.3 of g8, but gave the group no transitional view",
        ),
    ],
    ids=["message_twice", "handed_to_an_outsider", "transitional_group_view_missing"],
)
def test_a_person_understands_it(audit: Result, mutant: str, name: str, sentence: str) -> None:
    rows = audit.broken.where((F.col("run") == run_key(f"groups: {mutant}")) & (F.col("property") == name)).collect()
    assert sentence in {row.explanation for row in rows}


def test_replicas_that_part_are_told_as_the_checker_tells_it(drawn: dict[str, History], audit: Result) -> None:
    name = "groups: replicas_part"
    (expected,) = check(drawn[name]).verdicts["replicas_agree"].violations
    (row,) = audit.broken.where(f"run = {run_key(name)} and property = 'replicas_agree'").collect()
    assert row.explanation == expected.explanation
    assert "it is one of 5 messages after the view, up to place 7.1" in row.explanation
    assert len(row.witness) == len(expected.witness)
