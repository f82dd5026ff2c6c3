"""Is there one order of all events? A key that grows along every edge of their graph proves it; a short cycle disproves it.

1. Ordered messages: a delivered message has the key (ring, place), a regular configuration (ring, 0), a transitional one its
   ring's last regular place, and a SEND the key of what its node had seen. If every node sees keys strictly grow, through
   configuration changes, and everything has one key everywhere, then the key is a topological numbering of the graph with all
   deliveries of a message merged: no cycle of any length exists (EVS 1.1, 2.3, 2.4, 6.1, 6.2). It takes linear time and almost
   no Python per message.
2. Causal messages that are not in the total order (Lansis) are numbered between the ordered ones: an event's key is (ring,
   frontier, phase, time). The frontier is the place of the last ordered message that its node had delivered; the phase is 1
   behind the transitional configuration; the time is the Lamport timestamp of what is sent, and for a delivery the larger of
   the message's and the latest at its node, a little later. Ordered deliveries and configurations come first at their frontier,
   so that they keep their key at all nodes. Along a node the key never falls if every SEND has a timestamp above all causal
   messages that its node delivered; from a SEND to a delivery it grows if the receiver's frontier is not behind the sender's.
3. Only where a key does not grow is the graph built and a short cycle searched for. Edges are labelled with the life whose
   local order they are (None: from a SEND to a delivery), so that steps of one node can be shown as one: "a delivered x before
   y".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Hashable, Iterable, Iterator
from itertools import groupby, islice, pairwise
from operator import lt
from typing import Any, Final

from transis.audit.guarantees.history import PLACE_SHIFT, LaidHistory, Life, Ring, SentRun, Stay
from transis.trace.events import Delivery
from transis.types.ids import ViewId

# --- causal messages --------------------------------------------------------------------------------------------------


def causal_order_certified(history: LaidHistory) -> bool:
    return all(_numbered(history, ring, stay) for ring in history.rings.values() for stay in ring.stays)


def _numbered(history: LaidHistory, ring: Ring, stay: Stay) -> bool:
    """Times are doubled, so that a delivery fits between a SEND and the next timestamp."""
    latest = 0
    for event, frontier in _events(history, stay):
        if isinstance(event, SentRun):
            if 2 * event.sent.timestamp < latest or _sent_late(stay, event):
                return False
            latest = 2 * event.sent.timestamp
        else:
            if not all(_follows(ring, event, frontier, origin) for origin in _origins(history, event)):
                return False
            latest = max(latest, 2 * event.timestamp + 1)
    return True


def _events(history: LaidHistory, stay: Stay) -> Iterator[tuple[SentRun | Delivery, int]]:
    """SENDs and causal deliveries of a stay in local order, each with its frontier."""
    origins = iter(stay.origins)
    coming = next(origins, None)
    ordered = 0
    for start, run in zip(stay.all.starts, stay.all.runs, strict=True):
        while coming is not None and coming.all_before <= start:
            yield coming, _place_before(stay, ordered)
            coming = next(origins, None)
        if run.service in history.ordered:
            ordered += run.count
        else:
            yield run, _place_before(stay, ordered)
    while coming is not None:
        yield coming, _place_before(stay, ordered)
        coming = next(origins, None)


def _place_before(stay: Stay, ordered: int) -> int:
    return stay.places[ordered - 1] if ordered else -1


def _sent_late(stay: Stay, origin: SentRun) -> bool:
    """A SEND in the transitional configuration would need a phase of its own; there must be none."""
    return stay.trans is not None and stay.trans.lseq < origin.sent.lseq


def _origins(history: LaidHistory, run: Delivery) -> list[SentRun | None]:
    """Where the messages of a run were sent, each place once."""
    codes = history.codes(run.process, run.first, run.count)
    return [origin for origin, _ in groupby(map(history.origins.get, codes))]


def _follows(ring: Ring, run: Delivery, frontier: int, origin: SentRun | None) -> bool:
    if origin is None or origin.stay is None or origin.stay.ring != ring.id:
        return False
    return run.timestamp == origin.sent.timestamp and _place_before(origin.stay, origin.before) <= frontier


# --- ordered messages -------------------------------------------------------------------------------------------------


def certified(history: LaidHistory) -> bool:
    """Does the key prove that there is one order? Computed once per history."""
    if history.certified is None:
        lives = all(_rings_grow(life) and not life.homeless for life in history.lives)
        orders = lives and _one_place_per_transitional(history) and all(map(_one_order, history.rings.values()))
        history.certified = orders and (not history.causal_apart or causal_order_certified(history))
    return history.certified


def strictly_increasing(numbers: list[int]) -> bool:
    return all(map(lt, numbers, islice(numbers, 1, None)))


def sent_places(ring: Ring) -> dict[int, int]:
    """The place that each ordered message got when it was sent in this ring; of two, the first."""
    places: dict[int, int] = {}
    for stay in ring.stays:
        for origin in reversed(stay.ordered_origins):
            codes = stay.sent_codes[origin.first_rank : origin.first_rank + origin.sent.count]
            place = (origin.sent.place.seq << PLACE_SHIFT) + origin.sent.place.index
            places.update(zip(codes, range(place, place + origin.sent.count), strict=True))
    return places


def _rings_grow(life: Life) -> bool:
    return all((a.ring.seq, a.ring.rep) < (b.ring.seq, b.ring.rep) for a, b in pairwise(life.stays))


def _one_place_per_transitional(history: LaidHistory) -> bool:
    key: dict[ViewId, tuple[ViewId, int]] = {}
    stays = [(stay, stay.trans) for ring in history.rings.values() for stay in ring.stays if stay.trans is not None]
    for stay, trans in stays:
        last = stay.places[stay.cut - 1] if stay.cut else -1
        if key.setdefault(trans.view.id, (stay.ring, last)) != (stay.ring, last):
            return False
    return sum(1 for life in history.lives for conf in life.confs if not conf.view.id.is_regular) == len(stays)


def _one_order(ring: Ring) -> bool:
    places = sent_places(ring)
    return all(
        strictly_increasing(stay.places)
        and list(map(places.get, stay.codes)) == stay.places
        and all(_sent_after_what_it_saw(stay, places))
        for stay in ring.stays
    )


def _sent_after_what_it_saw(stay: Stay, places: dict[int, int]) -> list[bool]:
    """A message's place is above everything its sender had delivered when it sent it."""
    return [
        not origin.before or stay.places[origin.before - 1] < places[stay.sent_codes[origin.first_rank]]
        for origin in stay.ordered_origins
    ]


# --- cycles -----------------------------------------------------------------------------------------------------------

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
