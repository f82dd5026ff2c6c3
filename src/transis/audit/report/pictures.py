"""Pictures of a report: the views of a run, and the events around a violation.

Around a violation, times are those of each node's own clock, which nobody may have corrected, so a line may lean back. Where a
clock went back, events stand in the order in which their node recorded them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from transis.audit.draw.layout import (
    STEPS_OF_EVENT,
    Band,
    DrawnDelivery,
    DrawnSending,
    EventMark,
    LifeLine,
    Moment,
    Picture,
    Step,
    Strike,
    WitnessMark,
)
from transis.audit.draw.svg import clock, shortened
from transis.audit.report.content import AroundRow, EndRow, FaultRow, StayRow, ViolationRow

# --- views ------------------------------------------------------------------------------------------------------------


class ViewWords:
    """What the stays of nodes show of views."""

    def __init__(self, stays: Iterable[StayRow]) -> None:
        self.stays = sorted(
            stays, key=lambda stay: (stay.node, stay.start_us, stay.end_us, stay.kind != "transitional", stay.view)
        )
        self._views = {stay.view: stay for stay in self.stays}
        self._regular: dict[str, str] = {}
        current: dict[str, str] = {}
        for stay in self.stays:
            if stay.kind == "regular":
                current[stay.node] = stay.view
            self._regular[stay.view] = current.get(stay.node, "")

    def band(self, lane: int, node: str, view: str, start: Moment, end: Moment) -> Band:
        """If no stay in a view is known, there is only the view's name, which begins with T if it is transitional."""
        stay = self._views.get(view)
        regular = self._regular.get(view, "" if view.startswith("T") else view)
        tip = [f"{node}: {'regular' if view == regular else 'transitional'} view {view}"]
        if stay is not None:
            tip.append(f"members {', '.join(stay.members)}")
        tip.append(f"from {clock(start.time_us)} to {clock(end.time_us)}")
        if stay is not None and stay.cause:
            tip.append(f"cause: {stay.cause}")
        names = (view, view.partition("@")[0])
        return Band(lane, view, regular, start, end, names, () if stay is None else _members(stay.members), "\n".join(tip))

    def before(self, node: str, time_us: int) -> str | None:
        """The view in which a node was at a time, as far as stays show."""
        return next((stay.view for stay in reversed(self.stays) if stay.node == node and stay.start_us < time_us), None)


def _members(members: Sequence[str]) -> tuple[str, ...]:
    return ", ".join(members), f"{len(members)} nodes" if len(members) != 1 else "alone"


# --- the views of a run -----------------------------------------------------------------------------------------------

WIDTH: Final = 1_120.0
LANES_MAX: Final = 64
"""Nodes that are drawn; a report with more says so."""
DEATHS: Final = {"failed": "crashed", "stopped": "stopped by itself", "unknown": "trace ends"}


class ReportedFault(NamedTuple):
    """One thing that was done, with the nodes whose traces report it."""

    time_us: int
    what: str
    nodes: tuple[str, ...]


def reported_once(faults: Iterable[FaultRow]) -> list[ReportedFault]:
    """Many nodes report a fault of the network: it is one."""
    nodes: dict[tuple[int, str], set[str]] = {}
    for fault in faults:
        nodes.setdefault((fault.time_us, fault.what), set()).add(fault.node)
    return [ReportedFault(time_us, what, tuple(sorted(who))) for (time_us, what), who in sorted(nodes.items())]


def lane_of(node: str) -> str:
    """All lives of one name (`a/1`, `a/2`) share a lane: they never overlap."""
    name, slash, life = node.rpartition("/")
    return name if slash and life.isdecimal() else node


def picture_of_views(
    stays: Sequence[StayRow], faults: Sequence[ReportedFault], ends: Sequence[EndRow], span_us: tuple[int, int]
) -> Picture:
    start_us, end_us = span_us
    names = sorted({lane_of(stay.node) for stay in stays})[:LANES_MAX]
    lanes = {name: lane for lane, name in enumerate(names)}
    words = ViewWords(stay for stay in stays if lane_of(stay.node) in lanes)
    return Picture(
        width=WIDTH,
        lanes=tuple(lanes),
        end_us=max(end_us - start_us, 1),
        lives=tuple(_lives(words.stays, ends, lanes, start_us)),
        bands=tuple(_bands_of_run(words, lanes, start_us)),
        strikes=tuple(
            Strike(
                max(0, fault.time_us - start_us),
                fault.what,
                fault.what.partition(" ")[0],
                tuple(sorted({lanes[lane_of(node)] for node in fault.nodes if lane_of(node) in lanes})),
            )
            for fault in faults
        ),
    )


