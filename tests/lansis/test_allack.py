"""All-ack: the order of keys is that of the paper's rounds, it is the same in every revelation, and promises need holding."""

from __future__ import annotations

from random import Random

from hypothesis import assume, given
from hypothesis import strategies as st

from tests.lansis.bursts import BASE, Said, burst_of, enter, said
from tests.lansis.worlds import World, ordered_worlds
from transis.lansis.dag import Dag
from transis.lansis.orders import AllAck

OBSERVER = -1


def order_of(members: int, me: int = OBSERVER) -> AllAck:
    """An observer sends nothing, so its own promise (the last of the list, by index -1) belongs to an extra rank."""
    return AllAck(me, [1] * (members + (me == OBSERVER)), BASE)


def take_all(order: AllAck) -> list[tuple[int, int]]:
    taken = []
    while (node := order.next()) is not None:
        order.took(node)
        node.delivered = True
        taken.append((node.rank, node.last))
    return taken


def rounds(world: World, upto: set[Said]) -> list[tuple[int, int]]:
    """The snapshot reading of the seed: wait for a message of each machine, deliver those that follow no pending one, by rank.

    A message counts when its machine has sent another after it or is known to be at an equal or later round.
    """
    depth: dict[Said, int] = {}
    for one in world.sent:
        depth[one] = 1 + max((depth[cause] for cause in world.causes(one)), default=0)
    reach = [max((depth[one] for one in upto if one.rank == rank), default=0) for rank in range(world.members)]
    ready = [one for one in upto if depth[one] <= min(reach)]
    return [(one.rank, one.last) for one in sorted(ready, key=lambda one: (depth[one], one.rank))]


@given(ordered_worlds, st.integers(0, 1 << 32))
def test_every_revelation_delivers_the_rounds_of_the_snapshot_reading(world: World, seed: int) -> None:
    """With agreed messages only, a Lamport timestamp *is* the round (F9a); delivery is as far as rounds are complete."""
    random = Random(seed)
    graph, order = Dag(OBSERVER, [1] * world.members, BASE), order_of(world.members)
    arrivals = random.sample(world.sent, random.randint(0, len(world.sent)))
    taken: list[tuple[int, int]] = []
    inserted: set[Said] = set()
    for one in arrivals:
        for node in enter(graph, one):
            order.inserted(node)
            inserted.add(next(each for each in world.sent if (each.rank, each.last) == (node.rank, node.last)))
        taken += take_all(order)
        assert taken == rounds(world, inserted)


@given(ordered_worlds, st.integers(0, 1 << 32), st.integers(0, 1 << 32))
def test_two_revelations_deliver_prefixes_of_one_order(world: World, one: int, other: int) -> None:
    histories = []
    for seed in (one, other):
        random = Random(seed)
        graph, order = Dag(OBSERVER, [1] * world.members, BASE), order_of(world.members)
        taken: list[tuple[int, int]] = []
        for each in random.sample(world.sent, random.randint(0, len(world.sent))):
            for node in enter(graph, each):
                order.inserted(node)
            taken += take_all(order)
        histories.append(taken)
    short, long = sorted(histories, key=len)
    assert long[: len(short)] == short


def test_an_alive_promises_its_clock() -> None:
    graph, order = Dag(0, [1, 1], BASE), order_of(2, me=0)
    for node in enter(graph, said(0, 1, 5), me=0):
        order.inserted(node)
    order.heard_alive(1, 0, BASE + 4)
    assert order.next() is None
    order.heard_alive(1, 0, BASE + 5)
    assert take_all(order) == [(0, 1)]


def test_an_alive_promises_nothing_until_all_that_was_sent_before_it_is_here() -> None:
    """The burst on its way has a lower key: to believe the clock at once would deliver around it."""
    graph, order = Dag(0, [1, 1], BASE), order_of(2, me=0)
    for node in enter(graph, said(0, 1, 5), me=0):
        order.inserted(node)
    order.heard_alive(1, 1, BASE + 9)
    assert order.next() is None
    for node in enter(graph, said(1, 1, 3)):
        order.inserted(node)
    assert take_all(order) == [(1, 1), (0, 1)]


def test_an_old_alive_takes_no_promise_back() -> None:
    graph, order = Dag(0, [1, 1], BASE), order_of(2, me=0)
    order.heard_alive(1, 0, BASE + 9)
    order.heard_alive(1, 0, BASE + 2)
    for node in enter(graph, said(0, 1, 5), me=0):
        order.inserted(node)
    assert take_all(order) == [(0, 1)]


def test_alone_a_burst_leaves_at_once() -> None:
    graph, order = Dag(0, [1], BASE), order_of(1, me=0)
    for node in enter(graph, said(0, 1, 1), me=0):
        order.inserted(node)
    assert take_all(order) == [(0, 1)]


@given(ordered_worlds, st.integers(0, 1 << 32))
def test_the_rest_is_what_is_left_of_pre_in_the_order_of_keys(world: World, seed: int) -> None:
    random = Random(seed)
    assume(world.sent)
    graph, order = Dag(OBSERVER, [1] * world.members, BASE), order_of(world.members)
    for node in enter(graph, *world.sent):
        order.inserted(node)
    before = take_all(order)
    pre = [random.randint(0, last) for last in graph.inserted]
    left = sorted((one for one in world.sent if (one.rank, one.last) not in before), key=lambda one: one.key)
    expected = [(one.rank, one.last) for one in left if one.last <= pre[one.rank]]
    upto = random.choice(world.sent).key
    first = list(order.rest(pre, upto))
    assert [(node.rank, node.last) for node in first] == [
        (one.rank, one.last) for one in left if one.last <= pre[one.rank] and one.key <= upto
    ]
    for node in first:
        order.took(node)
        node.delivered = True
    assert [(node.rank, node.last) for node in order.rest(pre, None)] == expected[len(first) :]


def test_the_frontier_is_the_key_of_the_last_that_left() -> None:
    graph, order = Dag(0, [1], BASE), order_of(1, me=0)
    assert order.frontier == 0
    (node,) = (graph.receive(burst_of(said(0, 1, 3)), own=True), graph.insert_ready())[1]
    order.inserted(node)
    take_all(order)
    assert order.frontier == node.key == 3 << 7


def test_who_breaks_its_promise_is_not_ordered_behind_it() -> None:
    """Nothing honest does this; the order goes on, and nothing raises."""
    graph, order = Dag(0, [1, 1], BASE), order_of(2, me=0)
    order.heard_alive(1, 0, BASE + 9)
    for node in enter(graph, said(0, 1, 5), me=0):
        order.inserted(node)
    assert take_all(order) == [(0, 1)]
    (liar,) = enter(graph, said(1, 1, 3))
    order.inserted(liar)
    assert take_all(order) == []
    assert liar.delivered
    assert list(order.rest([9, 9], None)) == []
