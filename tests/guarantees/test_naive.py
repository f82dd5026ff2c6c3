"""The checkers and their dumb twin say the same of small histories, good ones and wounded ones."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.guarantees.mutants import MUTANTS
from tests.guarantees.naive import Naive
from tests.guarantees.oracle import good_history
from transis.audit.guarantees import check
from transis.trace.events import History

TWINS = {
    "total_order_6_1": Naive.total_order,
    "partial_order_1_1": Naive.partial_order,
    "self_delivery_3": Naive.self_delivery,
    "causal_5": Naive.causal,
    "no_holes_6_3": Naive.no_holes,
    "one_sequence": Naive.one_sequence,
    "failure_atomicity_4": Naive.failure_atomicity,
    "safe_7_1": Naive.safe,
}

AMBIGUOUS = {"agreement_on_views", "structure", "configuration_2_2", "sent_once_1_4"}
"""With two meanings under one id, the other predicates can be read in several ways."""

GAPPED = {"skipped_behind_a_gap"}
"""The twin takes every trace for a whole one."""

PLAIN = [mutant for mutant in MUTANTS if not mutant.must & AMBIGUOUS and mutant.name not in GAPPED]


def wound(history: History, rng: Random, wounds: int) -> History:
    for mutant in rng.sample(PLAIN, wounds):
        history = mutant(history, rng) or history
    return history


@settings(max_examples=60)
@given(seed=st.integers(0, 10_000), wounds=st.integers(0, 3))
def test_the_checkers_agree_with_their_twin(seed: int, wounds: int) -> None:
    history = wound(good_history(seed, "abcd", steps=60), Random(seed), wounds)
    outcome = check(history)
    naive = Naive(history)
    clever = {name: name in outcome.broken for name in TWINS}
    assert clever == {name: twin(naive) for name, twin in TWINS.items()}