def _bands_of_run(words: ViewWords, lanes: Mapping[str, int], start_us: int) -> Iterator[Band]:
    """A regular view installed at the same instant as the transitional one before it is drawn after it."""
    starts: dict[str, int] = {}
    for stay in words.stays:
        follows = stay.kind == "regular" and starts.get(stay.node) == stay.start_us
        is_instant = stay.kind != "regular" and stay.end_us == stay.start_us
        starts[stay.node] = stay.start_us
        start = Moment(stay.start_us - start_us, Step.AFTER if follows else Step.BEFORE)
        end = Moment(stay.end_us - start_us, Step.AFTER if is_instant else Step.BEFORE)
        yield words.band(lanes[lane_of(stay.node)], stay.node, stay.view, start, max(start, end))


def _lives(stays: Iterable[StayRow], ends: Iterable[EndRow], lanes: Mapping[str, int], start_us: int) -> Iterator[LifeLine]:
    """From the first view of a node to its end, or to the end of its last view."""
    ended = {end.node: end for end in ends}
    spans: dict[str, tuple[int, int]] = {}
    for stay in stays:
        first_us, last_us = spans.get(stay.node, (stay.start_us, stay.end_us))
        spans[stay.node] = min(first_us, stay.start_us), max(last_us, stay.end_us)
    for node, (first_us, last_us) in spans.items():
        end = ended.get(node)
        end_us = (last_us if end is None else max(first_us, end.time_us)) - start_us
        death = "" if end is None else f"{node} {DEATHS.get(end.how, end.how)} at {clock(end_us)}"
        crashed = end is not None and end.how != "stopped"
        yield LifeLine(lanes[lane_of(node)], first_us - start_us, end_us, death=death, crashed=crashed)


# --- around a violation -----------------------------------------------------------------------------------------------

EVENTS_OF_A_NODE: Final = 24
"""Those nearest to a witness are drawn; a picture of more cannot be read."""
NAME_MAX: Final = 18
KINDS: Final = ("basic", "causal", "safe")

Spot = tuple[str, int]
"""An event by node and lseq."""


def picture_around(violation: ViolationRow, around: Sequence[AroundRow], start_us: int, stays: Sequence[StayRow] = ()) -> Picture:
    """There must be at least one event. `start_us` is where the run begins; `stays` are those of the run: they say who is in a
    view.
    """
    numbers = {spot: place for place, spot in enumerate(dict.fromkeys(violation.witness), start=1)}
    return _Excerpt(violation, _nearest(around, numbers), numbers, start_us, ViewWords(stays)).picture()


def _nearest(around: Sequence[AroundRow], numbers: Mapping[Spot, int]) -> list[AroundRow]:
    """For each node the events nearest to a witness, in the node's order: to its own witness if it has one, else by time."""
    witnesses = [event for event in around if (event.node, event.lseq) in numbers]

    def distance(event: AroundRow) -> tuple[int, int]:
        own = [abs(event.lseq - one.lseq) for one in witnesses if one.node == event.node]
        return min((abs(event.time_us - one.time_us) for one in witnesses), default=0), min(own, default=0)

    counts: Counter[str] = Counter()
    kept = []
    for event in sorted(around, key=distance):
        if counts[event.node] < EVENTS_OF_A_NODE or (event.node, event.lseq) in numbers:
            counts[event.node] += 1
            kept.append(event)
    return sorted(kept, key=lambda event: (event.node, event.lseq))


def _moments(events: Iterable[AroundRow], start_us: int) -> dict[Spot, Moment]:
    """One step for each event of a node at an instant; after its clock went back its events stand at its latest time."""
    latest: dict[str, Moment] = {}
    moments = {}
    for event in events:
        moment, before = Moment(event.time_us - start_us, 1), latest.get(event.node)
        if before is not None and before.time_us >= moment.time_us:
            moment = before._replace(step=before.step + STEPS_OF_EVENT)
        moments[event.node, event.lseq] = latest[event.node] = moment
    return moments


