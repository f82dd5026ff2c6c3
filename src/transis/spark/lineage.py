"""Configurations as a graph: which ring followed which, where they parted, and one order for all of them. Plain Python.

1. A ring follows those that its members come from. Sequence numbers of rings grow along these edges, so there is no cycle; an
   edge that says otherwise is from a damaged file and is left out.
2. A ring parted if several rings follow it. What descends from one of them and not from all is on that side. Two of them that
   met before all did are one side to the others, and their own parting is reported as one more of the same ring.
3. Of a ring that nobody archived we know who came from it. It follows the last ring that is known to have had one of these
   nodes.
4. This is the history of one group: where only nodes without a member of the group were apart, the group did not part.
5. To find the sides, rings are visited in the order of their sequences, so each comes after those that it follows. What a
   follower saw is carried by the lives of nodes that were in rings that descend from it. A later incarnation of a name shows
   that the life before it is over; a life that is no longer seen may come back. A follower of which no life is left, and from
   which nothing ahead descends, never comes back: from there on nobody is apart from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any, Final, Literal, NamedTuple, get_args

from transis.types.errors import UsageError

# --- rings ------------------------------------------------------------------------------------------------------------


class RingName(NamedTuple):
    """A regular configuration: its sequence number, and its representative as text."""

    seq: int
    rep: str

    def __str__(self) -> str:
        return f"R{self.seq}@{self.rep}"


def ring_of(configuration: str) -> RingName:
    """Parsed from the name of a regular configuration."""
    seq, _, rep = configuration.removeprefix("R").partition("@")
    return RingName(int(seq), rep)


class ArchivedConfiguration(NamedTuple):
    """A regular configuration as it was archived. `previous` says where each of `nodes` comes from."""

    ring: RingName
    nodes: tuple[str, ...]
    previous: tuple[RingName | None, ...]
    primary: bool | None = None
    seen_us: int = 0
    """When an archiver first saw it, by its own clock."""
    hosts: frozenset[str] | None = None
    """Nodes that had a member of the group while somebody archived; None if nobody knows."""
    brought: frozenset[str] = frozenset()
    """Nodes whose members came to it out of a group view, when several views merged."""

    def brings(self, node: str, before: ArchivedConfiguration | None) -> bool:
        """Whether that node had a member of the group before, as far as is known; `before` is where it was seen last."""
        return before is None or before.hosts is None or node in before.hosts or node in self.brought


class ArchivedLife(NamedTuple):
    """A node's life. A later incarnation of its name shows that it is over."""

    name: str
    incarnation: int


def life_of(node: str) -> ArchivedLife:
    """Parsed from the name of a node, `n1/3/00ab...`. Boot ids distinguish lives, but do not say which is later."""
    name, incarnation, _ = node.rsplit("/", 2)
    return ArchivedLife(name, int(incarnation))


# --- walking ----------------------------------------------------------------------------------------------------------

Followers = frozenset[RingName]


class Walk(NamedTuple):
    """Rings with the followers that they descend from. `merged` is the first that descends from all; `rest` the first that
    descends from all that are left, if some are not."""

    between: list[tuple[RingName, Followers]]
    merged: RingName | None
    rest: RingName | None


def walk(
    followers: Sequence[RingName],
    children: Mapping[RingName, Sequence[RingName]],
    nodes: Mapping[RingName, Sequence[str]],
) -> Walk:
    """All rings that descend from some of the followers and not from all that are left, in the order of their sequence numbers,
    until only descendants of all that are left are ahead."""
    everybody = left = frozenset(followers)
    reached = {ring: frozenset({ring}) for ring in followers}
    waiting, between, met = sorted(followers), list[tuple[RingName, Followers]](), list[RingName]()
    carried = _Carried()
    while any(not reached[ring] >= left for ring in waiting):
        ring = heappop(waiting)
        by = reached[ring]
        for child in children[ring]:
            if child not in reached:
                heappush(waiting, child)
            reached[child] = reached.get(child, frozenset()) | by
        if carried.replaces(nodes[ring], by) or not children[ring]:
            left = carried.followers.union(by, *(reached[one] for one in waiting))
        if by >= left:
            met.append(ring)
        else:
            between.append((ring, by))
    ahead = sorted([*met, *waiting])
    merged = next((ring for ring in ahead if reached[ring] == everybody), None)
    return Walk(between, merged, next(iter(ahead), None) if merged is None else None)


