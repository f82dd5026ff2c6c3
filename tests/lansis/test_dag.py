"""The DAG: whatever the order of arrival, it holds what a naive twin holds; and nothing that arrives can break it."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.lansis.bursts import BASE, TAG, Said, burst_of, enter, said
from tests.lansis.worlds import World, worlds
from transis.lansis.dag import TIMESTAMP_ROOM, Dag, DagNode
from transis.lansis.packets import Nack, encode_acks
from transis.types.ids import DatagramClass
from transis.types.limits import BURST_DATAGRAMS_MAX, SEQ_JUMP_MAX
from transis.wire.burst import Burst, DataHeader, encode_data

OBSERVER = -1
"""The rank of somebody who sends nothing: everything comes to it from the network."""


def graph_of(members: int) -> Dag:
    return Dag(OBSERVER, [1] * members, BASE)


def pieces(burst: Burst, random: Random) -> list[Burst]:
    """The datagrams of a burst, cut somewhere."""
    cut = random.randint(burst.first_seq, burst.last_seq)
    if cut == burst.last_seq:
        return [burst]
    return [burst.slice(burst.first_seq, cut), burst.slice(cut + 1, burst.last_seq)]


class Twin:
    """Sets of datagrams and of bursts; everything is worked out again each time."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._datagrams: set[tuple[int, int]] = set()

    def receive(self, burst: Burst) -> None:
        self._datagrams |= {(burst.sender, seq) for seq in range(burst.first_seq, burst.last_seq + 1)}

    @property
    def inserted(self) -> set[Said]:
        whole = {
            one for one in self._world.sent if all((one.rank, seq) in self._datagrams for seq in range(one.first, one.last + 1))
        }
        return {one for one in whole if self._world.past(one) <= whole}

    def missing(self) -> set[tuple[int, int]]:
        """What is named by a datagram above it or by acknowledgements of which the bytes are there, and is not held."""
        named: set[tuple[int, int]] = set()
        for rank, seq in self._datagrams:
            named |= {(rank, below) for below in range(1, seq)}
        for one in self._readable():
            for rank, last in one.acks:
                named |= {(rank, below) for below in range(1, last + 1)}
        return named - self._datagrams

    def _readable(self) -> set[Said]:
        """Acknowledgements of a long burst straddle its first two datagrams (bursts.py): those are read when it is whole and
        everything of its sender before it is there."""
        dense = {
            rank: max(upto for upto in range(1000) if all((rank, seq) in self._datagrams for seq in range(1, upto + 1)))
            for rank in range(self._world.members)
        }
        inserted = self.inserted
        readable = set()
        for one in self._world.sent:
            before = all(other in inserted for other in self._world.sent if other.rank == one.rank and other.last < one.first)
            if ((one.rank, one.first) in self._datagrams and (one.first == one.last or not one.acks)) or (
                before and dense[one.rank] >= one.last
            ):
                readable.add(one)
        return readable


def as_said(world: World, node: DagNode) -> Said:
    return next(one for one in world.sent if (one.rank, one.last) == (node.rank, node.last))


