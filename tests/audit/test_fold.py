"""The fold of digests: silent about good histories however they are told, and of one mind with the checkers about bad ones."""

from __future__ import annotations

from functools import cache
from random import Random

import pytest

from tests.audit.digests import CLUSTER, digests_of, prefix, told, told_by, told_of
from tests.guarantees.mutants import MUTANTS, Mutant
from tests.guarantees.oracle import good_history
from tests.trace.taped import taped_run
from transis.audit.follow.divergence import AGREEMENT, ATOMICITY, ONE_SEQUENCE, DigestFile, Divergence, FollowVerdict
from transis.audit.follow.fold import Fold
from transis.audit.guarantees import check
from transis.audit.guarantees.property import BROKEN, HELD, NOT_PROMISED, PENDING
from transis.sim.plan import TOTEM, Scenario
from transis.trace.events import Conf, Event, Gap, History
from transis.trace.tape import EMPTY, after
from transis.trace.tape import Digest as Sums
from transis.types.ids import NodeId, ViewId, ViewKind
from transis.types.views import Cause, Member, View

A, B, C = (NodeId(name, 1, boot) for name, boot in (("a", 7), ("b", 8), ("c", 9)))


def verdict(fold: Fold, name: str) -> FollowVerdict:
    (found,) = [one for one in fold.verdicts() if one.property == name]
    return found


def view(seq: int, *nodes: NodeId, after: View | None = None) -> View:
    conf = ViewId(ViewKind.REGULAR, seq, nodes[0])
    return View(conf, conf, tuple(Member(node, "", after.id if after else None) for node in nodes), Cause("test"), 0)


def between(before: View, seq: int, *nodes: NodeId) -> View:
    conf = ViewId(ViewKind.TRANSITIONAL, seq, nodes[0])
    return View(conf, before.id, tuple(Member(node, "", before.id) for node in nodes), Cause("test"), 0)


def sums(*counters: int) -> Sums:
    """Of a sender's messages in this order."""
    reckoned = EMPTY
    for counter in counters:
        reckoned = after(reckoned, 12345, counter, 1)
    return reckoned


def prefixes(where: View, *counters: int, last: bool = False) -> list[Event]:
    events: list[Event] = [prefix(where, sums(*counters[: n + 1]), False) for n in range(len(counters))]
    return [*events, prefix(where, sums(*counters), True)] if last else events


RING = view(4, A, B, C)


def at(node: NodeId, *counters: int, **more: int) -> DigestFile:
    return told(node, [Conf(0, 0, RING), *prefixes(RING, *counters)], **more)


# -- good histories ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scenario", [TOTEM, Scenario("lansis")], ids=lambda one: one.options)
@pytest.mark.parametrize("seed", [3])
def test_tapes_of_a_simulated_run_agree(seed: int, scenario: Scenario) -> None:
    lives, _ = taped_run(seed, False, scenario)
    fold = Fold()
    assert fold.add([told_by(life) for life in lives]) == []
    assert verdict(fold, ONE_SEQUENCE).checked > 0
    assert BROKEN not in [one.verdict for one in fold.verdicts()]


@cache
def drawn(seed: int) -> History:
    return good_history(seed, steps=300)


