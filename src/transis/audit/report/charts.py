"""Charts for plotly.js; the timeline of views.

Charts that a reader may zoom into: latency densities, throughput, the ring's notes. Data for plotly.js, drawn by the page.

1. plotly.js reads a little markup in every name, so names are escaped here and again as JSON (`embedded`).
2. A chart has no colours of its own: the page gives it those of the screen or of paper.

The views of a run, node by node over time, with what was done to the nodes and how they ended.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import log2
from typing import Any, Final, NamedTuple, TypeVar

from transis.audit.draw.svg import (
    Rows,
    clock,
    element,
    escaped,
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
    view_class,
    width_of,
)
from transis.audit.report.content import End, Fault, GroupLatency, Incident, Latency, Point, Ring, Stay, Throughput

# --- charts -----------------------------------------------------------------------------------------------------------

SERIES_MAX: Final = 16
"""Lines of one chart; those with the most in them are drawn."""
MARKS_MAX: Final = 60
"""Changes of view that are marked in a chart."""
KINDS_MAX: Final = 4
"""Kinds of notes that get a chart, the most frequent first."""
HEIGHT_PX: Final = 300
RING_HEIGHT_PX: Final = 220
SHORTEST_US: Final = 1.0
"""Where a logarithmic axis begins: an estimate of clocks may make a latency zero or less."""

Points = tuple[list[float], list[float]]
T = TypeVar("T")


class Chart(NamedTuple):
    """`note` says how to read it; `left_out` how many series are not drawn."""

    title: str
    note: str
    data: list[dict[str, Any]]
    layout: dict[str, Any]
    left_out: int = 0


def embedded(value: object) -> str:
    """JSON that may stand inside a script element: nothing in it can end the element or begin a comment."""
    written = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return written.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def latency_chart(rows: Sequence[Latency]) -> Chart | None:
    """One density a service, over a logarithmic axis: the area under each is 1 when an octave counts as 1."""
    series = {service: _density(bars) for service, bars in _grouped(rows, lambda row: row.service).items()}
    return _chart(
        "Latency from origination to delivery, by service",
        "The higher, the more deliveries took so long: share of deliveries per doubling of the latency.",
        {service: points for service, points in series.items() if points[0]},
        {"xaxis": {"type": "log", "title": {"text": "latency, ms"}}, "yaxis": {"title": {"text": "share per octave"}}},
        {"fill": "tozeroy", "hovertemplate": "%{x:.3~g} ms: %{y:.3f}<extra>%{fullData.name}</extra>"},
    )


def _density(bars: Iterable[Latency]) -> Points:
    """Corners of the steps; buckets of several pairs of nodes are added up."""
    counts: dict[tuple[float, float], int] = {}
    for bar in bars:
        low = max(bar.low_us, SHORTEST_US)
        edges = (low, max(bar.high_us, low * 1.05))
        counts[edges] = counts.get(edges, 0) + bar.count
    total = max(1, sum(counts.values()))
    corners: list[tuple[float, float]] = []
    for (low, high), count in sorted(counts.items()):
        if not corners or low > corners[-1][0]:
            corners += [(at, 0.0) for at in (*(at for at, _ in corners[-1:]), low)]
        height = count / total / log2(high / low)
        corners += [(low, height), (high, height)]
    corners += [(at, 0.0) for at, _ in corners[-1:]]
    return [_short(at / 1000) for at, _ in corners], [_short(height) for _, height in corners]


def throughput_chart(rows: Sequence[Throughput], incidents: Sequence[Incident], start_us: int) -> Chart | None:
    series = {
        node: _over_time(((row.start_us, row.messages * 1e6 / max(1, row.width_us)) for row in found), start_us)
        for node, found in _grouped(rows, lambda row: row.node).items()
    }
    layout = _time_layout("messages a second", incidents, start_us)
    note = "What each node delivered. Dotted lines are changes of view."
    return _chart("Throughput over time, by node", note, series, layout, _STEPS)


def ring_charts(rows: Sequence[Ring], incidents: Sequence[Incident], start_us: int) -> list[Chart]:
    """One chart for each of the most frequent kinds of notes; a kind that was always nought would be an empty one."""
    seen = {what: found for what, found in _grouped(rows, lambda row: row.what).items() if any(row.value for row in found)}
    kinds = sorted(seen.items(), key=lambda item: (-len(item[1]), item[0]))
    charts = []
    for what, found in kinds[:KINDS_MAX]:
        by_node = _grouped(found, lambda row: row.node).items()
        series = {node: _over_time(((row.start_us, row.value) for row in notes), start_us) for node, notes in by_node}
        layout = {**_time_layout(escaped(what), incidents, start_us), "height": RING_HEIGHT_PX}
        chart = _chart(f"The ring over time: {what}", "", series, layout, _DOTS)
        charts += [chart] if chart is not None else []
    return charts


def group_chart(rows: Sequence[GroupLatency], incidents: Sequence[Incident], start_us: int) -> Chart | None:
    series = {
        group: _over_time(((row.start_us, row.p99_us / 1000) for row in found), start_us)
        for group, found in _grouped(rows, lambda row: row.group).items()
    }
    layout = _time_layout("p99 latency, ms", incidents, start_us)
    note = "Of a hundred deliveries in a group ninety-nine were at least as fast."
    return _chart("p99 latency over time, by group", note, series, layout, _STEPS)


def figures_charts(rows: Sequence[Point]) -> list[Chart]:
    """Latency against load, and load against the size of messages: worth drawing only where there are several points."""
    load = _scattered(rows, lambda row: (row.offered_per_s, row.mean_us / 1000))
    sizes = _scattered(rows, lambda row: (row.size, row.delivered_per_s))
    made = (
        _chart(
            "Latency against load", "Each point is a run.", load, _axes("offered messages a second", "mean latency, ms"), _POINTS
        ),
        _chart(
            "Throughput against the size of messages",
            "Each point is a run.",
            sizes,
            _axes("bytes of a message", "messages a second, by one node"),
            _POINTS,
        ),
    )
    return [chart for chart in made if chart is not None]


def _scattered(rows: Sequence[Point], place: Callable[[Point], tuple[float, float]]) -> dict[str, Points]:
    """The points of each service from left to right; nothing if all lie above one another."""
    series = {}
    for service, found in _grouped(rows, lambda row: row.service).items():
        points = sorted({place(row) for row in found})
        if len({x for x, _ in points}) > 1:
            series[service] = [_short(x) for x, _ in points], [_short(y) for _, y in points]
    return series


def _axes(across: str, up: str) -> dict[str, Any]:
    return {
        "xaxis": {"title": {"text": across}, "rangemode": "tozero"},
        "yaxis": {"title": {"text": up}, "rangemode": "tozero"},
    }


_POINTS: Final[dict[str, Any]] = {"mode": "lines+markers"}
_STEPS: Final[dict[str, Any]] = {"line": {"shape": "hv"}}
_DOTS: Final[dict[str, Any]] = {"mode": "markers", "marker": {"size": 5}}


def _chart(title: str, note: str, series: Mapping[str, Points], layout: dict[str, Any], style: dict[str, Any]) -> Chart | None:
    if not series:
        return None
    fullest = sorted(series, key=lambda name: (-len(series[name][0]), name))[:SERIES_MAX]
    data = [
        {"type": "scatter", "mode": "lines", "name": escaped(name), "x": series[name][0], "y": series[name][1], **style}
        for name in sorted(fullest)
    ]
    return Chart(title, note, data, {"height": HEIGHT_PX, "showlegend": True, **layout}, len(series) - len(fullest))


def _time_layout(what: str, incidents: Sequence[Incident], start_us: int) -> dict[str, Any]:
    times = sorted({incident.start_us for incident in incidents})[:MARKS_MAX]
    marks = [
        {"type": "line", "yref": "paper", "y0": 0, "y1": 1, "x0": at, "x1": at, "line": {"dash": "dot", "width": 1}}
        for at in (_short((time_us - start_us) / 1e6) for time_us in times)
    ]
    return {
        "xaxis": {"title": {"text": "seconds since the start of the run"}},
        "yaxis": {"title": {"text": what}, "rangemode": "tozero"},
        "shapes": marks,
    }


def _over_time(values: Iterable[tuple[int, float]], start_us: int) -> Points:
    ordered = sorted(values)
    return [_short((time_us - start_us) / 1e6) for time_us, _ in ordered], [_short(value) for _, value in ordered]


def _grouped(rows: Iterable[T], name: Callable[[T], str]) -> dict[str, list[T]]:
    found: dict[str, list[T]] = {}
    for row in rows:
        found.setdefault(name(row), []).append(row)
    return {key: found[key] for key in sorted(found)}


def _short(value: float) -> float:
    """Six digits are more than a chart shows; files stay small."""
    return float(f"{value:.6g}")


# --- timeline ---------------------------------------------------------------------------------------------------------

WIDTH: Final = 1_120.0
LEFT: Final = 124.0
RIGHT: Final = 16.0
ROW_PX: Final = 14.0
FAULT_ROWS: Final = 4
"""What finds no place in them keeps its mark, and stands in the list below the picture."""
LANE_PX: Final = 40.0
TICKS: Final = 9
STEPS: Final = (1, 2, 5)
WORDS_MAX: Final = 34
LANES_MAX: Final = 64
"""Nodes drawn; a report of more says so."""

_DEATHS: Final = {"failed": "crashed", "stopped": "stopped by itself", "unknown": "trace ends"}


class Blow(NamedTuple):
    """One thing that was done, with the nodes whose traces tell of it."""

    time_us: int
    what: str
    nodes: tuple[str, ...]


def blows_of(faults: Iterable[Fault]) -> list[Blow]:
    """A fault of the network is told by many nodes, and is one."""
    nodes: dict[tuple[int, str], set[str]] = {}
    for fault in faults:
        nodes.setdefault((fault.time_us, fault.what), set()).add(fault.node)
    return [Blow(time_us, what, tuple(sorted(who))) for (time_us, what), who in sorted(nodes.items())]


class _Frame:
    """From times and names to pixels."""

    def __init__(self, stays: Sequence[Stay], start_us: int, end_us: int, rows: int) -> None:
        self.start_us = start_us
        self.end_us = max(end_us, start_us + 1)
        names = sorted({lane_of(stay.node) for stay in stays})
        self.hidden = names[LANES_MAX:]
        self.lanes: Mapping[str, int] = {name: lane for lane, name in enumerate(names[:LANES_MAX])}
        self.axis_y = 10 + ROW_PX * rows + 16
        self.end_y = self.axis_y + 6 + LANE_PX * len(self.lanes)
        self.height = self.end_y + 20

    def x(self, time_us: int) -> float:
        share = (time_us - self.start_us) / (self.end_us - self.start_us)
        return LEFT + min(1.0, max(0.0, share)) * (WIDTH - LEFT - RIGHT)

    def top(self, node: str) -> float:
        return self.lane_top(self.lanes[lane_of(node)])

    def lane_top(self, lane: int) -> float:
        return self.axis_y + 6 + LANE_PX * lane + 3

    def drawn(self, node: str) -> bool:
        return lane_of(node) in self.lanes


def lane_of(node: str) -> str:
    """All lives of one name (`a/1`, `a/2`) share a lane: they never overlap."""
    name, slash, life = node.rpartition("/")
    return name if slash and life.isdecimal() else node


def draw_timeline(stays: Sequence[Stay], blows: Sequence[Blow], ends: Sequence[End], span_us: tuple[int, int]) -> str:
    """An SVG element; empty if there are no views to show."""
    if not stays:
        return ""
    labels, rows = _placed(blows, span_us)
    frame = _Frame(stays, *span_us, rows)
    layers = (
        group(_grid(frame)),
        group(_bands(frame, stays)),
        group(_blows(frame, labels)),
        group(_deaths(frame, ends)),
        group(_names(frame)),
    )
    size = f"0 0 {number(WIDTH)} {number(frame.height)}"
    label = f"Views of {len(frame.lanes)} nodes over {clock(frame.end_us - frame.start_us)}"
    return element("svg", *layers, viewBox=size, role="img", aria_label=label, class_="timeline")


def hatching() -> str:
    """What transitional views are filled with: once a page, and never in a part that is folded, or browsers do not find it."""
    stroke = path("M0 6 L6 0", class_="hatching", stroke_width="1", stroke_opacity=".55")
    pattern = element("pattern", stroke, id="hatch", width="6", height="6", patternUnits="userSpaceOnUse")
    return element("svg", element("defs", pattern), width="0", height="0", class_="hidden", aria_hidden="true")


Label = tuple[Blow, float, int | None]
"""What was done, where its words begin, and in which row; None if there was no place for them."""


def _placed(blows: Sequence[Blow], span_us: tuple[int, int]) -> tuple[list[Label], int]:
    scale = (WIDTH - LEFT - RIGHT) / max(1, span_us[1] - span_us[0])
    rows = Rows(FAULT_ROWS, WIDTH - LEFT - RIGHT)
    labels: list[Label] = []
    for blow in blows:
        x = (blow.time_us - span_us[0]) * scale
        place = rows.place(x, width_of(shortened(blow.what, WORDS_MAX)))
        labels.append((blow, LEFT + (x if place is None else place[1]), None if place is None else place[0]))
    return labels, rows.used


def _grid(frame: _Frame) -> Iterator[str]:
    step_us = _step((frame.end_us - frame.start_us) / TICKS)
    for passed_us in range(0, frame.end_us - frame.start_us + 1, step_us):
        x = frame.x(frame.start_us + passed_us)
        yield line(x, frame.axis_y, x, frame.end_y, class_="grid")
        yield text(x, frame.end_y + 14, clock(passed_us), class_="faint small middle")


def _step(wanted_us: float) -> int:
    power = 1
    while True:
        for digit in STEPS:
            if digit * power >= wanted_us:
                return digit * power
        power *= 10


def _bands(frame: _Frame, stays: Sequence[Stay]) -> Iterator[str]:
    colours: dict[str, int] = {}
    current: dict[str, str] = {}
    for stay in sorted(stays, key=lambda stay: (stay.start_us, stay.node, stay.end_us, stay.view)):
        regular = stay.view if stay.kind == "regular" else current.get(stay.node, stay.view)
        current[stay.node] = regular
        colour = colours.setdefault(regular, len(colours))
        if frame.drawn(stay.node):
            yield _band(frame, stay, view_class(colour))


def _band(frame: _Frame, stay: Stay, colour: str) -> str:
    x, top = frame.x(stay.start_us), frame.top(stay.node)
    width = max(1.5, frame.x(stay.end_us) - x)
    shape = (x, top, width, LANE_PX - 8)
    parts = [rect(*shape, class_=f"edge {colour}")]
    if stay.kind != "regular":
        parts.append(rect(*shape, fill="url(#hatch)"))
    size = f"{len(stay.members)} nodes" if len(stay.members) != 1 else "alone"
    name = stay.view.partition("@")[0]
    first = fitting((stay.view, name), width - 8)
    second = fitting((", ".join(stay.members), size), width - 8) if first else ""
    parts += [text(x + 4, top + 13, first)] if first else []
    parts += [text(x + 4, top + 26, second, class_="faint small")] if second else []
    return group((*parts, title(_band_words(frame, stay))))


def _band_words(frame: _Frame, stay: Stay) -> str:
    lines = [
        f"{stay.node}: {stay.kind} view {stay.view}",
        f"members {', '.join(stay.members)}",
        f"from {clock(stay.start_us - frame.start_us)} to {clock(stay.end_us - frame.start_us)}",
    ]
    return "\n".join([*lines, f"cause: {stay.cause}"] if stay.cause else lines)


def _blows(frame: _Frame, labels: Sequence[Label]) -> Iterator[str]:
    for blow, word_x, row in labels:
        x = frame.x(blow.time_us)
        told = f"{clock(blow.time_us - frame.start_us)}: {blow.what}"
        top = frame.axis_y - 2 if row is None else frame.axis_y - 12 - ROW_PX * row
        parts = [line(x, top, x, frame.end_y, class_="blow", stroke_opacity=".55")]
        parts += [
            element("circle", cx=x, cy=frame.top(node) + LANE_PX - 12, r=2.4, class_="word")
            for node in blow.nodes
            if frame.drawn(node)
        ]
        if row is not None:
            parts.append(text(word_x + 3, top, shortened(blow.what, WORDS_MAX), class_="word halo small"))
        yield group((*parts, title(told)))


def _deaths(frame: _Frame, ends: Sequence[End]) -> Iterator[str]:
    for end in sorted(ends, key=lambda end: (end.node, end.time_us)):
        if frame.drawn(end.node):
            x, y = frame.x(end.time_us), frame.top(end.node) + (LANE_PX - 8) / 2
            told = f"{end.node} {_DEATHS.get(end.how, end.how)} at {clock(end.time_us - frame.start_us)}"
            cross = path(f"M{number(x - 6)} {number(y - 6)} l12 12 m0 -12 l-12 12", class_="cross", fill="none")
            yield group((cross if end.how != "stopped" else rect(x - 5, y - 5, 10, 10, class_="ink"), title(told)))


def _names(frame: _Frame) -> Iterator[str]:
    for name, lane in frame.lanes.items():
        y = frame.lane_top(lane) + (LANE_PX - 8) / 2 + 4
        yield element("circle", cx=12.0, cy=y - 4, r=5.0, class_=sender_class(lane))
        yield text(24, y, shortened(name, 10), title(name), class_="lane")
