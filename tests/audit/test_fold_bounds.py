"""The fold of digests: who is silent or late is pending and never broken, and what is remembered stays bounded."""

from __future__ import annotations

import pytest

from tests.audit.digests import CLUSTER, prefix, told
from tests.audit.test_fold import RING, A, B, C, at, prefixes, sums, verdict, view
from transis.audit.follow.divergence import ONE_SEQUENCE, POSITIONS_MAX, SETTLED_MAX, DigestFile
from transis.audit.follow.fold import CONFIGURATIONS_MAX, GONE_US, LIVES_MAX, SILENT_US, Fold
from transis.audit.guarantees.property import BROKEN, HELD, NOT_EXERCISED, PENDING
from transis.trace.events import Conf, End
from transis.trace.tape import Digest as Sums
from transis.types.ids import NodeId

# -- silence -----------------------------------------------------------------------------------------------------------------


def test_a_node_that_says_nothing_is_pending_and_never_broken() -> None:
    fold = Fold()
    fold.add([at(A, 1, 2), at(B, 1, 2)])
    assert verdict(fold, ONE_SEQUENCE)[2:] == (HELD, 2, 0, 0)
    fold.add([at(node, 1, 2, modified_us=SILENT_US + 1) for node in (A, B)])
    assert verdict(fold, ONE_SEQUENCE)[2:] == (PENDING, 2, 0, 1)
    fold.add([told(C, [End(0, 0, "failed")], modified_us=1)])
    assert verdict(fold, ONE_SEQUENCE)[2:] == (HELD, 2, 0, 0)
    assert list(fold.heard_us()) == [(CLUSTER, "a/1"), (CLUSTER, "b/1")]
    fold.add([told(A._replace(incarnation=2), [])])
    assert list(fold.heard_us()) == [(CLUSTER, "a/2"), (CLUSTER, "b/1")]


def test_a_node_that_falls_silent_while_others_go_on_is_pending() -> None:
    fold = Fold()
    fold.add([at(A, 1, 2), at(B, 1, 2), at(C, 1, 2)])
    later = 2 * SILENT_US
    fold.add([at(A, 1, 2, 3, modified_us=later), at(B, 1, 2, 3, modified_us=later)])
    assert (verdict(fold, ONE_SEQUENCE).verdict, verdict(fold, ONE_SEQUENCE).pending) == (PENDING, 1)
    smaller = view(5, A, B, after=RING)
    gone_on = [told(node, [*prefixes(RING, 1, 2, 3, last=True), Conf(0, 0, smaller)], modified_us=later) for node in (A, B)]
    fold.add(gone_on)
    assert verdict(fold, ONE_SEQUENCE).verdict == HELD


def test_a_node_that_speaks_after_the_others_is_compared_though_nobody_told_the_members() -> None:
    """The file that told them is a day old and was deleted, or recording paused then."""
    fold, many = Fold(), tuple(range(1, 200))
    assert fold.add([told(node, prefixes(RING, *many)) for node in (A, B)]) == []
    (found,) = fold.add([told(C, prefixes(RING, 1, 3, 2, *many[3:]))])
    assert (found.property, found.equal_at, found.differs_at) == (ONE_SEQUENCE, 1, 2)
    assert found.sides == (("a/1", "b/1"), ("c/1",))


def test_what_two_of_one_side_share_is_not_where_the_sides_were_equal() -> None:
    """Who tells seldom is compared seldom: its difference may be far before the position at which it is seen."""
    good, bad = tuple(range(1, 65)), (1, 2, 4, 3, *range(5, 65))
    often = [told(node, [Conf(0, 0, RING), *(prefix(RING, sums(*good[:n]), False) for n in range(8, 65, 8))]) for node in (A, C)]
    seldom = told(B, [Conf(0, 0, RING), prefix(RING, sums(*bad), False)])
    (found,) = Fold().add([*often, seldom])
    assert (found.equal_at, found.differs_at) == (0, 64)


def test_nothing_is_not_exercised() -> None:
    fold = Fold()
    fold.add([told(A, [])])
    assert verdict(fold, ONE_SEQUENCE).verdict == NOT_EXERCISED


