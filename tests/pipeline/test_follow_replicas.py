"""Checkpoints of applications: replicas that say the same are held, and of those that do not the guilty messages are named."""

from __future__ import annotations

from tests.pipeline.digests import CLUSTER, told
from tests.pipeline.test_fold import A, B, C, verdict
from transis.model.groups import GroupViewId
from transis.model.guarantees import BROKEN, HELD, NOT_EXERCISED
from transis.model.ids import NodeId, Place, ProcessId, ViewId, ViewKind
from transis.pipeline.follow.folding import Fold
from transis.pipeline.follow.replicas import COUNTS_MAX, VIEWS_MAX
from transis.pipeline.follow.telling import REPLICAS, Told
from transis.trace.events import CheckpointEvent

VIEW = GroupViewId(ViewId(ViewKind.REGULAR, 4, A), Place(7, 0))
SENDER = ProcessId(B, 2)


def said(node: NodeId, states: dict[int, bytes], view: GroupViewId = VIEW, modified_us: int = 0) -> Told:
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
    assert (found.property, found.equal_at, found.differs_at) == (REPLICAS, 20, 40)
    assert found.sides == (("a/1#1", "c/1#1"), ("b/1#1",))
    assert "equal up to b/1#2:120, different at b/1#2:140" in found.explanation
    assert "one of the 20 messages between" in found.explanation


def test_what_differs_from_the_beginning_says_so() -> None:
    (found,) = Fold().add([said(A, {0: b"x"}), said(B, {0: b"y"})])
    assert "never seen equal, different at the view" in found.explanation


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


def test_everything_is_bounded() -> None:
    fold = Fold()
    fold.add([said(A, dict.fromkeys(range(COUNTS_MAX + 5), b"x"))])
    for place in range(VIEWS_MAX + 5):
        fold.add([said(A, {1: b"x"}, VIEW._replace(place=Place(100 + place, 0)), modified_us=1 + place)])
    kept = fold.clusters[CLUSTER].state.replicas
    assert len(kept.views) == VIEWS_MAX
    assert kept.lost == 5
