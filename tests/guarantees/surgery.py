"""A history opened for surgery: single messages instead of runs, events that can be moved, numbers put right afterwards.

A mutant changes what happened, not how it was numbered: after the cut `lseq` is dense again and `tpos` counts again, so
that only the checkers of guarantees can see the difference, never a check of the recorder's own numbers. What clients were
handed goes on to point at the same deliveries.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import NamedTuple

from transis.audit.guarantees.history import LaidHistory, Life, Stay
from transis.trace.events import (
    ClientDelivery,
    Conf,
    Delivery,
    Event,
    HandedRuns,
    History,
    NodeTrace,
    Refuse,
    Sent,
    Submit,
    is_ordered,
)
from transis.types.ids import NodeId, Place, ViewId
from transis.types.views import View

Properties = frozenset[str]


class Mutant(NamedTuple):
    """A way to hurt a history, the properties that must see it, and those that may."""

    name: str
    wound: Callable[[Draft, Random], bool]
    must: Properties
    may: Properties

    def __call__(self, history: History, rng: Random) -> History | None:
        """The wounded history, or None if there is no place to strike."""
        draft = Draft(history)
        return draft.history() if self.wound(draft, rng) else None


class Kit:
    """Collects mutants under the names of their functions."""

    def __init__(self) -> None:
        self.mutants: list[Mutant] = []

    def breaks(self, *must: str, may: tuple[str, ...] = ()) -> Callable[[Wound], Wound]:
        def register(wound: Wound) -> Wound:
            self.mutants.append(Mutant(wound.__name__, wound, frozenset(must), frozenset(may)))
            return wound

        return register


class Draft:
    """A copy of a history, one message per event, with its index to choose targets by."""

    def __init__(self, history: History) -> None:
        self.original = history
        self.traces = {trace.node: [single for event in trace.events for single in _singles(event)] for trace in history.nodes}
        self.index = LaidHistory(self.history())

    def history(self) -> History:
        self._renumber()
        nodes = [NodeTrace(node, events) for node, events in self.traces.items()]
        return self.original._replace(nodes=nodes)

    # Targets.

    @property
    def stays(self) -> list[Stay]:
        return [stay for life in self.index.lives for stay in life.stays]

    @property
    def alive(self) -> list[Life]:
        """Lives that did not end and have a configuration, so that nothing they owe is void."""
        return [life for life in self.index.lives if life.end is None and life.stays]

    def next_place(self, ring: ViewId) -> Place:
        """A place behind everything sent or delivered in a ring."""
        stays = self.index.rings[ring].stays
        used = [run.place.seq for stay in stays for run in stay.runs]
        used += [origin.sent.place.seq for stay in stays for origin in stay.origins]
        return Place(max(used, default=0) + 1, 0)

    def company(self, stay: Stay) -> list[Stay]:
        """Stays that went the same way out of the same configurations, so that predicate 4 holds them together."""
        if stay.following is None or stay.trans is None:
            return []
        way = (stay.trans.view.id, stay.following.ring)
        return [
            other
            for other in self.index.rings[stay.ring].stays
            if other is not stay
            and other.trans is not None
            and other.following is not None
            and (other.trans.view.id, other.following.ring) == way
        ]

    # Surgery. Events are found by identity: `lseq` is that of the draft as it was opened.

    def cut(self, node: NodeId, event: Event) -> None:
        self.traces[node] = [other for other in self.traces[node] if other is not event]

    def put_after(self, node: NodeId, event: Event, *new: Event) -> None:
        place = self._find(node, event)
        self.traces[node][place + 1 : place + 1] = new

    def put_before(self, node: NodeId, event: Event, *new: Event) -> None:
        place = self._find(node, event)
        self.traces[node][place:place] = new

    def swap(self, node: NodeId, left: Event, right: Event) -> None:
        events = self.traces[node]
        i, j = self._find(node, left), self._find(node, right)
        events[i], events[j] = events[j], events[i]

    def exchange(self, node: NodeId, event: Event, new: Event) -> None:
        self.traces[node][self._find(node, event)] = new

    def append(self, node: NodeId, *new: Event) -> None:
        self.traces[node].extend(new)

    def cut_from(self, node: NodeId, event: Event) -> None:
        del self.traces[node][self._find(node, event) :]

    def edit_view(self, node: NodeId, conf: Conf, edit: Callable[[View], View]) -> None:
        self.exchange(node, conf, conf._replace(view=edit(conf.view)))

    def _find(self, node: NodeId, event: Event) -> int:
        return next(place for place, other in enumerate(self.traces[node]) if other is event)

    def _renumber(self) -> None:
        for node, events in self.traces.items():
            self.traces[node] = _renumbered(events, self.original.engine)


def _renumbered(events: list[Event], engine: str) -> list[Event]:
    tpos = 0
    fresh: list[Event] = []
    moved: dict[int, list[int]] = {}
    for lseq, event in enumerate(events, start=1):
        if isinstance(event, Conf) and event.view.id.is_regular:
            tpos = 0
        if isinstance(event, Delivery) and is_ordered(event.service, engine):
            fresh.append(event._replace(lseq=lseq, tpos=tpos))
            tpos += event.count
        elif isinstance(event, ClientDelivery):
            handed = tuple(_pointing_at(one, moved) for one in event.handed)
            fresh.append(event._replace(lseq=lseq, handed=handed))
        else:
            fresh.append(event._replace(lseq=lseq))
        moved.setdefault(event.lseq, []).append(lseq)
    return fresh


def _pointing_at(handed: HandedRuns, moved: dict[int, list[int]]) -> HandedRuns:
    """The same deliveries under their new numbers: several where a run became single messages, none where it was cut out."""
    return handed._replace(runs=tuple(lseq for old in handed.runs for lseq in moved.get(old, ())))


def _singles(event: Event) -> list[Event]:
    """A run as events of one message each."""
    if isinstance(event, Submit | Refuse):
        return [event._replace(first=event.first + i, count=1) for i in range(event.count)]
    if isinstance(event, Sent | Delivery):
        seq, index = event.place
        return [event._replace(first=event.first + i, count=1, place=Place(seq, index + i)) for i in range(event.count)]
    return [event]


Wound = Callable[[Draft, Random], bool]
"""Changes a draft in one drawn place; False if there is none."""
