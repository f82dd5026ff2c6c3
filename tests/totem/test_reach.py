"""Reachability as common knowledge (L3, W7): rows that merge in any order, and the partition that follows from them."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from tests.engine.hand import node_id
from transis.totem.packets import Row
from transis.totem.reach import Reachability, clique_of
from transis.types.ids import NodeId
from transis.types.limits import MEMBERS_MAX

NODES = [node_id(name) for name in "abcdefgh"]
A, B, C = NODES[:3]
Unheard = dict[NodeId, frozenset[NodeId]]

node_sets = st.frozensets(st.sampled_from(NODES))
unheard_maps = st.dictionaries(st.sampled_from(NODES), node_sets, max_size=8)
rows = st.lists(st.builds(Row, st.sampled_from(NODES[:3]), st.integers(0, 3), st.integers(0, 3), node_sets), max_size=10)


def mutual(one: NodeId, other: NodeId, unheard: Mapping[NodeId, frozenset[NodeId]]) -> bool:
    return other not in unheard.get(one, ()) and one not in unheard.get(other, ())


def twin_partition(candidates: frozenset[NodeId], unheard: Unheard) -> list[frozenset[NodeId]]:
    """The lexicographically first greedy clique, cut off, again and again, by trying every node against every other."""
    rest = sorted(candidates)
    parts = []
    while rest:
        part = [rest[0]]
        for node in rest[1:]:
            if all(mutual(node, member, unheard) for member in part):
                part = [*part, node]
        parts.append(frozenset(part))
        rest = [node for node in rest if node not in part]
    return parts


@given(node_sets, unheard_maps)
def test_everybody_computes_the_same_partition(candidates: frozenset[NodeId], unheard: Unheard) -> None:
    parts = {node: clique_of(node, candidates, unheard) for node in candidates}
    assert sorted(map(sorted, set(parts.values()))) == sorted(map(sorted, twin_partition(candidates, unheard)))
    for node, part in parts.items():
        assert node in part
        assert all(parts[member] == part for member in part)


@given(node_sets, unheard_maps)
def test_within_a_part_all_hear_each_other(candidates: frozenset[NodeId], unheard: Unheard) -> None:
    for node in candidates:
        part = clique_of(node, candidates, unheard)
        # A node that says it does not hear itself is nonsense from the wire and separates nobody else.
        assert all(mutual(one, other, unheard) for one, other in combinations(sorted(part), 2))


@given(node_sets, unheard_maps)
def test_the_lowest_part_cannot_be_enlarged(candidates: frozenset[NodeId], unheard: Unheard) -> None:
    if candidates:
        part = clique_of(min(candidates), candidates, unheard)
        for outsider in candidates - part:
            assert not all(mutual(outsider, member, unheard) for member in part)


@given(unheard_maps)
def test_whoever_is_no_candidate_is_alone(unheard: Unheard) -> None:
    assert clique_of(A, NODES[1:], unheard) == {A}


def test_the_middle_of_a_chain_goes_with_the_lower_end() -> None:
    unheard = {A: frozenset({C})}
    assert [clique_of(node, (A, B, C), unheard) for node in (A, B, C)] == [{A, B}, {A, B}, {C}]


def test_deafness_of_one_side_is_enough() -> None:
    for unheard in ({A: frozenset({B})}, {B: frozenset({A})}):
        assert clique_of(A, (A, B), unheard) == {A}
        assert clique_of(B, (A, B), unheard) == {B}


def test_a_part_has_no_more_members_than_a_ring_may_have() -> None:
    crowd = [NodeId(f"n{number:03}", 1, number) for number in range(MEMBERS_MAX + 5)]
    assert clique_of(crowd[0], crowd, {}) == frozenset(crowd[:MEMBERS_MAX])
    assert clique_of(crowd[-1], crowd, {}) == frozenset(crowd[MEMBERS_MAX:])


# --- rows -----------------------------------------------------------------------------------------------------------


def merged(taught: list[Row]) -> Reachability:
    reach = Reachability()
    for row in taught:
        reach.merge(row, 0)
    return reach


@given(rows, st.randoms(use_true_random=False))
def test_rows_may_come_in_any_order_and_more_than_once(taught: list[Row], random: object) -> None:
    shuffled = [*taught, *taught]
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert merged(shuffled).rows == merged(taught).rows


@given(rows)
def test_a_row_only_grows_and_shows_the_latest_sign_of_life(taught: list[Row]) -> None:
    for node, row in merged(taught).rows.items():
        of_node = [each for each in taught if each.node == node]
        version, beat = max((each.version, each.beat) for each in of_node)
        assert row == Row(node, version, beat, frozenset().union(*(each.unheard for each in of_node)))


@given(rows)
def test_what_is_known_teaches_nothing(taught: list[Row]) -> None:
    reach = merged(taught)
    assert not any(reach.merge(row, 1) for row in taught)


def test_merge_tells_whether_anybody_s_hearing_changed() -> None:
    reach = Reachability()
    assert not reach.merge(Row(A, 1, 0, frozenset()), 0)
    assert reach.merge(Row(A, 1, 0, frozenset({B})), 0)
    assert not reach.merge(Row(A, 1, 5, frozenset({B})), 0), "a beat alone is no news"
    assert not reach.merge(Row(A, 2, 0, frozenset()), 0), "a later Gather of a neighbour must not make mine endless"
    assert reach.unheard() == {A: frozenset({B})}


def test_only_a_new_beat_is_a_sign_of_life() -> None:
    reach = Reachability()
    reach.merge(Row(A, 1, 3, frozenset()), 100)
    reach.merge(Row(A, 1, 3, frozenset({B})), 200)
    assert reach.beat_at[A] == 100
    reach.merge(Row(A, 1, 4, frozenset()), 300)
    assert reach.beat_at[A] == 300
    reach.merge(Row(A, 1, 2, frozenset()), 400)
    assert reach.beat_at[A] == 300


def test_rows_of_an_ended_gather_do_not_come_back() -> None:
    reach = Reachability()
    late = Row(A, 4, 0, frozenset({C}))
    reach.merge(late, 0)
    reach.merge(Row(B, 2, 0, frozenset()), 0)
    reach.reset([A, B])
    assert reach.rows == {}
    assert not reach.merge(late, 1)
    assert not reach.merge(Row(B, 1, 9, frozenset({A})), 1)
    assert reach.rows == {}
    reach.merge(Row(A, 5, 0, frozenset()), 1)
    assert reach.unheard() == {A: frozenset()}


def test_who_was_left_out_of_the_ring_keeps_its_word() -> None:
    """A node that is not installed is still in the same Gather, so its row has no floor."""
    reach = Reachability()
    row = Row(C, 1, 0, frozenset({A}))
    reach.merge(row, 0)
    reach.reset([A, B])
    assert reach.merge(row, 1)
    assert reach.unheard() == {C: frozenset({A})}
