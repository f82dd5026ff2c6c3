"""Finding a short cycle in a graph of events: what checkers and audit do when the certificate of one order fails.

Edges are labelled with the life whose local order they are (None: from a SEND to a delivery), so that steps of one node can be
told as one: "a delivered x before y".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Hashable, Iterable
from itertools import pairwise
from typing import Any, Final

STARTS_MAX: Final = 200
"""Vertices from which the shortest cycle is searched: the core of one bug is small, a hopeless history may be huge."""

Vertex = tuple[str, Any] | tuple[str, Any, Any]
"""What happened and to what: ("install", view), ("send", message), ("deliver", message), or that at one node only."""

Label = Hashable
"""A life, however the caller knows it."""

Step = tuple[Vertex, Vertex, Label | None]


class EventGraph:
    """Vertices are merged events; the first label of an edge is kept."""

    def __init__(self) -> None:
        self.edges: dict[Vertex, dict[Vertex, Label | None]] = {}
        self.lseq: dict[tuple[Label, Vertex], int] = {}

    def add(self, source: Vertex, target: Vertex, life: Label | None) -> None:
        self.edges.setdefault(source, {}).setdefault(target, life)
        self.edges.setdefault(target, {})

    def shortest_cycle(self) -> list[Step]:
        """Edges of a short cycle, or nothing."""
        core = self._core()
        best: list[Step] = []
        for start in list(core)[:STARTS_MAX]:
            found = self._cycle_through(start, core, len(best) or len(core) + 1)
            if found and (not best or len(found) < len(best)):
                best = found
        return _rotated(best)

    def _core(self) -> dict[Vertex, None]:
        """What remains after peeling off vertices without predecessors, then those without successors."""
        backward: dict[Vertex, list[Vertex]] = {vertex: [] for vertex in self.edges}
        for source, targets in self.edges.items():
            for target in targets:
                backward[target].append(source)
        forward = {vertex: list(targets) for vertex, targets in self.edges.items()}
        alive = dict.fromkeys(self.edges)
        _peel(alive, forward, backward)
        _peel(alive, backward, forward)
        return alive

    def _cycle_through(self, start: Vertex, core: dict[Vertex, None], limit: int) -> list[Step]:
        came: dict[Vertex, Vertex] = {}
        queue = deque([(start, 0)])
        while queue:
            vertex, depth = queue.popleft()
            if depth + 1 >= limit:
                return []
            for target in self.edges[vertex]:
                if target == start:
                    return self._path(came, start, vertex)
                if target in core and target not in came:
                    came[target] = vertex
                    queue.append((target, depth + 1))
        return []

    def _path(self, came: dict[Vertex, Vertex], start: Vertex, last: Vertex) -> list[Step]:
        steps: list[Step] = [(last, start, self.edges[last][start])]
        while last != start:
            before = came[last]
            steps.append((before, last, self.edges[before][last]))
            last = before
        return steps[::-1]


def graph_of(lives: Iterable[tuple[Label, list[tuple[Vertex, int]]]], sent: Container[Any]) -> EventGraph:
    """The graph of lives, each with its vertices and their lseq in order; `sent` has the messages that somebody sent.

    An event that a node repeats is left out: it is wrong, but other checkers say so, and it is no question of order.
    """
    graph = EventGraph()
    for life, vertices in lives:
        for vertex, lseq in vertices:
            graph.lseq.setdefault((life, vertex), lseq)
        for before, after in pairwise(dict.fromkeys(vertex for vertex, _ in vertices)):
            graph.add(before, after, life)
        for vertex, _ in vertices:
            if vertex[0] == "deliver" and vertex[1] in sent:
                graph.add(("send", vertex[1]), vertex, None)
    return graph


def joined(steps: list[Step]) -> list[Step]:
    """Consecutive steps of one life become one: it saw the first before the last."""
    short: list[Step] = []
    for source, target, life in steps:
        if short and life is not None and short[-1][2] is life:
            short[-1] = (short[-1][0], target, life)
        else:
            short.append((source, target, life))
    return short


def _rotated(steps: list[Step]) -> list[Step]:
    """Start where the local order of one life begins, so that its steps stand together."""
    for offset, (_, _, life) in enumerate(steps):
        if life is not steps[offset - 1][2]:
            return steps[offset:] + steps[:offset]
    return steps


def _peel(alive: dict[Vertex, None], forward: dict[Vertex, list[Vertex]], backward: dict[Vertex, list[Vertex]]) -> None:
    degree = {vertex: sum(1 for source in backward[vertex] if source in alive) for vertex in alive}
    ready = [vertex for vertex in alive if not degree[vertex]]
    while ready:
        vertex = ready.pop()
        del alive[vertex]
        for target in forward[vertex]:
            if target in alive:
                degree[target] -= 1
                if not degree[target]:
                    ready.append(target)
