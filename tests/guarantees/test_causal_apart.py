"""Causal messages that are not in the total order (Lansis): checkers hold them to what is promised, no more and no less."""

from functools import cache
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.guarantees.mutants import CAUSAL_MUTANTS, MUTANTS, Mutant
from tests.guarantees.naive import Naive
from tests.guarantees.oracle import Actor, broken_by
from tests.guarantees.oracle_apart import ApartWorld, apart_history
from tests.guarantees.test_naive import AMBIGUOUS, GAPPED, TWINS
from tests.guarantees.toy import Toy
from tests.guarantees.wounds import assert_breaks_its_set_and_nothing_else, wounded
from transis.audit.guarantees import NODE_PROPERTIES, check
from transis.audit.guarantees.certificates import certified
from transis.audit.guarantees.history import LaidHistory
from transis.trace.events import Delivery, History
from transis.types.ids import NodeId, Service
from transis.types.views import View

SEEDS = 60
STRIKES = 4

DRAGGED = frozenset({"causal_5", "fifo"})
"""What a mutant of ordered messages may break here besides its set: a causal message behind the one it moved depends on that."""


@cache
def drawn(seed: int) -> History:
    return apart_history(seed)


def lansis(text: str) -> History:
    return Toy(text).history(engine="lansis")


GOOD = {
    "two causal messages come in two orders": """
        a: R4{a,b} s1~ d1 d2
        b: R4{a,b} s2~ d2 d1
    """,
    "a causal message comes before an ordered one here and after it there": """
        a: R4{a,b} s1 s2~ d1 d2 d3
        b: R4{a,b} s3 d1 d3 d2
    """,
    "a causal message is missed by the side that its sender lost": """
        a: R4{a,b} s1~ d1 T6{a} R8{a}
        b: R4{a,b} T6{b} R8{b}
    """,
    "what waits for an ordered message of the transitional comes there too": """
        a: R4{a,b} s1! T6{a,b} d1 d2 R8{a,b}
        b: R4{a,b} s2~ T6{a,b} d2 d1 R8{a,b}
    """,
}

BAD = {
    "an answer before its question": (
        """
        a: R4{a,b,c} s1~ d1 d2
        b: R4{a,b,c} d1 s2~ d2
        c: R4{a,b,c} d2 d1
        """,
        {"causal_5"},
        "b/1 had delivered 1 messages of a/1 in R4@a/1 before it sent b/1#0:1, but c/1 had delivered fewer of them",
    ),
    "an answer without its question": (
        """
        a: R4{a,b,c} s1~ d1 x
        b: R4{a,b,c} d1 s2~ d2 x
        c: R4{a,b,c} T6{c} d2 R8{c}
        """,
        {"causal_5"},
        "when it delivered b/1#0:1 in T6@c/1",
    ),
    "a causal message overtakes an ordered one of its sender": (
        """
        a: R4{a,b} s1 s2~ d1 d2
        b: R4{a,b} d2 d1
        """,
        {"causal_5", "fifo"},
        "a/1 had sent 1 messages of its own in R4@a/1 before it sent a/1#0:2, but b/1 had delivered fewer of them",
    ),
    "an ordered message before the causal one that its sender had delivered": (
        """
        a: R4{a,b,c} s1~ d1 d2
        b: R4{a,b,c} d1 s2 d2
        c: R4{a,b,c} d2 d1
        """,
        {"causal_5"},
        "b/1 had delivered 1 messages of a/1",
    ),
    "one message is before and after another by way of causal ones": (
        """
        a: R4{a,b,c} s1 d1 s2~ d2 d3 d4
        b: R4{a,b,c} s3 d3 s4~ d4 d1 d2
        c: R4{a,b,c} d1 d3 d2 d4
        """,
        {"total_order_6_1", "places", "no_holes_6_3", "one_sequence"},
        "cannot be put into one total order",
    ),
    "those who go on together have different causal messages": (
        """
        a: R4{a,b} s1~ d1 T6{a,b} R8{a,b}
        b: R4{a,b} T6{a,b} R8{a,b}
        """,
        {"failure_atomicity_4"},
        "only a/1 delivered a/1#0:1, b/1 did not",
    ),
    "or have them on different sides of the transitional configuration": (
        """
        a: R4{a,b} s1~ d1 T6{a,b} R8{a,b}
        b: R4{a,b} T6{a,b} d1 R8{a,b}
        """,
        {"failure_atomicity_4"},
        "in R4@a/1 only a/1 delivered a/1#0:1",
    ),
    "a sender forgets its own": ("a: R4{a} s1~ T6{a} R8{a}", {"self_delivery_3"}, "a/1 sent a/1#0:1 in R4@a/1"),
    "delivered twice": ("a: R4{a} s1~ d1 d1", {"no_duplicates"}, "a/1 delivered a/1#0:1 twice"),
}


