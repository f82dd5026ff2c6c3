"""Who hears whom, as common knowledge, and the membership that follows from it (L3, W7). Pure.

A row says whom a node does *not* hear. Within one Gather rows only grow, so they can be merged by union, relayed by
anybody, and every change brings the end nearer. A row's version is the number of its node's Gather: a later Gather starts
from an empty row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from transis.model.ids import NodeId
from transis.model.limits import MEMBERS_MAX
from transis.wire.packets import Row


class Reachability:
    """The rows of one Gather, with the time at which each last showed a sign of life."""

    def __init__(self) -> None:
        self.rows: dict[NodeId, Row] = {}
        self.beat_at: dict[NodeId, int] = {}
        self._floor: dict[NodeId, int] = {}

    def merge(self, row: Row, now: int) -> bool:
        """Take a row that somebody relayed; True if it taught anything about who hears whom."""
        if row.version < self._floor.get(row.node, 0):
            return False
        known = self.rows.get(row.node)
        if known is None or row.version > known.version:
            self.rows[row.node] = row
            self.beat_at[row.node] = now
            return bool(row.unheard) or known is not None
        if row.version < known.version:
            return False
        if row.beat > known.beat:
            self.beat_at[row.node] = now
        union = known.unheard | row.unheard
        self.rows[row.node] = known._replace(beat=max(known.beat, row.beat), unheard=union)
        return union != known.unheard

    def unheard(self) -> dict[NodeId, frozenset[NodeId]]:
        return {node: row.unheard for node, row in self.rows.items()}

    def reset(self, installed: Iterable[NodeId]) -> None:
        """A ring was installed: rows of its members' ended Gathers must not come back by a late relay."""
        for node in installed:
            if node in self.rows:
                self._floor[node] = self.rows[node].version + 1
        self.rows.clear()
        self.beat_at.clear()


def clique_of(me: NodeId, candidates: Iterable[NodeId], unheard: Mapping[NodeId, frozenset[NodeId]]) -> frozenset[NodeId]:
    """My part of the greedy partition of the candidates into sets that hear each other mutually, lowest id first.

    Everybody who knows the same rows computes the same partition, so the middle of a chain does not have to choose.
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
