"""Views, sends and submits: the audit says what the checkers say, of good histories and of bad ones of every kind."""

from __future__ import annotations

import pytest
from pyspark.sql import functions as F

from tests.audit.agreement import ALL, disagreements, run_key
from tests.audit.together import histories_for
from transis.audit.guarantees import PROPERTIES, check
from transis.audit.guarantees.property import BROKEN, HELD, NOT_EXERCISED, PENDING, Reads
from transis.audit.plans.finding import Result
from transis.trace.events import History

pytestmark = pytest.mark.slow

NAMES = [one.name for one in PROPERTIES.values() if one.reads is Reads.VIEWS]


@pytest.fixture(scope="module")
def drawn() -> dict[str, History]:
    return histories_for("views") | histories_for("views in segments")


def test_the_audit_and_the_checkers_agree(audit: Result, drawn: dict[str, History]) -> None:
    assert disagreements(drawn, audit, NAMES) == []


def test_they_count_alike_and_say_it_in_the_same_words(audit: Result, drawn: dict[str, History]) -> None:
    amounts: dict[tuple[int, str], tuple[int, int]] = {}
    for row in audit.checked.groupBy("run", "property").agg(F.sum("checked"), F.sum("pending")).collect():
        amounts[row[0], row[1]] = (row[2], row[3])
    said: dict[tuple[int, str], list[str]] = {}
    for row in audit.broken.collect():
        said.setdefault((row.run, row.property), []).append(row.explanation)
    for name, history in drawn.items():
        for verdict in (check(history, keep=ALL).verdicts[one] for one in NAMES):
            key = (run_key(name), verdict.property)
            assert (name, verdict.property, *amounts.get(key, (0, 0))) == (name, *verdict[:1], verdict.checked, verdict.pending)
            assert sorted(said.get(key, [])) == sorted(one.explanation for one in verdict.violations), name


def test_nothing_agrees_for_want_of_trying(drawn: dict[str, History]) -> None:
    """Every property is held in one of the histories, broken in another, and pending in a third, unless it forbids only."""
    forbid_only = {"agreement_on_views", "incarnations_never_overlap", "sent_once_1_4"}
    reports = [check(history).verdicts for history in drawn.values()]
    for name in NAMES:
        expected = {HELD, BROKEN, NOT_EXERCISED} if name in forbid_only else {HELD, BROKEN, NOT_EXERCISED, PENDING}
        assert {report[name].verdict for report in reports} == expected, name


@pytest.mark.parametrize(
    ("mutant", "name", "sentence"),
    [
        ("forged_cause", "agreement_on_views", "a/1 and b/1 installed R24@a/1 with different causes: mutant against drawn"),
        ("lost_submit", "every_submit_accounted", "b/1 neither sent nor refused b/1#77:1, which it had accepted"),
        ("left_behind", "end_together_2_1", "b/1 stayed in R24@a/1 to the end, but its member a/1 stayed in T22@a/1"),
    ],
    ids=["forged_cause", "lost_submit", "left_behind"],
)
def test_a_person_understands_it(audit: Result, mutant: str, name: str, sentence: str) -> None:
    rows = audit.broken.where((F.col("run") == run_key(f"views: {mutant}")) & (F.col("property") == name)).collect()
    assert sentence in {row.explanation for row in rows}
