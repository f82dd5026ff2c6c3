"""ToTo: the rule of the paper, one order for all who hear of the same bursts, early, and the same end for all who go on."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.lansis.bursts import BASE, Said, enter, said
from tests.lansis.literal_toto import Literal, Slip
from tests.lansis.worlds import World, world_of
from transis.lansis.dag import Dag, DagNode
from transis.lansis.toto import ToTo
from transis.types.ids import DatagramClass

OBSERVER = -1
VOTERS = (DatagramClass.ORDERED, DatagramClass.ORDERED, DatagramClass.CAUSAL, DatagramClass.BASIC)
"""Every class votes; ordered ones are voted for."""

voting_worlds = st.builds(
    lambda seed, members, steps: world_of(seed, members, steps, VOTERS),
    st.integers(0, 1 << 32),
    st.integers(1, 6),
    st.integers(1, 40),
)
seeds = st.integers(0, 1 << 32)
Name = tuple[int, int]


class Machine:
    """Somebody that hears of bursts and delivers by ToTo."""

    def __init__(self, members: int) -> None:
        self.dag = Dag(OBSERVER, [1] * members, BASE)
        self.order = ToTo(members)
        self.taken: list[Name] = []
        self.heard: list[Name] = []

    def hear(self, one: Said) -> None:
        for node in self.insert(one):
            self.heard.append((node.rank, node.last))
            while (head := self.order.next()) is not None:
                self.take(head)

    def insert(self, one: Said) -> list[DagNode]:
        """Into the DAG, without delivery, as while views change."""
        nodes = enter(self.dag, one)
        for node in nodes:
            self.order.inserted(node)
        return nodes

    def take(self, node: DagNode) -> None:
        self.order.took(node)
        node.delivered = True
        self.taken.append((node.rank, node.last))

    def finish(self, pre: list[int], upto: int | None) -> None:
        for node in self.order.rest(pre, upto):
            self.take(node)


def some_of(world: World, random: Random) -> list[Said]:
    return random.sample(world.sent, random.randint(0, len(world.sent)))


def names(bursts: list[Said]) -> list[Name]:
    return [(one.rank, one.last) for one in bursts]


def is_prefix(one: list[Name], other: list[Name]) -> bool:
    short, long = sorted((one, other), key=len)
    return long[: len(short)] == short


@given(voting_worlds, seeds)
def test_the_rule_is_that_of_the_paper_after_every_burst(world: World, seed: int) -> None:
    machine, literal = Machine(world.members), Literal(world)
    by_name = {(one.rank, one.last): one for one in world.sent}
    for one in some_of(world, Random(seed)):
        before = len(machine.heard)
        machine.hear(one)
        for name in machine.heard[before:]:
            literal.receive(by_name[name])
        assert machine.taken == names(literal.delivered)


@given(voting_worlds, seeds, seeds)
def test_two_machines_deliver_prefixes_of_one_order(world: World, one: int, other: int) -> None:
    orders = []
    for seed in (one, other):
        machine = Machine(world.members)
        for each in some_of(world, Random(seed)):
            machine.hear(each)
        orders.append(machine.taken)
    assert is_prefix(*orders)


@given(voting_worlds, seeds)
def test_a_cause_leaves_before_its_effect(world: World, seed: int) -> None:
    machine = Machine(world.members)
    for one in some_of(world, Random(seed)):
        machine.hear(one)
    for at, name in enumerate(machine.taken):
        (late,) = [one for one in world.sent if (one.rank, one.last) == name]
        causes = [one for one in world.past(late) if one.klass is DatagramClass.ORDERED and one != late]
        assert set(names(causes)) <= set(machine.taken[:at])


@given(voting_worlds, seeds)
def test_when_everybody_follows_everything_nothing_is_left(world: World, seed: int) -> None:
    for rank in range(world.members):
        for one in list(world.sent):
            world.hear(rank, one)
        world.send(rank, 1, DatagramClass.CAUSAL)
    machine = Machine(world.members)
    for one in Random(seed).sample(world.sent, len(world.sent)):
        machine.hear(one)
    assert sorted(machine.taken) == sorted(names([one for one in world.sent if one.klass is DatagramClass.ORDERED]))


# --- the end of a view ----------------------------------------------------------------------------------------------


def part(world: World, random: Random, machines: list[Machine]) -> list[int]:
    """Each hears some bursts and stops; what one of them has, all get then. Pre."""
    for machine in machines:
        for one in some_of(world, random):
            machine.hear(one)
    pre = [max(counters) for counters in zip(*(machine.dag.inserted for machine in machines), strict=True)]
    for machine in machines:
        for one in random.sample(world.sent, len(world.sent)):
            if one.last <= pre[one.rank] or random.random() < 0.3:
                machine.insert(one)
    return pre


@given(voting_worlds, seeds)
def test_those_who_go_on_together_finish_the_view_alike(world: World, seed: int) -> None:
    """Whatever each has delivered, whatever each got besides: all of Pre leaves, first what anybody had delivered."""
    machines = [Machine(world.members) for _ in range(3)]
    pre = part(world, Random(seed), machines)
    delivered = [machine.taken[:] for machine in machines]
    furthest = max(delivered, key=len)
    for machine in machines:
        machine.finish(pre, len(furthest))
        assert machine.taken == furthest
        machine.finish(pre, None)
    assert machines[0].taken == machines[1].taken == machines[2].taken
    of_pre = [one for one in world.sent if one.klass is DatagramClass.ORDERED and one.last <= pre[one.rank]]
    assert sorted(machines[0].taken) == sorted(names(of_pre))


@given(voting_worlds, seeds)
def test_the_end_is_that_of_the_paper_with_all_who_are_silent_crashed(world: World, seed: int) -> None:
    machine, literal = Machine(world.members), Literal(world)
    by_name = {(one.rank, one.last): one for one in world.sent}
    for one in some_of(world, Random(seed)):
        machine.hear(one)
    for name in machine.heard:
        literal.receive(by_name[name])
    literal.crash(range(world.members))
    machine.finish(list(machine.dag.inserted), None)
    assert machine.taken == names(literal.delivered)


def test_a_safe_source_that_waits_keeps_the_others_of_its_set_before_all_that_comes() -> None:
    """Two sources are decided, one has left; what follows that one alone must not overtake the other."""
    machine = Machine(2)
    for one in (said(0, 1, 1), said(1, 1, 1)):
        machine.insert(one)
    first = machine.order.next()
    assert first is not None
    machine.take(first)
    for one in (said(0, 2, 2), said(1, 2, 2, (0, 1))):
        machine.insert(one)
    second = machine.order.next()
    assert second is not None
    assert machine.taken == [(0, 1)]
    assert (second.rank, second.last) == (1, 1)


def detached_and_survivors_differ(seed: int) -> bool:
    """One machine's last bursts reach nobody, and the others end the view. Is there one order of what both delivered?"""
    random = Random(seed)
    world = wide_world(seed, random.randint(3, 6))
    mine = [one for one in world.sent if one.rank == 0]
    lost = set(mine[random.randint(0, len(mine)) :])
    detached, survivor = Machine(world.members), Machine(world.members)
    for one in world.heard_by(0):
        detached.hear(one)
    for one in world.sent:
        if not world.past(one) & lost:
            survivor.hear(one)
    survivor.finish(list(survivor.dag.inserted), None)
    common = set(detached.taken) & set(survivor.taken)
    return [name for name in detached.taken if name in common] != [name for name in survivor.taken if name in common]


