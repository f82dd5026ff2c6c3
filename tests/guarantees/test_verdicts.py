"""Verdicts: met, broken, void, pending; caps, counts and shortest witnesses."""

import pytest

from tests.guarantees.toy import history, report, word
from transis.audit.guarantees import check
from transis.audit.guarantees.property import VIOLATIONS_MAX
from transis.types.errors import UsageError

MISSED_SAFE = """
    a: R4{a,b} s1! d1 T6{a} R8{a}
    b: R4{a,b} %s
"""


@pytest.mark.parametrize(
    ("rest", "closed", "verdict"),
    [
        ("T6{b} d1 R8{b}", True, "held"),
        ("T6{b} R8{b}", True, "broken"),
        ("T6{b} R8{b}", False, "broken"),
        ("T6{b}", True, "broken"),
        ("T6{b}", False, "pending"),
        ("T6{b} x", True, "held"),
        ("z", True, "held"),
        ("?", True, "pending"),
        ("g T6{b} R8{b}", True, "pending"),
    ],
)
def test_an_obligation_is_met_broken_void_or_pending(rest: str, closed: bool, verdict: str) -> None:
    assert word(MISSED_SAFE % rest, "safe_7_1", closed) == verdict


@pytest.mark.parametrize(
    ("text", "closed", "verdict"),
    [
        ("a: R4{a,b} d1<b\nb: R4{a,b}", True, "broken"),
        ("a: R4{a,b} d1<b\nb: R4{a,b}", False, "pending"),
        ("a: R4{a,b} d1<b\nb: R4{a,b} x", False, "broken"),
        ("a: R4{a,b} d1<b\nb: R4{a,b} ?", False, "pending"),
        ("a: R4{a,b} d1<b\nb: R4{a,b} g", True, "pending"),
        ("a: R4{a,b} d1<b", False, "pending"),
    ],
)
def test_creation_is_pending_while_the_senders_trace_is_open_or_cut(text: str, closed: bool, verdict: str) -> None:
    assert word(text, "no_creation", closed) == verdict


@pytest.mark.parametrize(
    ("text", "closed", "verdict"),
    [
        ("a: R4{a} s1 u2 d1", False, "pending"),
        ("a: R4{a} s1 u2 d1 x", True, "held"),
        ("a: R4{a} s1 u2 d1 z", False, "held"),
        ("a: R4{a} s1 u2 d1 ?", True, "pending"),
    ],
)
def test_an_unsent_submit_is_void_when_its_node_ended(text: str, closed: bool, verdict: str) -> None:
    assert word(text, "every_submit_accounted", closed) == verdict


def test_ending_together_is_due_only_when_the_run_is_closed() -> None:
    text = "a: R4{a,b} T6{a,b} R8{a,b}\nb: R4{a,b}"
    assert word(text, "end_together_2_1", closed=True) == "broken"
    assert word(text, "end_together_2_1", closed=False) == "pending"


def test_self_delivery_is_due_when_the_node_went_on() -> None:
    assert word("a: R4{a} s1 T6{a} R8{a}", "self_delivery_3", closed=False) == "broken"
    assert word("a: R4{a} s1 T6{a}", "self_delivery_3", closed=False) == "pending"


def test_safe_where_a_member_never_came_is_pending_only_while_it_may_still_come() -> None:
    text = "a: R4{a} T6{a} R8{a,b} s1! d1\nb: R5{b} %s"
    assert word(text % "", "safe_7_2", closed=False) == "pending"
    assert word(text % "x", "safe_7_2", closed=False) == "broken"
    assert word(text % "T8{b} R9{b}", "safe_7_2", closed=False) == "broken"


def test_lives_with_somebody_elses_memory_may_overlap() -> None:
    text = "a: R4{a} +900 x\na2: +100 f(copied state directory) R5{a2}"
    assert word(text, "incarnations_never_overlap") == "held"


def test_a_thousand_violations_are_counted_and_a_few_kept() -> None:
    text = "a: R4{a} " + " ".join(f"s{number} d{number} d{number}" for number in range(1, 1001))
    verdict = report(text).verdicts["no_duplicates"]
    assert verdict.count == 1000
    assert len(verdict.violations) == VIOLATIONS_MAX


def test_the_shortest_circle_is_told_whatever_lies_between() -> None:
    middle = " ".join(f"d{number}" for number in range(3, 60))
    sends = " ".join(f"s{number}" for number in range(3, 60))
    (circle,) = (
        report(f"a: R4{{a,b}} s1 s2 {sends} d1 {middle} d2\nb: R4{{a,b}} d2 d1 {middle}").verdicts["total_order_6_1"].violations
    )
    assert len(circle.witness) == 4
    assert len(circle.messages) == 2


def test_an_unknown_promise_is_refused() -> None:
    with pytest.raises(UsageError, match="must be one of evs, transis, toto"):
        check(history("a: R4{a}", promises="everything"))
