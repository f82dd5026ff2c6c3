"""Messages as lines: each sending is tied to its deliveries, and sendings that would be drawn on top of each other
become one bundle.

1. A bundle holds messages of one node, one kind of line (basic, causal, ordered, safe) and one configuration.
2. Bundles grow until the lines fit the budget: a picture of ten thousand lines shows nothing.
3. Per receiver and configuration a bundle arrives once, where its first message did; the count says the rest.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from transis.sim.picture import Arrival, Moment, Sending
from transis.types.ids import NodeId, ProcessId, Service, ViewId

LINES_MAX: Final = 900
WINDOW_FIRST_PX: Final = 4.0
WINDOW_LAST_PX: Final = 130.0
"""Bundles are never wider: beyond it the budget of lines gives way."""

Position = Callable[[Moment], float]


class Landing(NamedTuple):
    lane: int
    node: NodeId
    conf: ViewId
    moment: Moment
    count: int  # type: ignore[assignment]  # hides tuple.count


@dataclass(slots=True)
class Bundle:
    """Messages drawn as one, and where they were delivered."""

    first: Sending
    service: Service
    count: int = 0
    runs: list[tuple[ProcessId, int, int]] = field(default_factory=list)
    landings: dict[tuple[NodeId, ViewId], Landing] = field(default_factory=dict)

    def add(self, sending: Sending, arrivals: Iterable[Arrival]) -> None:
        self.count += sending.count
        self.runs.append((sending.process, sending.first, sending.count))
        for arrival in arrivals:
            self._land(arrival)

    def _land(self, arrival: Arrival) -> None:
        key = (arrival.node, arrival.conf)
        known = self.landings.get(key)
        count = arrival.count + (known.count if known is not None else 0)
        moment = min(arrival.moment, known.moment) if known is not None else arrival.moment
        self.landings[key] = Landing(arrival.lane, arrival.node, arrival.conf, moment, count)

    @property
    def elsewhere(self) -> list[Landing]:
        """Deliveries in other lanes than the sender's: these are lines; at home it is a dot."""
        return [landing for landing in self.landings.values() if landing.lane != self.first.lane]


def kind_of(service: Service) -> str:
    """The kind of line. Causal messages have one of their own: on Lansis they have no place in the order."""
    return {Service.BASIC: "basic", Service.CAUSAL: "causal", Service.SAFE: "safe"}.get(service, "ordered")


def bundles(sendings: Sequence[Sending], arrivals: Sequence[Arrival], position: Position) -> list[Bundle]:
    """The finest bundling whose lines fit the budget."""
    ordered = sorted(sendings, key=lambda sending: (sending.process.node, sending.moment, sending.process, sending.first))
    found = _deliveries(ordered, arrivals)
    window = WINDOW_FIRST_PX
    while True:
        drawn = _bundled(ordered, found, position, window)
        if window > WINDOW_LAST_PX or sum(len(bundle.elsewhere) for bundle in drawn) <= LINES_MAX:
            return drawn
        window *= 1.6


def _bundled(ordered: Sequence[Sending], found: Sequence[list[Arrival]], position: Position, window: float) -> list[Bundle]:
    drawn: list[Bundle] = []
    open_bundles: dict[tuple[NodeId, str, ViewId], Bundle] = {}
    for sending, arrivals in zip(ordered, found, strict=True):
        key = (sending.process.node, kind_of(sending.service), sending.conf)
        bundle = open_bundles.get(key)
        if bundle is None or position(sending.moment) - position(bundle.first.moment) > window:
            bundle = open_bundles[key] = Bundle(sending, sending.service)
            drawn.append(bundle)
        bundle.add(sending, arrivals)
    return drawn


def _deliveries(ordered: Sequence[Sending], arrivals: Sequence[Arrival]) -> list[list[Arrival]]:
    """For each sending its deliveries; a delivered run may cover several sendings, and goes to each."""
    by_process: dict[ProcessId, list[tuple[int, int]]] = {}
    for index, sending in enumerate(ordered):
        by_process.setdefault(sending.process, []).append((sending.first, index))
    for starts in by_process.values():
        starts.sort()
    found: list[list[Arrival]] = [[] for _ in ordered]
    for arrival in arrivals:
        for index, piece in _pieces(ordered, by_process.get(arrival.process, []), arrival):
            found[index].append(piece)
    return found


def _pieces(ordered: Sequence[Sending], starts: Sequence[tuple[int, int]], arrival: Arrival) -> Iterator[tuple[int, Arrival]]:
    """The delivered run cut where sendings begin."""
    last = arrival.first + arrival.count - 1
    at = max(0, bisect_right(starts, (arrival.first, len(ordered))) - 1)
    for start, index in starts[at:]:
        if start > last:
            return
        low, high = max(start, arrival.first), min(last, start + ordered[index].count - 1)
        if low <= high:
            yield index, arrival._replace(first=low, count=high - low + 1)