class _Excerpt:
    """Some events of each node, sorted into what is drawn of them."""

    def __init__(
        self, violation: ViolationRow, events: Sequence[AroundRow], numbers: Mapping[Spot, int], start_us: int, words: ViewWords
    ) -> None:
        self._violation = violation
        self._events = events
        self._numbers = numbers
        self._run_start_us = start_us
        self._words = words
        self._moments = _moments(events, start_us)
        self._lanes = {node: lane for lane, node in enumerate(sorted({event.node for event in events}))}
        self._sent = {event.about: event for event in events if event.kind == "send" and event.about}
        shown = {event.about for event in events if (event.node, event.lseq) in numbers and event.about}
        self._about = shown | set(violation.messages)
        times = [moment.time_us for moment in self._moments.values()]
        self._start_us, self._end_us = min(times), max(times) + 1

    def picture(self) -> Picture:
        return Picture(
            lanes=tuple(self._lanes),
            start_us=self._start_us,
            end_us=self._end_us,
            spaced=True,
            lives=tuple(LifeLine(lane, self._start_us, self._end_us) for lane in self._lanes.values()),
            bands=tuple(band for node in self._lanes for band in self._bands(node)),
            sendings=tuple(dict.fromkeys(self._sending(sent) for sent, _ in self._delivered())),
            arrivals=tuple(self._arrival(event) for _, event in self._delivered()),
            marks=tuple(map(self._mark, self._events)),
            witnesses=tuple(self._witnesses()),
        )

    def _moment(self, event: AroundRow) -> Moment:
        return self._moments[event.node, event.lseq]

    def _delivered(self) -> Iterator[tuple[AroundRow, AroundRow]]:
        """Each sending with a delivery of it, if both are among the events: only these can be drawn as lines."""
        for event in self._events:
            sent = self._sent.get(event.about) if event.kind == "deliver" else None
            if sent is not None and sent.node != event.node:
                yield sent, event

    def _sending(self, sent: AroundRow) -> DrawnSending:
        kind = next((kind for kind in KINDS if f"({kind})" in sent.label), "ordered")
        is_faint = sent.about not in self._about
        return DrawnSending(self._lanes[sent.node], sent.node, *_message(sent.about), kind, "", self._moment(sent), is_faint)

    def _arrival(self, event: AroundRow) -> DrawnDelivery:
        return DrawnDelivery(self._lanes[event.node], event.node, *_message(event.about), "", self._moment(event))

    def _mark(self, event: AroundRow) -> EventMark:
        tip = f"{event.node}, event {event.lseq} at {clock(event.time_us - self._run_start_us)}: {event.label}"
        has_words = (event.node, event.lseq) in self._numbers or event.about in self._about
        words = (event.about, shortened(event.about, NAME_MAX)) if has_words and event.about else ()
        return EventMark(self._lanes[event.node], self._moment(event), event.kind, tip, words)

    def _witnesses(self) -> Iterator[WitnessMark]:
        for (node, lseq), place in self._numbers.items():
            if (node, lseq) in self._moments:
                yield WitnessMark(self._lanes[node], self._moments[node, lseq], self._violation.property, str(place))

    def _bands(self, node: str) -> Iterator[Band]:
        """From each view that was installed here to the next; before the first of them, the view in force, if it is known."""
        events = [event for event in self._events if event.node == node]
        views = [(self._moment(event), event.about) for event in events if event.kind == "view"]
        known = self._words.before(node, events[0].time_us)
        if known is not None and (not views or views[0][1] != known):
            views.insert(0, (Moment(self._start_us), known))
        for (start, view), (end, _) in pairwise([*views, (Moment(self._end_us), "")]):
            yield self._words.band(self._lanes[node], node, view, start, end)


def _message(about: str) -> tuple[str, int, int]:
    """Process, counter, and a count of one message."""
    process, _, counter = about.rpartition(":")
    return process, int(counter) if counter.isdecimal() else 0, 1