def test_across_a_partition_there_may_be_two_orders() -> None:
    """ToTo is not EVS (F9b), and says so: views carry the guarantees "toto"."""
    assert any(map(detached_and_survivors_differ, range(400)))


# --- how early ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("members", range(1, 8))
def test_one_sender_waits_for_a_majority_itself_included(members: int) -> None:
    machine = Machine(members)
    machine.hear(said(0, 1, 1))
    votes = 1
    while not machine.taken:
        machine.hear(said(votes, 1, 2, (0, 1), klass=DatagramClass.CAUSAL))
        votes += 1
    assert votes == members // 2 + 1


def test_an_alive_is_no_vote() -> None:
    machine = Machine(2)
    machine.hear(said(0, 1, 1))
    machine.order.heard_alive(1, 0, BASE + 99)
    assert machine.order.next() is None


# --- the slips of F10 are seen by these very tests ------------------------------------------------------------------


def wide_world(seed: int, members: int) -> World:
    """Much is sent at the same time: many candidates."""
    random, world = Random(seed), World(members)
    for _ in range(14):
        world.send(random.randrange(members), 1, DatagramClass.ORDERED)
        for rank in range(members):
            for one in list(world.sent):
                if random.random() < 0.25:
                    world.hear(rank, one)
    return world


def disagree(seed: int, slip: Slip | None) -> bool:
    """Do two machines that hear the same bursts in different orders deliver in different orders?"""
    random = Random(seed)
    world = wide_world(seed, random.randint(3, 6))
    orders = []
    for _ in range(2):
        literal = Literal(world, slip)
        for one in as_they_enter(world, random.sample(world.sent, len(world.sent))):
            literal.receive(one)
        orders.append(names(literal.delivered))
    return not is_prefix(*orders)


def as_they_enter(world: World, arrivals: list[Said]) -> list[Said]:
    """Arrivals in the order in which they enter a DAG: none before all that it follows."""
    have: list[Said] = []
    waiting: list[Said] = []
    for one in arrivals:
        waiting.append(one)
        while ready := [each for each in waiting if world.past(each) - {each} <= set(have)]:
            have.append(ready[0])
            waiting.remove(ready[0])
    return have


def test_the_published_rule_agrees_in_wide_worlds() -> None:
    assert [seed for seed in range(180) if disagree(seed, None)] == []


@pytest.mark.parametrize("slip", Slip)
def test_each_slip_makes_machines_disagree(slip: Slip) -> None:
    assert any(disagree(seed, slip) for seed in range(180))