def test_what_all_agree_on_is_forgotten() -> None:
    fold = Fold()
    many = tuple(range(1, 300))
    fold.add([at(A, *many), at(B, *many), at(C, *many[:-20])])
    (kept,) = fold.clusters[CLUSTER].state.configurations
    assert [position for position in sorted(kept.positions.at) if position > 250] == [256, 264, 272, *range(279, 300)]
    fold.add([at(C, *many)])
    assert kept.settled == 299
    assert len(kept.positions.at) <= SETTLED_MAX + 1


DAY = 5 * POSITIONS_MAX + 11
"""More positions than are remembered, several times."""


def day_of(node: NodeId, wrong_at: int = 0) -> list[DigestFile]:
    """Digests of a long configuration, in many files; a wrong message is in all sums from its position on."""
    numbers = [Sums(n, n, n + (0 < wrong_at <= n)) for n in range(1, DAY + 1)]
    events = [Conf(0, 0, RING), *(prefix(RING, one, False) for one in numbers)]
    return [told(node, events[at : at + 1000]) for at in range(0, len(events), 1000)]


def test_positions_of_a_cluster_with_a_silent_node_are_bounded() -> None:
    fold = Fold()
    for file in day_of(A):
        fold.add([file])
        (kept,) = fold.clusters[CLUSTER].state.configurations
        assert len(kept.positions.at) <= POSITIONS_MAX
    assert max(kept.positions.at) == DAY
    assert verdict(fold, ONE_SEQUENCE).verdict == NOT_EXERCISED
    fold.add([told(B, [], modified_us=SILENT_US + 1)])
    assert (verdict(fold, ONE_SEQUENCE).verdict, verdict(fold, ONE_SEQUENCE).pending) == (PENDING, 2)


def test_a_day_of_one_node_that_comes_before_a_day_of_the_next_is_compared_from_end_to_end() -> None:
    """Directories that are copied one after the other come like this: the follower reads files in the order of their times."""
    fold = Fold()
    for node in (A, B, C):
        for file in day_of(node):
            assert fold.add([file]) == []
    (kept,) = fold.clusters[CLUSTER].state.configurations
    assert kept.settled == DAY
    assert len(kept.positions.at) <= SETTLED_MAX + 1
    assert verdict(fold, ONE_SEQUENCE).verdict == HELD


