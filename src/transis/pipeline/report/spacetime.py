"""The events around a violation: nodes down, time across, the witnesses ringed and numbered as in the list beside it.

Across is the order of time, not its length: an instant at which a node does several things gets room for each of them, and a
long silence is not longer than a short one. Times are those of each node's own clock, as far as nobody corrected them, so a line
may lean back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from transis.drawing.labels import Rows, fitting, shortened, width_of
from transis.drawing.palette import sender_class
from transis.drawing.svg import element, group, line, number, path, rect, text, title
from transis.drawing.times import clock
from transis.pipeline.report.content import Around, Violation

LEFT: Final = 124.0
RIGHT: Final = 40.0
TOP: Final = 34.0
LANE_PX: Final = 74.0
STEP_PX: Final = 20.0
"""Between two events of one node at one instant."""
INSTANT_PX: Final = 26.0
WIDTH_WANTED: Final = 1_140.0
"""A page is so wide: what is narrower is stretched, up to `STRETCH_MAX`."""
STRETCH_MAX: Final = 2.0
TICK_PX: Final = 90.0
EVENTS_OF_A_NODE: Final = 24
"""Those nearest to a witness are drawn; a picture of more cannot be read."""
SENT: Final = "send"
DELIVERED: Final = "deliver"

Spot = tuple[str, int]
"""An event by node and lseq."""


class _Plan(NamedTuple):
    """Where everything is."""

    events: Sequence[Around]
    lanes: Mapping[str, int]
    x: Mapping[Spot, float]
    numbers: Mapping[Spot, int]
    about: frozenset[str]
    """What the violation is about: those messages stand out."""
    start_us: int
    width: float

    def y(self, node: str) -> float:
        return TOP + LANE_PX * (self.lanes[node] + 0.45)

    @property
    def height(self) -> float:
        return TOP + LANE_PX * len(self.lanes) + 12


def draw_around(violation: Violation, around: Sequence[Around], start_us: int) -> str:
    """An SVG element; `start_us` is where the run begins. Empty if nothing is known of the events."""
    if not around:
        return ""
    plan = _planned(violation, around, start_us)
    layers = (
        group(_axis(plan)),
        group(_lanes(plan)),
        group(_links(plan)),
        group(_marks(plan)),
        group(_rings(plan)),
        group(_words(plan)),
    )
    size = f"0 0 {number(plan.width)} {number(plan.height)}"
    label = f"Events around the violation of {violation.property}, {len(plan.lanes)} nodes"
    return element(
        "svg", *layers, viewBox=size, width=plan.width, height=plan.height, role="img", aria_label=label, class_="spacetime"
    )


def _planned(violation: Violation, around: Sequence[Around], start_us: int) -> _Plan:
    numbers = {spot: place for place, spot in enumerate(dict.fromkeys(violation.witness), start=1)}
    placed = _in_order(_nearest(around, numbers))
    x, width = _across(placed)
    events = [event for _, event in placed]
    lanes = {node: lane for lane, node in enumerate(sorted({event.node for event in events}))}
    shown = frozenset(event.about for event in events if (event.node, event.lseq) in numbers and event.about)
    return _Plan(events, lanes, x, numbers, shown | frozenset(violation.messages), start_us, width)


def _nearest(around: Sequence[Around], numbers: Mapping[Spot, int]) -> list[Around]:
    """Of each node the events nearest to a witness: its own if it has one, else in time."""
    witnesses = [event for event in around if (event.node, event.lseq) in numbers]

    def distance(event: Around) -> tuple[int, int]:
        own = [abs(event.lseq - one.lseq) for one in witnesses if one.node == event.node]
        return min((abs(event.time_us - one.time_us) for one in witnesses), default=0), min(own, default=0)

    taken: Counter[str] = Counter()
    kept = []
    for event in sorted(around, key=distance):
        if taken[event.node] < EVENTS_OF_A_NODE or (event.node, event.lseq) in numbers:
            taken[event.node] += 1
            kept.append(event)
    return kept


def _in_order(events: Sequence[Around]) -> list[tuple[int, Around]]:
    """By time, but never against the numbers of a node's own events: where its clock went back, they stand at its latest time."""
    latest: dict[str, int] = {}
    placed = []
    for event in sorted(events, key=lambda event: (event.node, event.lseq)):
        latest[event.node] = max(event.time_us, latest.get(event.node, event.time_us))
        placed.append((latest[event.node], event))
    return sorted(placed, key=lambda one: (one[0], one[1].node, one[1].lseq))