class _Carried:
    """For each name of a node, its last incarnation and the followers that it descends from."""

    def __init__(self) -> None:
        self._by_name: dict[str, tuple[int, Followers]] = {}

    def replaces(self, nodes: Sequence[str], by: Followers) -> bool:
        """These nodes carry it from now on. True if one of them takes the place of an earlier life."""
        is_replaced = False
        for name, incarnation in map(life_of, nodes):
            last, before = self._by_name.get(name, (incarnation, by))
            if incarnation >= last:
                self._by_name[name] = (incarnation, by if incarnation > last else before | by)
            is_replaced |= incarnation > last
        return is_replaced

    @property
    def followers(self) -> Followers:
        return frozenset().union(*(by for _, by in self._by_name.values()))


def met_before_all(followers: Sequence[RingName], walked: Walk) -> list[list[RingName]]:
    """The followers by sides: those that met while another was still apart are one side. If that makes one of all, each is its
    own.
    """
    side_of = {ring: ring for ring in followers}
    for _, together in walked.between:
        merged = {side_of[ring] for ring in together}
        side_of = {ring: min(merged) if side in merged else side for ring, side in side_of.items()}
    sides: dict[RingName, list[RingName]] = {}
    for ring, side in side_of.items():
        sides.setdefault(side, []).append(ring)
    return list(sides.values()) if len(sides) > 1 else [[ring] for ring in followers]


# --- lineage ----------------------------------------------------------------------------------------------------------

Policy = Literal["primary", "larger", "earlier"]
POLICIES: Final[tuple[Policy, ...]] = get_args(Policy)


def policy_of(word: str) -> Policy:
    """The policy of that name; UsageError if there is none."""
    for policy in POLICIES:
        if policy == word:
            return policy
    raise UsageError(f"policy = {word!r}: must be one of {', '.join(POLICIES)}")


@dataclass(frozen=True)
class Side:
    """One side of a parting. `firsts` follow the ring that parted; `rings` are this side's alone, up to the merge; `nodes` came
    from the ring that parted; `size` is the number of nodes in the largest of its rings."""

    number: int
    firsts: tuple[RingName, ...]
    rings: tuple[RingName, ...]
    nodes: tuple[str, ...]
    size: int
    primary: bool | None
    seen_us: int
    archived: bool
    """Whether anybody archived all of its first rings."""


@dataclass(frozen=True)
class RingParting:
    """`between` has every ring that some sides saw and others did not, with the numbers of those that did: `2`, or `1+2` for a
    ring in which two of three met. `merged` is the first ring that all sides came to, if they did; `rest` is the first that all
    remaining sides came to, if no life is left of some."""

    number: int
    ring: RingName
    sides: tuple[Side, ...]
    between: tuple[tuple[RingName, str], ...]
    merged: RingName | None
    rest: RingName | None


