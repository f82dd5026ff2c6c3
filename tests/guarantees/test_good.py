"""Histories that break nothing: the examples of the papers, and what the oracle draws."""

import pytest

from tests.guarantees.oracle import good_history
from tests.guarantees.toy import broken, report, word
from transis.audit.guarantees import NODE_PROPERTIES, check

GOOD = {
    "a singleton delivers its own": "a: R4{a} s1 s2! d1 d2",
    "two nodes, one order": """
        a: R4{a,b} s1 d1 s2! d2 d3
        b: R4{a,b} d1 s3 d2 d3
    """,
    "a partition: the sender's last message is missed by the other side": """
        a: R4{a,b} s1 s2 d1 d2 T6{a} R8{a}
        b: R4{a,b} d1 T6{b} R8{b}
    """,
    "a safe message delivered in the regular by one, in a transitional by the rest (F1)": """
        p: R4{p,q,r} s12! d12 T6{p} R8{p}
        q: R4{p,q,r} T6{q,r} d12 R8{q,r}
        r: R4{p,q,r} T6{q,r} d12 R8{q,r}
    """,
    "a member of a transitional one delivers in a smaller one (F8)": """
        a: R4{a,b,c} s1! T6{a,b,c} d1 R8{a,b,c} T10{a} R12{a}
        b: R4{a,b,c} T6{a,b,c} d1 R8{a,b,c} T10{b} R12{b}
        c: R4{a,b,c} T10{c} d1 R12{c}
    """,
    "a hole is explained when the sender of the missing message is gone": """
        a: R4{a,b,c} s1 d1 d2 T6{a} R8{a}
        b: R4{a,b,c} s2 T6{b,c} d2 R8{b,c}
        c: R4{a,b,c} T6{b,c} d2 R8{b,c}
    """,
    "a merge keeps each side's transitional configuration": """
        a: R4{a} s1 d1 T6{a} R8{a,b} d2
        b: R5{b} T6{b} R8{a,b} s2 d2
    """,
    "a failed node owes nothing": """
        a: R4{a,b} s1! d1 T6{a} R8{a}
        b: R4{a,b} s2 u3 x
    """,
    "a restarted node is somebody else": """
        a: R4{a,b} s1 d1 x
        a2: +900 R5{a2} T6{a2} R8{a2,b} s2! d2
        b: R4{a,b} d1 T6{b} R8{a2,b} d2
    """,
    "basic messages come in any order, and not at all to who parts from their sender": """
        a: R4{a,b} s1? s2? s3? d2 d3 d1 T6{a} R8{a}
        b: R4{a,b} d3 T6{b} R8{b}
    """,
    "refused messages are accounted for": "a: R4{a} u1 u2 r1 o2 d2",
}


@pytest.mark.parametrize("name", GOOD)
def test_a_good_history_breaks_nothing(name: str) -> None:
    assert report(GOOD[name]).violations == ()


@pytest.mark.parametrize("seed", range(25))
@pytest.mark.parametrize("closed", [True, False])
def test_the_oracle_breaks_nothing(seed: int, closed: bool) -> None:
    outcome = check(good_history(seed, closed=closed))
    assert outcome.violations == ()
    assert not (closed and outcome.pending)


def test_a_long_drawn_history_exercises_every_property() -> None:
    outcome = check(good_history(1, steps=2000))
    assert {name: verdict.verdict for name, verdict in outcome.verdicts.items()} == dict.fromkeys(NODE_PROPERTIES, "held")


def test_nothing_checked_is_not_exercised() -> None:
    assert word("a: R4{a}", "safe_7_1") == "not exercised"


def test_what_a_mode_does_not_promise_is_listed_apart() -> None:
    text = good_history(1)._replace(promises="toto")
    assert check(text).verdicts["total_order_6_1"].verdict == "not promised"


def test_broken_is_the_empty_set_for_good_histories() -> None:
    assert broken(GOOD["two nodes, one order"]) == set()
