"""Stability: what everybody has, against a naive twin; rows that only grow; rows that are closed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.lansis.bursts import BASE, enter, said
from tests.lansis.worlds import World, worlds
from transis.lansis.dag import Dag
from transis.lansis.stability import Stability

claims = st.lists(st.tuples(st.integers(0, 3), st.lists(st.integers(0, 20), min_size=4, max_size=4)), max_size=40)


@given(claims)
def test_stable_is_the_least_of_what_was_heard(heard: list[tuple[int, list[int]]]) -> None:
    stability = Stability(0, [1] * 4, 0)
    rows = [[0] * 4 for _ in range(4)]
    for member, recv in heard:
        before = list(stability.stable)
        stability.heard(member, recv, 1)
        if member != 0:
            rows[member] = [max(pair) for pair in zip(rows[member], recv, strict=True)]
        assert stability.ack == rows
        assert stability.stable == [min(row[sender] for row in rows) for sender in range(4)]
        assert all(old <= new for old, new in zip(before, stability.stable, strict=True))
        stability.check()


@given(worlds)
def test_a_burst_is_stable_when_everybody_sent_one_that_follows_it(world: World) -> None:
    """The paper's words, by explicit reachability, seen by a member that sends nothing but has everything."""
    me = world.members
    graph = Dag(me, [1] * (me + 1), BASE)
    stability = Stability(me, [1] * (me + 1), 0)
    nodes = enter(graph, *world.sent)
    for count, node in enumerate(nodes, 1):
        stability.inserted(node, count)
        stability.check()
        for one, held in zip(world.sent[:count], nodes, strict=False):
            followers = {other.rank for other in world.sent[:count] if one in world.past(other)}
            assert stability.holders(held) == len(followers) + 1
            assert stability.is_stable(held) == (len(followers) == me)


def test_the_row_of_a_member_that_made_its_statement_is_closed() -> None:
    graph = Dag(0, [1, 1], BASE)
    stability = Stability(0, [1, 1], 0)
    for node in enter(graph, said(0, 1, 1), me=0):
        stability.inserted(node, 1)
    stability.close(1)
    stability.heard(1, [1, 0], 2)
    assert stability.ack[1] == [0, 0]
    for node in enter(graph, said(1, 1, 2, (0, 1))):
        stability.inserted(node, 3)
    assert stability.ack == [[1, 1], [0, 0]]
    assert stability.stable == [0, 0]
    assert stability.is_closed(1)


def test_progress_is_growth_and_nothing_else() -> None:
    stability = Stability(0, [1, 1], 5)
    assert stability.progress_at == [5, 5]
    stability.heard(1, [1, 0], 7)
    stability.heard(1, [1, 0], 9)
    stability.heard(1, [0, 0], 11)
    assert stability.progress_at[1] == 7


def test_who_lacks_something_of_mine_is_behind() -> None:
    graph = Dag(0, [1, 1, 1], BASE)
    stability = Stability(0, [1, 1, 1], 0)
    assert not stability.is_behind(1)
    for node in enter(graph, said(2, 1, 1)):
        stability.inserted(node, 1)
    assert stability.is_behind(1)
    assert not stability.is_behind(2)
    stability.heard(1, [0, 0, 1], 2)
    assert not stability.is_behind(1)


def test_a_claim_about_what_does_not_exist_makes_nothing_stable() -> None:
    stability = Stability(0, [1, 1], 0)
    stability.heard(1, [1 << 60, 1 << 60], 1)
    assert stability.stable == [0, 0]