def _across(placed: Sequence[tuple[int, Around]]) -> tuple[dict[Spot, float], float]:
    """x of each event, and the width of the picture."""
    places: dict[Spot, float] = {}
    x, instant_us, used = LEFT + 10.0, None, Counter[str]()
    for time_us, event in placed:
        if time_us != instant_us:
            x += 0.0 if instant_us is None else INSTANT_PX + STEP_PX * (max(used.values()) - 1)
            instant_us, used = time_us, Counter()
        places[event.node, event.lseq] = x + STEP_PX * used[event.node]
        used[event.node] += 1
    stretch = (WIDTH_WANTED - LEFT - RIGHT) / max(1.0, max(places.values()) - LEFT)
    stretch = min(STRETCH_MAX, max(1.0, stretch))
    wide = {spot: LEFT + (x - LEFT) * stretch for spot, x in places.items()}
    return wide, max(wide.values()) + RIGHT


def _axis(plan: _Plan) -> Iterator[str]:
    free_from = 0.0
    for event in plan.events:
        x = plan.x[event.node, event.lseq]
        if x >= free_from:
            yield line(x, TOP - 8, x, plan.height - 8, class_="grid")
            yield text(x, TOP - 14, clock(event.time_us - plan.start_us), class_="faint small middle")
            free_from = x + TICK_PX


def _lanes(plan: _Plan) -> Iterator[str]:
    for lane, node in enumerate(plan.lanes):
        y = plan.y(node)
        yield line(LEFT, y, plan.width - 14, y, class_="life")
        yield element("circle", cx=14.0, cy=y - 4, r=5.0, class_=sender_class(lane))
        yield text(26, y, shortened(node, 10), title(node), class_="lane")


def _links(plan: _Plan) -> Iterator[str]:
    """From each sending to where it was delivered."""
    sent = {event.about: event for event in plan.events if event.kind == SENT and event.about}
    for event in plan.events:
        origin = sent.get(event.about) if event.kind == DELIVERED else None
        if origin is not None and origin.node != event.node:
            ends = (
                *(plan.x[origin.node, origin.lseq], plan.y(origin.node)),
                *(plan.x[event.node, event.lseq], plan.y(event.node)),
            )
            strong = event.about in plan.about
            drawn = line(*ends, title(event.about), stroke_width="2.2" if strong else "1")
            yield group((drawn,), class_=f"m {sender_class(plan.lanes[origin.node])}", opacity=None if strong else ".45")


def _marks(plan: _Plan) -> Iterator[str]:
    for event in plan.events:
        x, y = plan.x[event.node, event.lseq], plan.y(event.node)
        colour = sender_class(plan.lanes[event.node])
        told = f"{event.node}, event {event.lseq} at {clock(event.time_us - plan.start_us)}: {event.label}"
        yield group((_mark(event.kind, x, y, colour), title(told)))


def _mark(kind: str, x: float, y: float, colour: str) -> str:
    match kind:
        case "send":
            return path(f"M{number(x)} {number(y - 7)} l5 11 h-10 z", class_=colour)
        case "deliver":
            return element("circle", cx=x, cy=y, r=4.2, class_=colour)
        case "view":
            return rect(x - 3, y - 14, 6, 28, class_="ink")
        case "end":
            return path(f"M{number(x - 6)} {number(y - 6)} l12 12 m0 -12 l-12 12", class_="cross", fill="none")
        case "fault" | "gap":
            return path(f"M{number(x)} {number(y + 7)} l5 -11 h-10 z", class_="word")
        case _:
            return element("circle", cx=x, cy=y, r=2.4, class_="faint")


def _rings(plan: _Plan) -> Iterator[str]:
    for (node, lseq), place in plan.numbers.items():
        if (node, lseq) in plan.x:
            x, y = plan.x[node, lseq], plan.y(node)
            yield element("circle", cx=x, cy=y, r=10.0, class_="ring")
            yield text(x, y - 14, str(place), class_="alarm middle halo proof")


def _words(plan: _Plan) -> Iterator[str]:
    """What each event is about, where there is room: first for the witnesses, then for what the violation is about."""
    rows = {node: Rows(2, plan.width) for node in plan.lanes}
    placed = sorted(plan.events, key=lambda event: plan.x[event.node, event.lseq])
    for event in placed:
        known = (event.node, event.lseq) in plan.numbers or event.about in plan.about
        words = fitting((event.about, _short(event.about)), 130.0) if known or event.kind == "view" else ""
        place = rows[event.node].place(plan.x[event.node, event.lseq] - 4, width_of(words)) if words else None
        if place is not None:
            row, x = place
            yield text(x, plan.y(event.node) + 22 + 12 * row, words, class_="halo small" if known else "faint halo small")


def _short(name: str) -> str:
    return shortened(name, 18)
