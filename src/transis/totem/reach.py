"""Who hears whom, shared among all, and the membership that follows from it (L3, W7). Pure.

A row lists the nodes that a node does *not* hear. Within one Gather rows only grow, so they can be merged by union and relayed by
anybody, and every change brings the end nearer. A row's version is the number of its node's Gather; its beat counts the
node's Joins in it, so that a relayed row also shows that somebody hears the node.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from transis.totem.packets import Row
from transis.types.ids import NodeId
from transis.types.limits import MEMBERS_MAX


class Reachability:
    """The rows of one Gather, with the time at which each node last showed a sign of life."""

    def __init__(self) -> None:
        self.rows: dict[NodeId, Row] = {}
        self.beat_at: dict[NodeId, int] = {}
        self._floor: dict[NodeId, int] = {}

    def merge(self, row: Row, now: int) -> bool:
        """Merge a row, perhaps a relayed one; True if it changes what is known of who hears whom.

        What a node once did not hear stays unheard until my Gather ends, even if the node began a newer one: if rows could
        shrink, two neighbours that form ring after ring could keep me in Gather forever.
        """
        known = self.rows.get(row.node)
        if row == known or row.version < self._floor.get(row.node, 0):
            return False
        if known is None:
            known = Row(row.node, 0, -1, frozenset())
        if (row.version, row.beat) > (known.version, known.beat):
            self.beat_at[row.node] = now
        newest = max(known, row, key=lambda seen: (seen.version, seen.beat))
        self.rows[row.node] = newest._replace(unheard=known.unheard | row.unheard)
        return not row.unheard <= known.unheard

    def unheard(self) -> dict[NodeId, frozenset[NodeId]]:
        return {node: row.unheard for node, row in self.rows.items()}

    def reset(self, installed: Iterable[NodeId]) -> None:
        """A ring was installed: a late relay must not bring back rows of its members' past Gathers."""
        self._floor = {node: self.rows[node].version + 1 for node in installed if node in self.rows}
        self.rows.clear()
        self.beat_at.clear()


def clique_of(me: NodeId, candidates: Iterable[NodeId], unheard: Mapping[NodeId, frozenset[NodeId]]) -> frozenset[NodeId]:
    """My part of the greedy partition of the candidates into sets whose members hear each other, lowest id first.

    All nodes that know the same rows compute the same partition, so the middle of a chain does not have to choose.
    """
    rest = sorted(candidates)
    while rest:
        part = _greedy_clique(rest, unheard)
        if me in part:
            return frozenset(part)
        rest = [node for node in rest if node not in part]
    return frozenset((me,))


def _greedy_clique(nodes: list[NodeId], unheard: Mapping[NodeId, frozenset[NodeId]]) -> list[NodeId]:
    part: list[NodeId] = []
    nobody: frozenset[NodeId] = frozenset()
    for node in nodes:
        deaf_to = unheard.get(node, nobody)
        if len(part) < MEMBERS_MAX and all(other not in deaf_to and node not in unheard.get(other, nobody) for other in part):
            part.append(node)
    return part
