"""Causal: after all that its sender had delivered, not before, and in its sender's order whatever the services (W5)."""

from __future__ import annotations

from tests.lansis.bursts import Said, said, single
from transis.lansis.dag import DagNode
from transis.lansis.orders import WaitingNodes
from transis.types.ids import DatagramClass

CAUSAL = DatagramClass.CAUSAL


def key(ts: int, rank: int) -> int:
    return ts << 7 | rank


def node(one: Said) -> DagNode:
    return single(one)


def leave(waiting: WaitingNodes, ordered: DagNode) -> None:
    ordered.delivered = True
    waiting.delivered(ordered)


def test_who_had_delivered_nothing_makes_nobody_wait() -> None:
    waiting = WaitingNodes(2)
    free = node(said(1, 1, 4, klass=CAUSAL))
    waiting.inserted(free)
    assert waiting.eligible(0) == [free]
    assert waiting.eligible(0) == []


def test_a_causal_one_waits_for_the_ordered_one_that_its_sender_had_delivered() -> None:
    """W5: to follow it in the DAG is not enough, it must have been delivered here too."""
    waiting = WaitingNodes(2)
    reply = node(said(1, 1, 4, klass=CAUSAL, dep=key(3, 0)))
    waiting.inserted(reply)
    assert waiting.eligible(key(2, 1)) == []
    assert waiting.eligible(key(3, 0)) == [reply]


def test_a_causal_one_does_not_wait_for_what_its_sender_only_had() -> None:
    """The other way of W5: its sender held an ordered burst that it had not delivered. That is no cause."""
    waiting = WaitingNodes(2)
    waiting.inserted(node(said(0, 1, 3)))
    free = node(said(1, 1, 4, (0, 1), klass=CAUSAL))
    waiting.inserted(free)
    assert waiting.eligible(0) == [free]


def test_a_causal_one_waits_for_its_senders_own_ordered_burst() -> None:
    waiting = WaitingNodes(1)
    ordered, causal = node(said(0, 1, 1)), node(said(0, 2, 2, klass=CAUSAL))
    waiting.inserted(ordered)
    waiting.inserted(causal)
    assert waiting.eligible(0) == []
    assert len(waiting) == 1
    leave(waiting, ordered)
    assert waiting.eligible(ordered.key) == [causal]


def test_an_ordered_burst_that_left_already_is_not_waited_for() -> None:
    waiting = WaitingNodes(1)
    ordered, causal = node(said(0, 1, 1)), node(said(0, 2, 2, klass=CAUSAL))
    waiting.inserted(ordered)
    leave(waiting, ordered)
    waiting.inserted(causal)
    assert waiting.eligible(ordered.key) == [causal]


def test_those_that_wait_no_longer_come_by_key_not_by_what_they_waited_for() -> None:
    waiting = WaitingNodes(3)
    late = node(said(2, 1, 9, klass=CAUSAL, dep=key(1, 0)))
    early = node(said(1, 1, 5, klass=CAUSAL, dep=key(4, 0)))
    waiting.inserted(late)
    waiting.inserted(early)
    assert waiting.eligible(key(4, 0)) == [early, late]


def test_the_rest_is_cut_at_pre() -> None:
    waiting = WaitingNodes(2)
    inside, above = node(said(0, 1, 5, klass=CAUSAL, dep=key(4, 0))), node(said(1, 1, 6, klass=CAUSAL, dep=key(4, 0)))
    behind = node(said(0, 3, 8, klass=CAUSAL))
    waiting.inserted(inside)
    waiting.inserted(above)
    waiting.inserted(node(said(0, 2, 7)))
    waiting.inserted(behind)
    assert waiting.rest([3, 0]) == [inside, behind]


def test_basic_ones_are_in_no_queue() -> None:
    waiting = WaitingNodes(1)
    waiting.inserted(node(said(0, 1, 1, klass=DatagramClass.BASIC)))
    assert len(waiting) == 0