@pytest.mark.parametrize("seed", range(8))
def test_a_good_history_is_held_however_its_rows_come(seed: int) -> None:
    rows, random = told_of(drawn(seed)), Random(seed)
    whole = Fold()
    assert whole.add(rows) == []
    singles = [one._replace(events=[event]) for one in rows for event in one.events]
    shuffled = [*singles, *random.sample(singles, len(singles) // 3)]
    random.shuffle(shuffled)
    again = Fold()
    assert again.add(shuffled) == []
    assert again.verdicts() == whole.verdicts()
    assert {verdict(whole, name).verdict for name in (ONE_SEQUENCE, ATOMICITY, AGREEMENT)} <= {HELD, PENDING}
    piecewise = Fold()
    for start in range(0, len(shuffled), 97):
        assert piecewise.add(shuffled[start : start + 97]) == []
        piecewise = Fold.restored(piecewise.state())


def test_what_was_told_before_changes_nothing() -> None:
    fold, rows = Fold(), told_of(drawn(3))
    fold.add(rows)
    before = fold.verdicts(), fold.state()
    assert fold.add(rows) == []
    assert (fold.verdicts(), fold.state()) == before


# -- bad ones ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_fold_is_of_one_mind_with_the_checkers(mutant: Mutant) -> None:
    """What it says is broken is broken, and a different sequence at equal positions is always seen."""
    for seed in range(6):
        history = mutant(drawn(seed), Random(seed))
        if history is None or has_gaps(history):
            continue
        broken = {name for name, one in check(history).verdicts.items() if one.count}
        found = Fold().add(told_of(history))
        seen = broken | ({ATOMICITY} if "no_duplicates" in broken else set())  # Sums count a message that came twice.
        assert {one.property for one in found} <= seen, [one.explanation for one in found]
        assert (ONE_SEQUENCE in broken) == any(one.property == ONE_SEQUENCE for one in found)


def has_gaps(history: History) -> bool:
    """Then nobody can say which positions digests were of; a node adds up all that it delivers, recorded or not."""
    return any(isinstance(event, Gap) for trace in history.nodes for event in trace.events)


def parted(*rows: DigestFile) -> Divergence:
    (found,) = Fold().add(rows)
    return found


def test_a_node_that_skips_is_found_at_once_and_named() -> None:
    found = parted(at(A, 1, 2, 3, 4, 5), at(B, 1, 2, 4, 5), at(C, 1, 2, 3, 4))
    assert found[:6] == (CLUSTER, ONE_SEQUENCE, RING.id, RING.id, 2, 3)
    assert found.sides == (("a/1", "c/1"), ("b/1",))
    assert "the same up to message 2, not the same up to 3: a/1 and c/1 against b/1" in found.explanation


def test_two_that_swap_are_found_where_they_differ_only() -> None:
    found = parted(at(A, 1, 2, 3, 4), at(B, 1, 3, 2, 4))
    assert (found.equal_at, found.differs_at) == (1, 2)


def test_a_violation_is_said_once_and_stays() -> None:
    fold = Fold()
    assert len(fold.add([at(A, 1, 2, 3), at(B, 1, 3)])) == 1
    assert fold.add([at(C, 1, 2, 3, 4), at(A, 1, 2, 3, 4), at(B, 1, 3, 4)]) == []
    fold = Fold.restored(fold.state())
    assert fold.add([at(A, 1, 2, 3, 4, 5), at(B, 1, 3, 4, 5)]) == []
    assert (verdict(fold, ONE_SEQUENCE).verdict, verdict(fold, ONE_SEQUENCE).violations) == (BROKEN, 1)


def test_a_difference_shows_across_a_restart_of_the_follower() -> None:
    fold = Fold()
    assert fold.add([at(A, 1, 2, 3), at(B, 1, 2, 3), at(C, 1, 2, 3)]) == []
    (found,) = Fold.restored(fold.state()).add([at(A, 1, 2, 3, 4), at(B, 1, 2, 3, 5)])
    assert (found.equal_at, found.differs_at) == (3, 4)


def moved(node: NodeId, *counters: int) -> list[Event]:
    """Left the ring with a and b, having delivered these."""
    next_ring = view(8, A, B, after=RING)
    transitional = between(RING, 6, A, B)
    return [
        *prefixes(RING, *counters, last=True),
        Conf(0, 0, transitional),
        prefix(transitional, EMPTY, True),
        Conf(0, 0, next_ring),
    ]


def test_who_moves_on_together_must_have_delivered_the_same() -> None:
    found = parted(told(A, moved(A, 1, 2, 3)), told(B, moved(B, 1, 2)))
    assert (found.property, found.conf, found.sides) == (ATOMICITY, RING.id, (("a/1",), ("b/1",)))
    assert "b/1 had delivered 2 messages" in found.explanation
    fold = Fold()
    assert fold.add([told(A, moved(A, 1, 2, 3)), told(B, moved(B, 1, 2, 3)), at(C, 1, 2)]) == []
    assert verdict(fold, ATOMICITY).verdict == HELD


def test_one_view_with_two_lists_of_members_is_found() -> None:
    other = RING._replace(members=RING.members[:2])
    found = parted(told(A, [Conf(0, 0, RING)]), told(B, [Conf(0, 0, other)]))
    assert (found.property, found.sides) == (AGREEMENT, (("a/1",), ("b/1",)))


def test_what_is_not_promised_is_not_judged() -> None:
    fold = Fold()
    rows = [at(A, 1, 2), at(B, 2, 1)]
    assert fold.add([one._replace(mode="toto") for one in rows]) == []
    assert verdict(fold, ONE_SEQUENCE).verdict == NOT_PROMISED
    assert verdict(fold, AGREEMENT).verdict == HELD


def test_clusters_are_not_compared_with_each_other() -> None:
    fold = Fold()
    assert fold.add([at(A, 1, 2), at(B, 2, 1)._replace(cluster="another")]) == []
    assert {one.cluster for one in fold.verdicts()} == {CLUSTER, "another"}


def test_digests_of_a_history_reach_its_end() -> None:
    """The helper of these tests, which would prove nothing if it told nothing."""
    trace = max(drawn(3).nodes, key=lambda one: len(one.events))
    assert sum(1 for event in digests_of(trace) if not isinstance(event, Conf)) > 50