class Lineage:
    def __init__(self, configurations: Iterable[ArchivedConfiguration]) -> None:
        self.known = {one.ring: one for one in sorted(configurations, key=lambda one: one.ring)}
        self._nodes = {ring: one.nodes for ring, one in self.known.items()} | self._nodes_of_unseen()
        self.parents = self._parents()
        self.children: dict[RingName, list[RingName]] = {ring: [] for ring in self.parents}
        for ring, parents in self.parents.items():
            for parent in parents:
                self.children[parent].append(ring)
        for followers in self.children.values():
            followers.sort(key=lambda ring: (self._nodes[ring], ring))
        self.partings = self._numbered_partings()

    # --- the graph --------------------------------------------------------------------------------------------------

    def _nodes_of_unseen(self) -> dict[RingName, tuple[str, ...]]:
        """Rings that are known only because nodes came from them; which members of the group did."""
        found: dict[RingName, set[str]] = {}
        brought: set[RingName] = set()
        last: dict[str, ArchivedConfiguration] = {}
        for one in self.known.values():
            for node, ring in zip(one.nodes, one.previous, strict=True):
                if ring is not None and ring not in self.known:
                    found.setdefault(ring, set()).add(node)
                    brought.update([ring] if one.brings(node, last.get(node)) else [])
            last.update(dict.fromkeys(one.nodes, one))
        return {ring: tuple(sorted(nodes)) for ring, nodes in sorted(found.items()) if ring in brought}

    def _parents(self) -> dict[RingName, tuple[RingName, ...]]:
        last: dict[str, RingName] = {}
        parents: dict[RingName, tuple[RingName, ...]] = {}
        for ring in sorted(self._nodes):
            configuration = self.known.get(ring)
            if configuration is None:
                found = {last[node] for node in self._nodes[ring] if node in last}
            else:
                found = self._followed_by(configuration, parents)
                last.update(dict.fromkeys(configuration.nodes, ring))
            parents[ring] = tuple(sorted(one for one in found if one.seq < ring.seq))
        return parents

    def _followed_by(self, one: ArchivedConfiguration, parents: dict[RingName, tuple[RingName, ...]]) -> set[RingName]:
        """Where its nodes come from. A node that waited in a ring without a member, while others went on from it, is not a
        side."""
        came = {
            (node, ring) for node, ring in zip(one.nodes, one.previous, strict=True) if ring in self._nodes and ring is not None
        }
        brought = {ring for node, ring in came if one.brings(node, self.known.get(ring))}
        waited = {ring for _, ring in came} - brought
        return brought | {ring for ring in waited if not any(_descends(other, ring, parents) for other in brought)}

    def nodes_of(self, ring: RingName) -> tuple[str, ...]:
        """Its members; for a ring that nobody archived, those that are known to have come from it."""
        return self._nodes[ring]

    # --- partings ---------------------------------------------------------------------------------------------------

    def _numbered_partings(self) -> list[RingParting]:
        parted = [ring for ring, followers in sorted(self.children.items()) if len(followers) > 1]
        found = [(ring, *one) for ring in parted for one in self._apart(self.children[ring])]
        return [self._parting(number, *one) for number, one in enumerate(found, 1)]

    def _apart(self, followers: list[RingName]) -> Iterator[tuple[list[list[RingName]], Walk]]:
        """How these followers parted: the sides, by what each begins with; then the same inside each side."""
        walked = walk(followers, self.children, self._nodes)
        sides = met_before_all(followers, walked)
        yield sides, walked
        for side in sides:
            if len(side) > 1:
                yield from self._apart(side)

    def _parting(self, number: int, ring: RingName, firsts: list[list[RingName]], walked: Walk) -> RingParting:
        number_of = {first: side for side, group in enumerate(firsts, 1) for first in group}
        between = tuple((one, "+".join(map(str, sorted({number_of[first] for first in by})))) for one, by in walked.between)
        sides = tuple(self._side(side, ring, group, between) for side, group in enumerate(firsts, 1))
        return RingParting(number, ring, sides, between, walked.merged, walked.rest)

    def _side(self, number: int, parted: RingName, firsts: list[RingName], between: Iterable[tuple[RingName, str]]) -> Side:
        rings = tuple(ring for ring, side in between if side == str(number))
        known = [self.known[ring] for ring in rings if ring in self.known]
        said = {one.primary for one in known}
        nodes = tuple(sorted({node for first in firsts for node in self._coming(parted, first)}))
        return Side(
            number,
            tuple(firsts),
            rings,
            nodes,
            max((len(one.nodes) for one in known), default=len(nodes)),
            True if True in said else False if False in said else None,
            min((one.seen_us for one in known), default=0),
            all(ring in self.known for ring in firsts),
        )

    def _coming(self, parted: RingName, first: RingName) -> Iterator[str]:
        """The nodes that came from the ring that parted."""
        configuration = self.known.get(first)
        if configuration is None:
            return iter(self._nodes[first])
        return (node for node, ring in zip(configuration.nodes, configuration.previous, strict=True) if ring == parted)

    # --- one order --------------------------------------------------------------------------------------------------

    def linear(self, policy: Policy) -> dict[RingName, int]:
        """Every ring comes after those that it follows, and the side that the policy prefers comes before the others, up to the
        merge. Where crossing partings want opposite orders, the later one wins."""
        return _OneOrder(self, policy).found

    def origins(self) -> dict[RingName, tuple[int, str]]:
        """The parting and the side of each ring that not everybody saw; the last one, if there are several partings."""
        return {ring: (parting.number, side) for parting in self.partings for ring, side in parting.between}