@given(worlds, st.integers(0, 1 << 32))
def test_any_order_of_arrival_gives_the_naive_dag(world: World, seed: int) -> None:
    random = Random(seed)
    graph, twin = graph_of(world.members), Twin(world)
    parts = [part for one in world.sent for part in pieces(burst_of(one), random)]
    parts += random.choices(parts, k=len(parts) // 3) if parts else []
    random.shuffle(parts)
    entered: list[Said] = []
    for part in parts[: random.randint(1, len(parts)) if parts else 0]:
        graph.receive(part)
        twin.receive(part)
        entered += [as_said(world, node) for node in graph.insert_ready()]
        graph.check()
        assert set(entered) == twin.inserted
        assert {(rank, seq) for rank, first, last in graph.missing() for seq in range(first, last + 1)} == twin.missing()
    assert len(entered) == len(set(entered)), "nothing enters twice"
    for at, one in enumerate(entered):
        assert world.past(one) <= set(entered[: at + 1]), "causes come before effects"
    leaves = {one for one in entered if not any(one in world.past(other) for other in entered if other != one)}
    assert set(graph.leaves.items()) == {(one.rank, one.last) for one in leaves}
    assert graph.take_broken() == []


@given(worlds)
def test_the_past_of_a_node_is_what_can_be_reached_from_it(world: World) -> None:
    graph = graph_of(world.members)
    nodes = {as_said(world, node): node for node in enter(graph, *world.sent)}
    assert set(nodes) == set(world.sent)
    for one, node in nodes.items():
        for other in world.sent:
            assert node.follows(nodes[other]) == (other in world.past(one))


@given(worlds, st.integers(0, 1 << 32))
def test_collection_forgets_only_what_is_stable_and_delivered_and_changes_no_past_of_what_is_left(
    world: World, seed: int
) -> None:
    random = Random(seed)
    graph, kept = graph_of(world.members), graph_of(world.members)
    for one in world.sent:
        (node,), (twin,) = enter(graph, one), enter(kept, one)
        for left in graph.nodes:
            assert node.follows(left) == (twin.past[left.rank] >= left.last)
        for left in graph.nodes:
            left.delivered = left.delivered or random.random() < 0.4
        stable = [random.randint(0, last) for last in graph.inserted]
        before = list(graph.nodes)
        count = graph.collect(stable)
        gone = before[:count]
        assert all(each.delivered and each.last <= stable[each.rank] for each in gone)
        assert list(graph.nodes) == before[count:]
        graph.check()


def test_an_acknowledgement_goes_out_once() -> None:
    graph = Dag(0, [1, 1, 1], BASE)
    enter(graph, said(1, 1, 1), said(2, 1, 1))
    assert graph.acks() == ((1, 1), (2, 1))
    enter(graph, said(0, 1, 2, (1, 1), (2, 1)), me=0)
    assert graph.acks() == ()


def test_a_leaf_that_another_acknowledges_needs_no_acknowledgement_of_mine() -> None:
    graph = Dag(0, [1, 1, 1], BASE)
    enter(graph, said(1, 1, 1), said(2, 1, 2, (1, 1)))
    assert graph.acks() == ((2, 1),)


def test_the_chain_of_the_paper_shows_the_lost_message() -> None:
    """A1 A2 a2B1 B2 b3C1: B3 is missing, and C1 waits for it (lansis-1992 3.1)."""
    graph = graph_of(3)
    entered = enter(graph, said(0, 1, 1), said(0, 2, 2), said(1, 1, 3, (0, 2)), said(1, 2, 4), said(2, 1, 6, (1, 3)))
    assert [(node.rank, node.last) for node in entered] == [(0, 1), (0, 2), (1, 1), (1, 2)]
    assert list(graph.missing()) == [(1, 3, 3)]
    entered = enter(graph, said(1, 3, 5))
    assert [(node.rank, node.last) for node in entered] == [(1, 3), (2, 1)]
    assert list(graph.missing()) == []


def test_requests_are_read_from_a_burst_that_has_to_wait_itself() -> None:
    """Two who miss each other's first burst would otherwise never hear of each other's requests."""
    graph = graph_of(2)
    graph.receive(burst_of(said(1, 2, 2), nacks=[Nack(0, 1, 1)]))
    assert graph.insert_ready() == []
    assert graph.take_asked() == [(1, (Nack(0, 1, 1),))]
    assert graph.take_asked() == []


def test_what_two_members_name_in_their_data_is_confirmed() -> None:
    graph = graph_of(3)
    enter(graph, said(1, 1, 3, (0, 2)))
    assert graph.confirmed == [0, 0, 0]
    enter(graph, said(2, 1, 3, (0, 1)))
    assert graph.confirmed == [1, 0, 0]


def test_a_claim_outside_data_confirms_nothing() -> None:
    graph = graph_of(3)
    graph.name(0, 2)
    enter(graph, said(1, 1, 3, (0, 2)))
    assert graph.confirmed == [0, 0, 0]
    assert list(graph.missing()) == [(0, 1, 2)]


def test_counters_of_a_view_begin_where_the_last_one_ended() -> None:
    graph = Dag(0, [1, 8], BASE)
    assert list(graph.missing()) == []
    assert enter(graph, said(1, 7, 1)) == []
    assert len(enter(graph, said(1, 8, 1))) == 1
    assert graph.inserted == [0, 8]
    graph.check()


def test_the_first_copy_of_a_datagram_wins() -> None:
    graph = graph_of(2)
    (node,) = enter(graph, said(0, 1, 1))
    assert enter(graph, said(0, 1, 9)) == []
    assert [each.ts for each in graph.nodes] == [node.ts]


def test_nobody_else_sends_in_my_name() -> None:
    graph = Dag(0, [1, 1], BASE)
    assert graph.receive(burst_of(said(0, 1, 1))) == []
    graph.name(0, 5)
    assert list(graph.missing()) == []
    graph.check()


def lone(**changes: object) -> Burst:
    """One datagram of rank 0 with something wrong in its header."""
    header = DataHeader(DatagramClass.ORDERED, TAG, 0, 1, 0, BASE + 1, 5, 0, True, False)._replace(**changes)
    return Burst(header, [encode_data(header, encode_acks(0, (), ()))])


@pytest.mark.parametrize(
    "burst",
    [
        pytest.param(lone(timestamp=BASE), id="not above the base"),
        pytest.param(lone(timestamp=BASE + TIMESTAMP_ROOM), id="beyond the room of the view"),
        pytest.param(lone(seq=SEQ_JUMP_MAX + 1), id="far ahead"),
        pytest.param(lone(index=BURST_DATAGRAMS_MAX), id="a burst too long"),
        pytest.param(lone(encapsulated=True), id="encapsulated"),
    ],
)
def test_implausible_datagrams_are_not_taken(burst: Burst) -> None:
    graph = graph_of(2)
    assert graph.receive(burst) == []
    assert graph.named == [0, 0]


@pytest.mark.parametrize(
    "hostile",
    [
        pytest.param(burst_of(said(0, 1, 1, (0, 1))), id="acknowledges itself"),
        pytest.param(burst_of(said(0, 1, 1, (2, 1))), id="acknowledges nobody"),
        pytest.param(burst_of(said(0, 1, 1, (1, SEQ_JUMP_MAX + 3))), id="acknowledges what nobody can have sent"),
        pytest.param(burst_of(said(0, 1, 9, (1, 1))), id="acknowledges half a burst"),
        pytest.param(burst_of(said(0, 1, 3, (1, 2))), id="older than what it follows"),
        pytest.param(burst_of(said(0, 1, 9, dep=9 << 7)), id="had delivered what came after it"),
        pytest.param(burst_of(said(0, 1, 9), prefix=b"\x01"), id="no acknowledgements"),
        pytest.param(burst_of(said(0, 1, 9), prefix=b"\x04\x00"), id="ends within its acknowledgements"),
        pytest.param(lone(index=3), id="begins in the middle"),
    ],
)
def test_a_member_whose_bytes_make_no_sense_is_told_once_and_taken_no_more(hostile: Burst) -> None:
    graph = graph_of(2)
    enter(graph, said(1, 1, 3, last=2))
    graph.receive(hostile)
    assert graph.insert_ready() == []
    ((rank, _),) = graph.take_broken()
    assert rank == 0
    assert graph.take_broken() == []
    assert enter(graph, said(0, 2, 9)) == []
    assert len(enter(graph, said(1, 3, 4))) == 1
    graph.check()


def test_a_burst_whose_pieces_differ_is_broken() -> None:
    graph = graph_of(1)
    whole, other = burst_of(said(0, 1, 1, last=2)), burst_of(said(0, 1, 2, last=2))
    graph.receive(whole.slice(1, 1))
    graph.receive(other.slice(2, 2))
    assert graph.insert_ready() == []
    assert [rank for rank, _ in graph.take_broken()] == [0]


def test_a_broken_member_does_not_stop_who_acknowledged_it_from_being_parked() -> None:
    graph = graph_of(3)
    graph.receive(lone(index=3))
    graph.insert_ready()
    assert enter(graph, said(1, 1, 5, (0, 1))) == []
    assert graph.parked == 2
    graph.check()


# --- limbo ----------------------------------------------------------------------------------------------------------


def test_in_limbo_a_member_enters_only_as_far_as_others_follow_it() -> None:
    graph = graph_of(3)
    enter(graph, said(0, 1, 1))
    graph.put_in_limbo(0)
    assert enter(graph, said(0, 2, 2), said(0, 3, 3), said(0, 4, 4)) == []
    entered = enter(graph, said(1, 1, 5, (0, 3)))
    assert [(node.rank, node.last) for node in entered] == [(0, 2), (0, 3), (1, 1)]
    assert graph.inserted == [3, 1, 0]
    graph.check()


def test_what_is_required_of_one_in_limbo_requires_what_it_follows_of_another() -> None:
    graph = graph_of(3)
    graph.put_in_limbo(0)
    graph.put_in_limbo(1)
    assert enter(graph, said(0, 1, 1), said(1, 1, 2, (0, 1)), said(0, 2, 3), said(1, 2, 4)) == []
    entered = enter(graph, said(2, 1, 5, (1, 1)))
    assert [(node.rank, node.last) for node in entered] == [(0, 1), (1, 1), (2, 1)]
    assert graph.inserted == [1, 1, 1]
    graph.check()


def test_one_in_limbo_requires_nothing_for_itself() -> None:
    graph = graph_of(2)
    graph.put_in_limbo(0)
    graph.put_in_limbo(1)
    assert enter(graph, said(0, 1, 1), said(1, 1, 2, (0, 1))) == []
    assert graph.inserted == [0, 0]
