"""Rings as a graph: who parted from whom, when they met again, and one order for all. No Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from graphlib import CycleError, TopologicalSorter
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transis.spark.lineage import (
    POLICIES,
    ArchivedConfiguration,
    ArchivedLife,
    Lineage,
    Policy,
    RingName,
    RingParting,
    Side,
    life_of,
    ring_of,
)


class Story:
    """Nodes, one letter each, that form rings; each remembers where it was last."""

    def __init__(self, members: str | None = None) -> None:
        """`members` are the nodes that have a member of the group all the time, as its views say; without, nobody knows."""
        self.at: dict[str, RingName] = {}
        self.configurations: list[ArchivedConfiguration] = []
        self._members = members
        self._lives: Counter[str] = Counter()
        self._clock = count(1)

    def form(
        self, nodes: str, primary: bool | None = None, archived: bool = True, seen_us: int | None = None, brought: str = ""
    ) -> RingName:
        previous = tuple(self.at.get(node) for node in nodes)
        ring = RingName(max((one.seq for one in previous if one is not None), default=0) + 4, self.word(nodes[0]))
        self.at.update(dict.fromkeys(nodes, ring))
        now = next(self._clock)
        if archived:
            seen = now if seen_us is None else seen_us
            hosts = None if self._members is None else frozenset(map(self.word, self._members))
            words = tuple(map(self.word, nodes))
            self.configurations.append(
                ArchivedConfiguration(ring, words, previous, primary, seen, hosts, frozenset(map(self.word, brought)))
            )
        return ring

    def forget(self, node: str) -> None:
        """It crashed: its next life comes from nowhere."""
        self.at.pop(node, None)
        self._lives[node] += 1

    def word(self, node: str) -> str:
        return f"{node}/{self._lives[node] + 1}/0"

    @property
    def lineage(self) -> Lineage:
        return Lineage(reversed(self.configurations))


def letters(nodes: Iterable[str]) -> str:
    return "".join(life_of(node).name for node in nodes)


def sides(parting: RingParting) -> list[str]:
    return [letters(side.nodes) for side in parting.sides]


def test_two_sides_part_and_meet() -> None:
    story = Story()
    whole, ab = story.form("abcd"), story.form("ab")
    cd, cde = story.form("cd"), story.form("cde")
    again = story.form("abcde")
    [parting] = story.lineage.partings
    assert (parting.ring, parting.merged, sides(parting)) == (whole, again, ["ab", "cd"])
    assert [side.rings for side in parting.sides] == [(ab,), (cd, cde)]
    assert [side.size for side in parting.sides] == [2, 3]
    assert story.lineage.origins() == {ab: (1, "1"), cd: (1, "2"), cde: (1, "2")}


def test_who_crashes_parts_from_nobody() -> None:
    story = Story()
    story.form("abc")
    story.form("ab")
    story.forget("c")
    story.form("c")
    story.form("abc")
    assert story.lineage.partings == []


def test_sides_that_never_meet_stay_apart_for_ever() -> None:
    story = Story()
    story.form("ab")
    rings = [story.form(nodes) for nodes in ("a", "b", "ac", "bd")]
    [parting] = story.lineage.partings
    assert parting.merged is None
    assert dict(parting.between) == dict(zip(rings, "1212", strict=True))


def test_a_side_is_over_when_a_later_life_shows_that_nobody_of_it_is_left() -> None:
    story = Story()
    whole, ab, alone = story.form("abc"), story.form("ab"), story.form("c")
    story.forget("c")
    newcomer = story.form("c")
    again, later = story.form("abc"), story.form("abcd")
    [parting] = story.lineage.partings
    assert (parting.ring, parting.merged, parting.rest) == (whole, None, again)
    assert dict(parting.between) == {ab: "1", alone: "2"}
    assert story.lineage.origins().keys().isdisjoint({newcomer, again, later})


def test_a_side_goes_on_while_one_of_its_lives_may_come_back() -> None:
    """d left with c, and nothing was heard of it when c came back with another life."""
    story = Story()
    story.form("abcd")
    ab, cd = story.form("ab"), story.form("cd")
    story.forget("c")
    story.form("c")
    abc = story.form("abc")
    [parting] = story.lineage.partings
    assert (parting.merged, parting.rest, dict(parting.between)) == (None, None, {ab: "1", cd: "2", abc: "1"})
    story.form("d", archived=False)
    again = story.form("abcd")
    assert [(one.merged, one.rest) for one in story.lineage.partings] == [(again, None)]


def test_of_three_sides_those_that_are_left_go_on_apart() -> None:
    story = Story()
    for nodes in ("abc", "a", "b", "c"):
        story.form(nodes)
    story.forget("c")
    story.form("c")
    ac, ab = story.form("ac"), story.form("abc")
    outer = story.lineage.partings[0]
    assert (sides(outer), outer.merged, outer.rest) == (["a", "b", "c"], None, ab)
    assert dict(outer.between)[ac] == "1"


def test_sides_that_died_cost_no_more_than_what_they_did() -> None:
    """Eight hundred times a node is cut off alone, crashes, and comes back with its next life."""
    story = Story()
    for _ in range(800):
        for nodes in ("abc", "ab", "c"):
            story.form(nodes)
        story.forget("c")
        story.form("c")
    story.form("abc")
    lineage = story.lineage
    assert len(lineage.partings) == 800
    assert sum(len(parting.between) for parting in lineage.partings) == 2 * 800
    assert len(lineage.linear("larger")) == len(story.configurations)


def test_two_of_three_that_meet_first_are_one_side_with_a_parting_of_their_own() -> None:
    story = Story()
    whole, a, b, c = (story.form(nodes) for nodes in ("abc", "a", "b", "c"))
    bc = story.form("bc")
    again = story.form("abc")
    outer, inner = story.lineage.partings
    assert (outer.ring, outer.merged, sides(outer)) == (whole, again, ["a", "bc"])
    assert dict(outer.between) == {a: "1", b: "2", c: "2", bc: "2"}
    assert (inner.ring, inner.merged, sides(inner)) == (whole, bc, ["b", "c"])
    assert dict(inner.between) == {b: "1", c: "2"}


def test_partings_inside_of_a_side() -> None:
    story = Story()
    whole = story.form("abcd")
    story.form("a")
    bcd = story.form("bcd")
    story.form("b")
    cd = story.form("cd")
    story.form("abcd")
    outer, inner = story.lineage.partings
    assert (outer.ring, sides(outer)) == (whole, ["a", "bcd"])
    assert (inner.ring, sides(inner)) == (bcd, ["b", "cd"])
    assert story.lineage.origins()[cd] == (2, "2")


def test_crosswise_meetings_are_told_by_both_sides() -> None:
    """Of three, the first two met, and the last two, and never all."""
    story = Story()
    _, _, alone, _, ab = (story.form(nodes) for nodes in ("abc", "a", "b", "c", "ab"))
    story.at["b"] = alone
    bc = story.form("bc")
    parting = story.lineage.partings[0]
    assert parting.merged is None
    assert (dict(parting.between)[ab], dict(parting.between)[bc]) == ("1+2", "2+3")
    assert [side.rings for side in parting.sides] == [(side.firsts[0],) for side in parting.sides]


def test_who_waited_for_the_other_has_a_side_without_rings() -> None:
    """b stayed in the first ring until a came back, so only a saw anything alone."""
    story = Story()
    whole, alone, again = story.form("ab"), story.form("a"), story.form("ab")
    [parting] = story.lineage.partings
    assert (parting.ring, parting.merged, sides(parting)) == (whole, again, ["a", "b"])
    assert parting.between == ((alone, "1"),)


def test_a_side_that_nobody_archived_is_known_by_who_came_from_it() -> None:
    story = Story()
    whole, ab = story.form("abcd"), story.form("ab")
    cd = story.form("cd", archived=False)
    again = story.form("abcd")
    [parting] = story.lineage.partings
    assert (parting.ring, parting.merged, sides(parting)) == (whole, again, ["ab", "cd"])
    assert [side.archived for side in parting.sides] == [True, False]
    assert dict(parting.between) == {ab: "1", cd: "2"}


# -- of a group ------------------------------------------------------------------------------------------------------


def test_nodes_without_a_member_are_no_side_of_the_groups_history() -> None:
    story = Story(members="ab")
    story.form("abc")
    story.form("ab")
    story.form("c", archived=False)
    story.form("abc")
    assert story.lineage.partings == []


def test_who_waited_without_a_member_is_no_side_either() -> None:
    story = Story(members="ab")
    for nodes in ("abc", "ab", "abc"):
        story.form(nodes)
    assert story.lineage.partings == []


def test_who_got_a_member_while_apart_is_a_side_once_it_brings_it() -> None:
    story = Story(members="ab")
    story.form("abc")
    story.form("ab")
    story.form("c", archived=False)
    story.form("abc", brought="abc")
    assert [sides(parting) for parting in story.lineage.partings] == [["ab", "c"]]


def test_a_side_that_was_archived_had_a_member_whatever_was_known_before() -> None:
    story = Story(members="ab")
    for nodes in ("abc", "ab", "c", "abc"):
        story.form(nodes)
    assert [sides(parting) for parting in story.lineage.partings] == [["ab", "c"]]


@pytest.mark.parametrize(("policy", "first"), [("primary", "cd"), ("larger", "ab"), ("earlier", "e")])
def test_a_policy_says_which_side_comes_first_and_that_side_goes_on_until_the_merge(policy: Policy, first: str) -> None:
    story = Story()
    whole = story.form("abcde")
    ring_of_side = {
        "ab": [story.form("ab", False, seen_us=20), story.form("abxyz", False, seen_us=30)],
        "cd": [story.form("cd", True, seen_us=21), story.form("cdw", True, seen_us=31)],
        "e": [story.form("e", False, seen_us=10), story.form("ev", False, seen_us=40)],
    }
    again = story.form("abcdexyzwv")
    order = sorted(story.lineage.linear(policy).items(), key=lambda item: item[1])
    rings = [ring for ring, _ in order]
    assert rings[0] == whole
    assert rings[1:3] == ring_of_side[first]
    assert {(rings[at], rings[at + 1]) for at in (1, 3, 5)} == {(one, other) for one, other in ring_of_side.values()}
    assert rings[-1] == again


@pytest.mark.parametrize("policy", POLICIES)
def test_ties_go_to_the_lower_representative(policy: Policy) -> None:
    """Also if its side tried more often until it had a ring."""
    whole, low, high = RingName(4, "a/1/0"), RingName(44, "a/1/0"), RingName(8, "c/1/0")
    made = [(whole, ("a/1/0", "c/1/0"), (None, None)), (low, ("a/1/0",), (whole,)), (high, ("c/1/0",), (whole,))]
    order = Lineage(ArchivedConfiguration(*one) for one in made).linear(policy)
    assert sorted(order, key=order.__getitem__) == [whole, low, high]


def in_order(story: Story, policy: Policy) -> list[str]:
    """The nodes of each ring."""
    order = story.lineage.linear(policy)
    return [letters(story.lineage.nodes_of(ring)) for ring in sorted(order, key=order.__getitem__)]


@pytest.mark.parametrize("policy", ["primary", "larger"])
def test_a_preferred_side_that_begins_with_a_newcomer_waits_for_nobody_else(policy: Policy) -> None:
    story = Story()
    story.form("abc")
    story.form("d", archived=False)
    for nodes, primary in (("abd", True), ("c", False), ("abcd", True)):
        story.form(nodes, primary)
    assert in_order(story, policy) == ["abc", "d", "abd", "c", "abcd"]


def test_a_newcomer_may_come_to_a_preferred_side_later() -> None:
    story = Story()
    story.form("abc")
    story.form("d", archived=False)
    for nodes in ("ab", "c", "abd", "abcd"):
        story.form(nodes)
    assert in_order(story, "larger") == ["abc", "d", "ab", "abd", "c", "abcd"]


@pytest.mark.parametrize("policy", ["primary", "larger"])
def test_of_partings_that_cross_each_other_the_later_one_has_its_way(policy: Policy) -> None:
    """ab is of the side that the first parting prefers to de, and cde of the one that the second prefers to ab."""
    story = Story()
    for nodes, primary in (("abcde", True), ("abc", True), ("de", False), ("ab", False), ("cde", True), ("abcde", True)):
        story.form(nodes, primary)
    assert in_order(story, policy) == ["abcde", "abc", "de", "cde", "ab", "abcde"]


def test_an_edge_that_leads_backward_is_left_out() -> None:
    low, high = RingName(4, "a"), RingName(8, "a")
    lineage = Lineage([ArchivedConfiguration(low, ("a",), (high,)), ArchivedConfiguration(high, ("a",), (low,))])
    assert lineage.parents == {low: (), high: (low,)}


def test_a_ring_is_read_from_its_word() -> None:
    ring = RingName(12, "ann@site/3/00ab")
    assert ring_of(str(ring)) == ring


# -- against the definitions -----------------------------------------------------------------------------------------

RINGS = st.tuples(st.sets(st.sampled_from("abcdef"), min_size=1), st.booleans(), st.booleans(), st.sampled_from("abc......"))
FORMED = st.lists(RINGS, min_size=5, max_size=14)
"""Of fewer there is hardly a policy to hold to. Who is a letter in the last place crashes before."""


@given(FORMED)
def test_any_history(formed: list[tuple[set[str], bool, bool, str]]) -> None:
    story = Story()
    for nodes, primary, archived, crashed in formed:
        story.forget(crashed)
        story.form("".join(sorted(nodes)), primary, archived)
    lineage = story.lineage
    below = {ring: _descendants(lineage, ring) for ring in lineage.children}
    for policy in POLICIES:
        order = lineage.linear(policy)
        assert sorted(order.values()) == list(range(len(lineage.parents)))
        assert all(order[parent] < order[ring] for ring, parents in lineage.parents.items() for parent in parents)
        _hold_to_the_policy(lineage, order, PREFERRED[policy])
    for parting in lineage.partings:
        _hold_to_the_definition(lineage, parting, below)
    assert {one.ring for one in lineage.partings} == {ring for ring, found in lineage.children.items() if len(found) > 1}


def tie(side: Side) -> tuple[Any, ...]:
    """The lower representative."""
    return (min(ring.rep for ring in side.firsts), side.firsts)


PREFERRED: dict[Policy, Callable[[Side], tuple[Any, ...]]] = {
    "primary": lambda side: (side.primary is not True, -side.size, *tie(side)),
    "larger": lambda side: (-side.size, *tie(side)),
    "earlier": lambda side: (side.seen_us, -side.size, *tie(side)),
}


def _hold_to_the_policy(lineage: Lineage, order: dict[RingName, int], preferred: Callable[[Side], tuple[Any, ...]]) -> None:
    """Of each parting all rings of the preferred side come first, unless it and later ones cannot all have their way."""
    before = {ring: set(parents) for ring, parents in lineage.parents.items()}
    for parting in reversed(lineage.partings):
        sides = sorted(parting.sides, key=preferred)
        pairs = [(side, later) for rank, side in enumerate(sides) for later in sides[rank + 1 :]]
        wanted = [(one, other) for side, later in pairs for one in side.rings for other in later.rings]
        for one, other in wanted:
            before[other].add(one)
        try:
            TopologicalSorter(before).prepare()
        except CycleError:
            return
        assert all(order[one] < order[other] for one, other in wanted), parting


def _descendants(lineage: Lineage, ring: RingName) -> set[RingName]:
    """With itself."""
    return {ring}.union(*(_descendants(lineage, child) for child in lineage.children[ring]))


def _hold_to_the_definition(lineage: Lineage, parting: RingParting, below: dict[RingName, set[RingName]]) -> None:
    firsts = [first for side in parting.sides for first in side.firsts]
    reached = {ring: {first for first in firsts if ring in below[first]} for ring in set.union(*map(below.__getitem__, firsts))}
    apart = {ring for ring, by in reached.items() if not by >= _left(lineage, ring, reached)}
    assert parting.merged == min((ring for ring, by in reached.items() if by == set(firsts)), default=None)
    assert {ring for ring, _ in parting.between} == apart
    assert parting.rest == (min(reached.keys() - apart, default=None) if parting.merged is None else None)
    for ring, label in parting.between:
        reaching = {side.number for side in parting.sides if reached[ring].intersection(side.firsts)}
        assert label == "+".join(map(str, sorted(reaching)))
    for side in parting.sides:
        assert side.rings == tuple(ring for ring, label in parting.between if label == str(side.number))


def _left(lineage: Lineage, now: RingName, reached: dict[RingName, set[RingName]]) -> set[RingName]:
    """What has rings ahead, or lives that no later one has taken the place of, as of a ring."""
    lives: dict[ArchivedLife, set[RingName]] = {}
    for ring in sorted(one for one in reached if one <= now):
        for node in lineage.nodes_of(ring):
            lives.setdefault(life_of(node), set()).update(reached[ring])
    last = [by for life, by in lives.items() if life == max(other for other in lives if other.name == life.name)]
    return set().union(reached[now], *last, *(by for ring, by in reached.items() if ring > now))