@pytest.mark.parametrize("name", GOOD)
def test_what_causal_order_allows_is_no_violation(name: str) -> None:
    assert check(lansis(GOOD[name])).violations == ()


@pytest.mark.parametrize("name", BAD)
def test_what_it_forbids_is_found_and_explained(name: str) -> None:
    text, breaks, words = BAD[name]
    outcome = check(lansis(text))
    assert set(outcome.broken) == breaks
    assert any(words in violation.explanation for violation in outcome.violations)


def test_on_the_ring_causal_messages_share_the_order() -> None:
    text = GOOD["two causal messages come in two orders"]
    assert "total_order_6_1" in check(Toy(text).history()).broken


@pytest.mark.parametrize("seed", range(25))
@pytest.mark.parametrize("closed", [True, False])
def test_the_oracle_breaks_nothing_and_the_certificates_prove_it(seed: int, closed: bool) -> None:
    history = apart_history(seed, closed=closed)
    outcome = check(history)
    assert outcome.violations == ()
    assert not (closed and outcome.pending)
    assert certified(LaidHistory(history))


def test_a_long_drawn_history_exercises_every_property() -> None:
    outcome = check(apart_history(1, steps=2000))
    assert {name: verdict.verdict for name, verdict in outcome.verdicts.items()} == dict.fromkeys(NODE_PROPERTIES, "held")


def test_the_oracle_delivers_causal_messages_out_of_their_places() -> None:
    """Without this the histories would be those of the ring, and nothing would be learned from them."""
    behind = 0
    for trace in drawn(1).nodes:
        runs = [event for event in trace.events if isinstance(event, Delivery)]
        behind += sum(1 for one, two in pairwise(runs) if one.regular == two.regular and two.place < one.place and two.tpos < 0)
    assert behind > 10


def test_causal_messages_have_no_position_in_the_order() -> None:
    runs = [event for trace in drawn(2).nodes for event in trace.events if isinstance(event, Delivery)]
    assert {run.tpos < 0 for run in runs if run.service is Service.CAUSAL} == {True}
    assert {run.tpos < 0 for run in runs if run.service is Service.AGREED} == {False}


@pytest.mark.parametrize("mutant", CAUSAL_MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_of_causal_messages_breaks_its_set_and_nothing_else(mutant: Mutant) -> None:
    assert_breaks_its_set_and_nothing_else(mutant, wounded(mutant, drawn, range(SEEDS), STRIKES))


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_mutants_of_the_ring_are_seen_here_too(mutant: Mutant) -> None:
    roomy = mutant._replace(may=mutant.may | (DRAGGED - mutant.must))
    assert_breaks_its_set_and_nothing_else(roomy, wounded(mutant, drawn, range(SEEDS), STRIKES))


PLAIN = [mutant for mutant in (*MUTANTS, *CAUSAL_MUTANTS) if not mutant.must & AMBIGUOUS and mutant.name not in GAPPED]


@settings(max_examples=60)
@given(seed=st.integers(0, 10_000), wounds=st.integers(0, 3))
def test_the_checkers_agree_with_their_twin(seed: int, wounds: int) -> None:
    history = apart_history(seed, "abcd", steps=60)
    rng = Random(seed)
    for mutant in rng.sample(PLAIN, wounds):
        history = mutant(history, rng) or history
    outcome = check(history)
    naive = Naive(history)
    clever = {name: name in outcome.broken for name in TWINS}
    assert clever == {name: twin(naive) for name, twin in TWINS.items()}


class WhenReceived(ApartWorld):
    """Causal messages are delivered as soon as they are here, whatever comes before them (without W5)."""

    def _eligible(self, actor: Actor) -> list[int]:
        assert actor.ring is not None
        log = actor.ring.log
        return [p for p in sorted(actor.received - self._apart[actor.id]) if log[p].ids.service is Service.CAUSAL]


class OwnDelivered(ApartWorld):
    """Who leaves a ring delivers in the regular configuration what it can by itself, instead of what its companions can."""

    def _recover(self, actor: Actor, high: int, covered: frozenset[NodeId], transitional: View) -> None:
        super()._recover(actor, actor.delivered, covered, transitional)


@pytest.mark.parametrize(("oracle", "breaks"), [(WhenReceived, {"causal_5"}), (OwnDelivered, {"failure_atomicity_4"})])
def test_a_wrong_rule_is_found(oracle: type[ApartWorld], breaks: set[str]) -> None:
    assert breaks <= broken_by(oracle)