@pytest.mark.parametrize("wrong_at", [1, 700, POSITIONS_MAX, DAY // 2, DAY])
def test_one_wrong_message_of_such_a_day_is_found(wrong_at: int) -> None:
    fold = Fold()
    found = [
        divergence for node in (A, B) for file in day_of(node, wrong_at if node is B else 0) for divergence in fold.add([file])
    ]
    (divergence,) = found
    assert divergence.property == ONE_SEQUENCE
    assert divergence.equal_at < wrong_at <= divergence.differs_at
    assert divergence.sides == (("a/1",), ("b/1",))
    for file in day_of(C):
        assert fold.add([file]) == []
    assert verdict(fold, ONE_SEQUENCE).verdict == BROKEN


def test_configurations_are_bounded_and_what_was_checked_in_them_is_remembered() -> None:
    fold = Fold()
    for seq in range(1, CONFIGURATIONS_MAX + 40):
        ring = view(4 * seq, A, B)
        rows = [told(node, [Conf(0, 0, ring), *prefixes(ring, 1, 2)], modified_us=seq) for node in (A, B)]
        assert fold.add(rows) == []
    state = fold.clusters[CLUSTER].state
    assert [one.touched_us for one in state.configurations] == list(range(40, CONFIGURATIONS_MAX + 40))
    assert verdict(fold, ONE_SEQUENCE).checked == 2 * (CONFIGURATIONS_MAX + 39)
    assert len(fold.state()) < 50_000


def in_rings(fold: Fold, first: int, last: int) -> None:
    """Two nodes go through many rings, and deliver the same."""
    for seq in range(first, last):
        ring = view(4 * seq, A, B)
        fold.add([told(node, [Conf(0, 0, ring), *prefixes(ring, 1, 2)], modified_us=seq) for node in (A, B)])


def test_a_violation_of_a_configuration_that_was_forgotten_is_not_counted_again() -> None:
    fold, bad = Fold(), [at(A, 1, 2), at(B, 2, 1)]
    assert len(fold.add(bad)) == 1
    in_rings(fold, 2, CONFIGURATIONS_MAX + 10)
    assert RING.id not in [one.id for one in fold.clusters[CLUSTER].state.configurations]
    fold = Fold.restored(fold.state())
    assert fold.add(bad) == []
    in_rings(fold, CONFIGURATIONS_MAX + 10, 2 * CONFIGURATIONS_MAX + 20)
    assert fold.add(bad) == []
    assert (verdict(fold, ONE_SEQUENCE).verdict, verdict(fold, ONE_SEQUENCE).violations) == (BROKEN, 1)


# -- files of a life that ended, after the one that says so ------------------------------------------------------------------


def test_a_life_whose_end_is_read_first_is_still_compared() -> None:
    many = tuple(range(1, 300))
    for wrong in (2, 100, 250):
        fold = Fold()
        assert fold.add([told(C, [Conf(0, 0, RING), End(0, 0, "failed")]), at(A, *many), at(B, *many)]) == []
        assert fold.clusters[CLUSTER].state.configurations[0].settled == 299
        (found,) = fold.add([at(C, *(number + (number >= wrong) for number in many))])
        assert (found.property, found.sides) == (ONE_SEQUENCE, (("a/1", "b/1"), ("c/1",)))
        assert found.equal_at < wrong <= found.differs_at


def test_a_life_that_told_only_what_is_forgotten_is_pending() -> None:
    fold, many = Fold(), tuple(range(1, 300))
    fold.add([told(C, [End(0, 0, "failed")]), at(A, *many), at(B, *many)])
    fold.add([told(C, [prefix(RING, sums(7, 8, 9), True)])])
    assert (verdict(fold, ONE_SEQUENCE).verdict, verdict(fold, ONE_SEQUENCE).pending) == (PENDING, 1)
    fold.add([at(C, *many[:200])])
    assert (verdict(fold, ONE_SEQUENCE).verdict, verdict(fold, ONE_SEQUENCE).pending) == (HELD, 0)


# -- lives -------------------------------------------------------------------------------------------------------------------


def test_lives_are_bounded_and_the_newest_of_each_name_stays() -> None:
    fold = Fold()
    for number in range(2 * LIVES_MAX):
        born = A._replace(incarnation=number + 1, boot=number)
        fold.add([told(born, [Conf(0, 0, view(4 * number + 4, born, B)), End(0, 0, "failed")], modified_us=number)])
        fold = Fold.restored(fold.state()) if number % 500 == 0 else fold
    state = fold.clusters[CLUSTER].state
    assert len(state.lives) <= LIVES_MAX + 1
    assert len(state.heard_us) + len(state.ended) <= 2 * (LIVES_MAX + 1)
    last = A._replace(incarnation=number + 2, boot=number + 1)
    ring = view(4 * number + 8, last, B)
    (found,) = fold.add([told(last, [Conf(0, 0, ring), *prefixes(ring, 1)]), told(B, prefixes(ring, 2))])
    assert found.sides == ((str(last),), ("b/1",)), "numbers that are given again name the right lives"


def test_a_node_that_is_gone_for_good_does_not_age_for_ever() -> None:
    fold, smaller = Fold(), view(8, A, B, after=RING)
    fold.add([at(A, 1), at(B, 1), at(C, 1)])
    fold.add([told(node, [Conf(0, 0, smaller)], modified_us=GONE_US) for node in (A, B)])
    assert list(fold.heard_us()) == [(CLUSTER, "a/1"), (CLUSTER, "b/1"), (CLUSTER, "c/1")]
    fold.add([told(A, prefixes(smaller, 1), modified_us=3 * GONE_US)])
    assert list(fold.heard_us()) == [(CLUSTER, "a/1"), (CLUSTER, "b/1")], "b is silent as long, but a member"
