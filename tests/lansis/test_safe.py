"""Safe: the head of the order leaves when everybody is known to have it."""

from __future__ import annotations

from tests.lansis.bursts import BASE, enter, said
from transis.lansis.dag import Dag
from transis.lansis.delivery import may_leave
from transis.lansis.stability import Stability
from transis.types.ids import DatagramClass


def test_a_safe_one_waits_for_the_last_member_and_an_agreed_one_does_not() -> None:
    graph, stability = Dag(0, [1, 1, 1], BASE), Stability(0, [1, 1, 1], 0)
    safe, agreed = enter(graph, said(0, 1, 1, klass=DatagramClass.SAFE, last=2), said(0, 3, 2), me=0)
    for node in (safe, agreed):
        stability.inserted(node, 1)
    assert may_leave(agreed, stability)
    assert not may_leave(safe, stability)
    stability.heard(1, [2, 0, 0], 2)
    stability.heard(2, [1, 0, 0], 2)
    assert not may_leave(safe, stability), "half a burst is none"
    stability.heard(2, [2, 0, 0], 3)
    assert may_leave(safe, stability)
