"""The events around a violation, as a Picture.

The events around a violation: nodes down, time across, the witnesses ringed and numbered as in the list beside it.

Across is the order of time, not its length: an instant at which a node does several things gets room for each of them, and a
long silence is not longer than a short one. Times are those of each node's own clock, as far as nobody corrected them, so a line
may lean back.

What happened around a violation: the events near its witnesses, for the space-time diagram.

Names for people: what tables know by key, told by name. What is fetched is bounded, whatever the size of the trace.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from transis.audit.draw.svg import (
    Rows,
    clock,
    element,
    fitting,
    group,
    line,
    number,
    path,
    rect,
    sender_class,
    shortened,
    text,
    title,
    width_of,
)
from transis.audit.plans.lay import Laid, Tables
from transis.audit.report.content import Around, Violation
from transis.types.ids import Service

# --- spacetime --------------------------------------------------------------------------------------------------------

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


# --- naming -----------------------------------------------------------------------------------------------------------

RUNS_TOLD: Final = 200
"""Runs of which violations are told one by one; the verdicts are those of all."""


class Names:
    """Names of the nodes, processes and views of some runs."""

    def __init__(self, laid: Laid, runs: Iterable[int]) -> None:
        wanted = list(runs)
        self.nodes = _dictionary(laid.node_names, wanted, "node", "node_name")
        self.processes = _dictionary(laid.process_names, wanted, "process", "process_name")
        self.views = _dictionary(laid.view_names, wanted, "view", "view_name")

    def message(self, process: int, counter: int) -> str:
        return f"{self.processes.get(process, 'somebody')}:{counter}"

    def node(self, node: int | None) -> str:
        return self.nodes.get(node, "somebody") if node is not None else "somebody"

    def view(self, view: int | None) -> str:
        return self.views.get(view, "no view") if view is not None else "no view"


def _dictionary(table: DataFrame, runs: list[int], key: str, name: str) -> dict[int, str]:
    rows = table.where(F.col("run").isin(runs)).select(key, name).collect() if runs else []
    return {row[key]: row[name] for row in rows}


def violation_row(row: Row, run: str, names: Names, total: int) -> dict[str, Any]:
    """A violation as reports tell it."""
    return {
        "run": run,
        "property": row.property,
        "explanation": row.explanation,
        "nodes": [names.node(node) for node in row.nodes],
        "views": [names.view(view) for view in row.views],
        "messages": [names.message(one.process, one.counter) for one in row.messages],
        "witness": [(names.node(one.node), one.lseq) for one in row.witness],
        "rank": row["rank"],
        "total": total,
    }


# --- around -----------------------------------------------------------------------------------------------------------

NEAR: Final = 6
"""Events before and behind each witness."""

DRAWN: Final = 24
"""Violations that are drawn: the shortest of each property first."""

_EVENTS: Final = (
    *("submits", "refusals", "sends", "deliveries", "confs", "ends", "faults", "gaps", "group_views", "client_leaves"),
    "checkpoints",
)
_COLUMNS: Final = (
    *("kind", "node", "lseq", "time_us", "process", "first", "count", "service", "view", "name", "what", "why"),
    *("position", "state"),
)


def around(
    spark: SparkSession, tables: Tables, violations: Sequence[Row], names: Names, runs: dict[int, str]
) -> list[dict[str, Any]]:
    """Rows of a report's `around`."""
    drawn = sorted(violations, key=lambda row: (row["rank"], row.property))[:DRAWN]
    ranges = [
        (row.run, row.property, row["rank"], one.node, one.lseq - NEAR, one.lseq + NEAR) for row in drawn for one in row.witness
    ]
    if not ranges:
        return []
    near = _near(spark, tables, ranges).collect()
    told = {(row.run, row.property, row["rank"], row.node, row.lseq): _told(row, names, runs) for row in near}
    return [told[key] for key in sorted(told)]


def _near(spark: SparkSession, tables: Tables, ranges: list[tuple[Any, ...]]) -> DataFrame:
    schema = "run long, property string, rank int, node long, low long, high long"
    wanted = spark.createDataFrame(ranges, schema)
    nodes = [row[3] for row in ranges]
    events = tables.events.where(F.col("kind").isin(*_EVENTS) & F.col("node").isin(*nodes)).select(*_COLUMNS)
    both = events.join(F.broadcast(wanted), "node")
    return both.where("lseq between low and high").drop("low", "high")


def _told(row: Row, names: Names, runs: dict[int, str]) -> dict[str, Any]:
    kind, tell = _TELLING[row.kind]
    about, label = tell(row, names)
    return {
        "run": runs[row.run],
        "property": row.property,
        "rank": row["rank"],
        "node": names.node(row.node),
        "lseq": row.lseq,
        "time_us": row.time_us,
        "kind": kind,
        "label": label,
        "about": about,
    }


def _messages(row: Row, names: Names) -> str:
    first = names.message(row.process, row.first)
    return first if row["count"] == 1 else f"{first} to {row.first + row['count'] - 1}"


def _message(verb: str) -> Callable[[Row, Names], tuple[str, str]]:
    def tell(row: Row, names: Names) -> tuple[str, str]:
        service = "" if row.service is None else f" ({Service(row.service).name.lower()})"
        return names.message(row.process, row.first), f"{verb} {_messages(row, names)}{service}"

    return tell


def _view(row: Row, names: Names) -> tuple[str, str]:
    return names.view(row.view), f"installed {names.view(row.view)}"


def _group_view(row: Row, names: Names) -> tuple[str, str]:
    return "", f"installed a view of group {row.name} in {names.view(row.view)}"


def _checkpoint(row: Row, names: Names) -> tuple[str, str]:
    return "", f"a process of group {row.name} is in state {row.state} behind {row.position} messages of its view"


def _what(before: str) -> Callable[[Row, Names], tuple[str, str]]:
    return lambda row, names: ("", f"{before} {row.what or row.why or ''}".strip())


_TELLING: Final[dict[str, tuple[str, Callable[[Row, Names], tuple[str, str]]]]] = {
    "submits": ("submit", _message("accepted")),
    "refusals": ("refuse", _message("refused")),
    "sends": ("send", _message("sent")),
    "deliveries": ("deliver", _message("delivered")),
    "confs": ("view", _view),
    "ends": ("end", _what("ended:")),
    "faults": ("fault", _what("fault:")),
    "gaps": ("gap", _what("events are missing here")),
    "group_views": ("group view", _group_view),
    "client_leaves": ("leave", _what("a process left:")),
    "checkpoints": ("checkpoint", _checkpoint),
}
