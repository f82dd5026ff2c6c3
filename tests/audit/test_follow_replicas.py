"""Checkpoints of applications: replicas that say the same are held, and of those that do not the guilty messages are named."""

from __future__ import annotations

from tests.audit.digests import CLUSTER, told
from tests.audit.test_fold import A, B, C, verdict
from transis.audit.follow.divergence import ALL_COUNTS_MAX, COUNTS_MAX, REPLICAS, DigestFile
from transis.audit.follow.fold import Fold
from transis.audit.guarantees.property import BROKEN, HELD, NOT_EXERCISED
from transis.trace.events import CheckpointEvent
from transis.types.ids import NodeId, Place, ProcessId, ViewId, ViewKind
from transis.types.views import GroupViewId

VIEW = GroupViewId(ViewId(ViewKind.REGULAR, 4, A), Place(7, 0))
SENDER = ProcessId(B, 2)


def said(node: NodeId, states: dict[int, bytes], view: GroupViewId = VIEW, modified_us: int = 0) -> DigestFile:
    """Checkpoints of process 1 of a node, by how many messages it had taken."""
    events = [
        CheckpointEvent(0, 0, 1, 99, "orders", view, count, SENDER if count else None, 100 + count, Place(count, 0), state)
        for count, state in states.items()
    ]
    return told(node, [*events], modified_us)


def test_replicas_that_agree_are_held() -> None:
    fold = Fold()
    assert fold.add([said(A, {0: b"x", 1: b"y"}), said(B, {1: b"y", 2: b"z"})]) == []
    assert fold.add([said(C, {2: b"z"})]) == []
    assert verdict(fold, REPLICAS) == (CLUSTER, REPLICAS, HELD, 2, 0, 0)


def test_the_message_after_which_they_differ_is_named() -> None:
    (found,) = Fold().add([said(A, {10: b"x", 20: b"y", 40: b"z"}), said(B, {10: b"x", 40: b"!"}), said(C, {20: b"y", 40: b"z"})])
    assert (found.property, found.equal_at, found.differs_at) == (REPLICAS, 10, 40)
    assert found.sides == (("a/1#1", "c/1#1"), ("b/1#1",))
    assert "equal up to b/1#2:110, different at b/1#2:140" in found.explanation
    assert "one of the 30 messages between" in found.explanation


def test_a_replica_that_speaks_after_the_others_is_compared() -> None:
    fold = Fold()
    for count in (1000, 2000, 3000):
        assert fold.add([said(node, {count: b"x"}) for node in (A, B)]) == []
    assert fold.add([said(C, {1000: b"x"})]) == []
    (found,) = fold.add([said(C, {2000: b"other", 3000: b"other"})])
    assert (found.equal_at, found.differs_at, found.sides) == (1000, 2000, (("a/1#1", "b/1#1"), ("c/1#1",)))


def test_what_differs_from_the_beginning_says_so() -> None:
    (found,) = Fold().add([said(A, {0: b"x"}), said(B, {0: b"y"})])
    assert "never seen equal, different at the view: a/1#1 against b/1#1; no message came between" in found.explanation


def test_it_is_said_once_and_across_a_restart() -> None:
    fold = Fold()
    assert fold.add([said(A, {1: b"x"}), said(B, {1: b"x"})]) == []
    fold = Fold.restored(fold.state())
    (found,) = fold.add([said(A, {2: b"x"}), said(B, {2: b"y"})])
    assert (found.cluster, found.equal_at, found.differs_at) == (CLUSTER, 1, 2)
    assert "equal up to b/1#2:101" in found.explanation
    assert fold.add([said(A, {3: b"x"}), said(B, {3: b"y"})]) == []
    assert (verdict(fold, REPLICAS).verdict, verdict(fold, REPLICAS).violations) == (BROKEN, 1)


def test_other_views_are_not_compared() -> None:
    fold = Fold()
    assert fold.add([said(A, {1: b"x"}), said(B, {1: b"y"}, VIEW._replace(place=Place(8, 0)))]) == []
    assert verdict(fold, REPLICAS).verdict == NOT_EXERCISED


def views(first: int, amount: int) -> list[GroupViewId]:
    return [VIEW._replace(place=Place(first + number, 0)) for number in range(amount)]


def test_counts_of_a_view_are_bounded_and_who_comes_much_later_is_still_compared() -> None:
    fold, many = Fold(), dict.fromkeys(range(8 * COUNTS_MAX), b"x")
    assert fold.add([said(A, many)]) == []
    (kept,) = fold.clusters[CLUSTER].state.replicas.views.values()
    assert len(kept.counts.at) <= COUNTS_MAX
    (found,) = fold.add([said(B, {count: b"x" if count < 700 else b"y" for count in many})])
    assert found.equal_at < 700 <= found.differs_at


def test_many_groups_are_bounded_and_what_was_told_of_one_is_not_told_again() -> None:
    fold, each = Fold(), COUNTS_MAX // 2
    states = dict.fromkeys(range(each), b"x")
    assert len(fold.add([said(A, states), said(B, dict.fromkeys(states, b"y"))])) == 1
    for number, view in enumerate(views(100, ALL_COUNTS_MAX // each)):
        assert fold.add([said(A, states, view, modified_us=1 + number)]) == []
    kept = fold.clusters[CLUSTER].state.replicas
    assert sum(len(one.counts.at) for one in kept.views.values()) == ALL_COUNTS_MAX
    fold = Fold.restored(fold.state())
    assert fold.add([said(A, states), said(B, dict.fromkeys(states, b"y"))]) == []
    assert verdict(fold, REPLICAS).violations == 1


# -- a process that speaks twice ---------------------------------------------------------------------------------------------


def spoken(node: NodeId, *states: bytes, lseq: int = 1) -> DigestFile:
    """One word after the other at the beginning of the view."""
    events = (
        CheckpointEvent(lseq + i, 0, 1, 99, "orders", VIEW, 0, None, 0, Place(0, 0), state) for i, state in enumerate(states)
    )
    return told(node, [*events])


def test_the_last_word_of_a_process_counts() -> None:
    """It spoke before and after it was given its state; it does not differ from itself."""
    fold = Fold()
    assert fold.add([spoken(A, b"empty", b"x"), spoken(B, b"x")]) == []
    assert verdict(fold, REPLICAS).verdict == HELD
    (found,) = fold.add([spoken(C, b"x", b"y")])
    assert found.sides == (("a/1#1", "b/1#1"), ("c/1#1",))


def test_the_last_word_is_the_last_that_was_said_and_not_the_last_that_was_read() -> None:
    fold = Fold()
    assert fold.add([spoken(A, b"x", lseq=5), spoken(B, b"x")]) == []
    fold = Fold.restored(fold.state())
    before = fold.state()
    assert fold.add([spoken(A, b"empty", lseq=4), spoken(A, b"x", lseq=5)]) == []
    assert fold.state() == before