class _Precedence(NamedTuple):
    """This ring comes first, because it is a parent, or because the parting of that number prefers its side."""

    ring: RingName
    parting: int


class _PathStep(NamedTuple):
    """A step on the way to a ring: which precedence led there, and what it wants before it."""

    precedence: _Precedence
    wants: Iterator[_Precedence]


PARENT: Final = 1 << 62
"""Stands for a parting: a precedence that is never given up."""


class _OneOrder:
    """Rings by their sequence numbers, each after what it wants before it. If wishes form a cycle, the one of the first parting
    among them is given up. Every cycle has such a wish, because parents alone form none."""

    def __init__(self, lineage: Lineage, policy: Policy) -> None:
        self.found: dict[RingName, int] = {}
        self._wants = {ring: [_Precedence(parent, PARENT) for parent in parents] for ring, parents in lineage.parents.items()}
        for parting in lineage.partings:
            self._prefer(parting, sorted(parting.sides, key=lambda side: _preference(policy, side)))
        self._given_up: set[tuple[RingName, _Precedence]] = set()
        for ring in sorted(lineage.parents):
            if ring not in self.found:
                self._go_to(ring)

    def _prefer(self, parting: RingParting, sides: list[Side]) -> None:
        """The preferred sides end before a side begins. A follower that waited for the merge begins with it, and has no side."""
        for rank, side in enumerate(sides):
            preferred = [_Precedence(ring, parting.number) for before in sides[:rank] for ring in before.rings]
            for first in set(side.firsts).intersection(side.rings):
                self._wants[first] += preferred

    def _go_to(self, ring: RingName) -> None:
        way = [self._step(_Precedence(ring, PARENT))]
        on_way = {ring}
        while way:
            here = way[-1].precedence.ring
            open_ones = (one for one in way[-1].wants if one.ring not in self.found and (here, one) not in self._given_up)
            precedence = next(open_ones, None)
            if precedence is None:
                self.found[here] = len(self.found)
                on_way.remove(way.pop().precedence.ring)
            elif precedence.ring in on_way:
                on_way.difference_update(self._give_up(way, precedence))
            else:
                way.append(self._step(precedence))
                on_way.add(precedence.ring)

    def _step(self, precedence: _Precedence) -> _PathStep:
        return _PathStep(precedence, iter(self._wants[precedence.ring]))

    def _give_up(self, way: list[_PathStep], last: _Precedence) -> list[RingName]:
        """Break a cycle: go back to the ring that had the precedence of the first parting. Returns the rings left for later."""
        start = next(rank for rank, step in enumerate(way) if step.precedence.ring == last.ring)
        precedences = [*(step.precedence for step in way[start + 1 :]), last]
        rank, dropped = min(enumerate(precedences, start), key=lambda one: one[1].parting)
        self._given_up.add((way[rank].precedence.ring, dropped))
        left = [step.precedence.ring for step in way[rank + 1 :]]
        del way[rank + 1 :]
        return left


def _descends(ring: RingName, ancestor: RingName, parents: dict[RingName, tuple[RingName, ...]]) -> bool:
    ahead, seen = [ring], {ring}
    while ahead:
        found = {one for one in parents.get(ahead.pop(), ()) if one.seq >= ancestor.seq and one not in seen}
        if ancestor in found:
            return True
        ahead += found
        seen |= found
    return False


def _preference(policy: Policy, side: Side) -> tuple[Any, ...]:
    """Ties go to the lower representative: the sequence number of a ring only says how often somebody tried."""
    tie = (min(ring.rep for ring in side.firsts), side.firsts)
    if policy == "earlier":
        return (side.seen_us, -side.size, *tie)
    return (side.primary is not True, -side.size, *tie) if policy == "primary" else (-side.size, *tie)
