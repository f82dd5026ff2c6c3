"""How the rings that follow one went apart: which of them each later ring descends from, until all met or only one is left.

1. Rings are gone through in the order of their sequences, so each comes behind those that it follows.
2. What a follower saw is carried by the lives of nodes that were in rings that descend from it. A later incarnation of a name
   shows that the life before it is over. A follower of which no life is left, and from which nothing ahead descends, never comes
   back: from there on nobody is apart from it.
3. A life of which nothing is heard any more, and no later one of its name either, may come back: it is left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

from transis.pipeline.archive.rings import Ring, life_of

Followers = frozenset[Ring]


class Walk(NamedTuple):
    """Rings with the followers that they descend from. `merged` is the first that descends from all; `rest` the first that
    descends from all that are left, if some are not."""

    between: list[tuple[Ring, Followers]]
    merged: Ring | None
    rest: Ring | None


def walk(followers: Sequence[Ring], children: Mapping[Ring, Sequence[Ring]], nodes: Mapping[Ring, Sequence[str]]) -> Walk:
    """All rings that descend from some of the followers and not from all that are left, in the order of their sequences. It goes
    on until only descendants of all that are left are ahead."""
    everybody = left = frozenset(followers)
    reached = {ring: frozenset({ring}) for ring in followers}
    waiting, between, met = sorted(followers), list[tuple[Ring, Followers]](), list[Ring]()
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
    """By the name of a node: its last incarnation, and the followers that it descends from."""

    def __init__(self) -> None:
        self._by_name: dict[str, tuple[int, Followers]] = {}

    def replaces(self, nodes: Sequence[str], by: Followers) -> bool:
        """These carry it from now on; whether one of them takes the place of an earlier life."""
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


def met_before_all(followers: Sequence[Ring], walked: Walk) -> list[list[Ring]]:
    """The followers by sides: those that met while another was still apart are one. If by that all are one, then nobody is."""
    side_of = {ring: ring for ring in followers}
    for _, together in walked.between:
        merged = {side_of[ring] for ring in together}
        side_of = {ring: min(merged) if side in merged else side for ring, side in side_of.items()}
    sides: dict[Ring, list[Ring]] = {}
    for ring, side in side_of.items():
        sides.setdefault(side, []).append(ring)
    return list(sides.values()) if len(sides) > 1 else [[ring] for ring in followers]
