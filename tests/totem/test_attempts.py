"""Whom to blame when the same membership fails twice (L2, W8)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.engine.hand import node_id
from transis.totem.commit import ring_order
from transis.totem.gather import ATTEMPTS_BEFORE_BLAME, Attempts
from transis.totem.packets import Join
from transis.totem.ring import Ring
from transis.types.ids import NodeId, RingId

A, B, C, D = (node_id(name) for name in "abcd")
ALL = frozenset((A, B, C, D))


def ring(me: NodeId, *members: NodeId, seq: int = 8) -> Ring:
    return Ring(RingId(seq, members[0]), members, me)


def join(sender: NodeId, seq: int, index: int) -> Join:
    nobody: frozenset[NodeId] = frozenset()
    return Join(sender, "", b"", 0, ALL, nobody, ALL, (), seq, index, False, 0, b"", (1, 1))


def failed_twice(me: NodeId, *members: NodeId, rotation: int = 1) -> Attempts:
    attempts = Attempts()
    for _ in range(ATTEMPTS_BEFORE_BLAME):
        attempts.forwarded(ring(me, *members), rotation)
        attempts.failed(ring(me, *members))
    return attempts


def test_the_first_failure_blames_nobody() -> None:
    attempts = Attempts()
    attempts.forwarded(ring(A, A, B), 1)
    attempts.failed(ring(A, A, B))
    assert attempts.count(frozenset((A, B))) == 1
    assert attempts.blame(frozenset((A, B)), A, []) is None


def test_failures_are_counted_by_membership_and_not_by_order() -> None:
    attempts = Attempts()
    attempts.failed(ring(A, A, B, C))
    attempts.failed(ring(A, A, C, B, seq=12))
    attempts.failed(ring(A, A, B))
    assert attempts.count(frozenset((A, B, C))) == 2
    assert attempts.count(frozenset((A, B))) == 1


def test_the_successor_of_the_last_that_forwarded_is_blamed() -> None:
    attempts = failed_twice(A, A, C, B, D)
    assert attempts.blame(ALL, A, []) == C
    assert attempts.blame(ALL, A, [join(C, 8, 1)]) == B
    assert attempts.blame(ALL, A, [join(C, 8, 1), join(B, 8, 2)]) == D


def test_words_about_another_attempt_do_not_count() -> None:
    attempts = failed_twice(A, A, B, C, D)
    assert attempts.blame(ALL, A, [join(C, 4, 2)]) == B


def test_in_the_second_rotation_it_goes_round_once_more() -> None:
    attempts = failed_twice(A, A, B, C, D, rotation=2)
    assert attempts.blame(ALL, A, []) == B
    assert attempts.blame(ALL, A, [join(C, 8, 4 + 2)]) == D


def test_a_representative_never_blames_itself() -> None:
    attempts = failed_twice(A, A, B, C, D)
    assert attempts.blame(ALL, A, [join(D, 8, 3)]) == D, "the token was lost on its way back to me"
    assert attempts.blame(ALL, A, [join(D, 8, 7)]) == D


def test_with_no_word_on_this_membership_the_highest_is_blamed() -> None:
    attempts = failed_twice(A, A, B, C)
    attempts.forwarded(ring(A, A, B), 1)
    assert attempts.blame(frozenset((A, B, C)), A, []) == C


def test_an_installed_ring_forgives() -> None:
    attempts = failed_twice(A, A, B)
    attempts.clear()
    assert attempts.blame(frozenset((A, B)), A, []) is None
    assert (attempts.seq, attempts.progress) == (0, 0)


def test_a_singleton_has_nobody_to_blame() -> None:
    assert failed_twice(A, A).blame(frozenset((A,)), A, []) is None


@given(st.integers(0, 7), st.lists(st.integers(0, 1 << 40), max_size=3))
def test_somebody_else_of_the_membership_is_blamed_whatever_joins_say(progress: int, words: list[int]) -> None:
    """A Join's index is a peer's word: any number at all must give a member."""
    attempts = failed_twice(A, A, B, C, D)
    blamed = attempts.blame(ALL, A, [join(B, 8, progress), *(join(C, 8, word) for word in words)])
    assert blamed in ALL - {A}


@given(st.frozensets(st.sampled_from([A, B, C, D]), min_size=1), st.integers(0, 12))
def test_the_order_of_the_ring_changes_with_attempts_but_not_its_members(members: frozenset[NodeId], attempt: int) -> None:
    order = ring_order(members, attempt)
    assert frozenset(order) == members
    assert len(order) == len(members)
    assert order[0] == min(members)


def test_the_first_order_is_ascending_and_later_ones_bring_other_neighbours() -> None:
    assert ring_order(ALL, 0) == (A, B, C, D)
    successors_of_a = {ring_order(ALL, attempt)[1] for attempt in range(6)}
    assert successors_of_a == {B, C, D}
