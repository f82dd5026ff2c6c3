"""Charts that a reader may zoom into: latency densities, throughput, the ring's notes. Data for plotly.js, drawn by the page.

1. plotly.js reads a little markup in every name, so names are escaped here and again as JSON (`embedded`).
2. A chart has no colours of its own: the page gives it those of the screen or of paper.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import log2
from typing import Any, Final, NamedTuple, TypeVar

from transis.audit.draw.svg import escaped
from transis.audit.report.content import GroupLatencyRow, IncidentRow, LatencyRow, PointRow, RingRow, ThroughputRow

SERIES_MAX: Final = 16
"""Lines of one chart; those with the most messages are drawn."""
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


def latency_chart(rows: Sequence[LatencyRow]) -> Chart | None:
    """One density per service, over a logarithmic axis: the area under each is 1 if an octave has width 1."""
    series = {service: _density(bars) for service, bars in _grouped(rows, lambda row: row.service).items()}
    return _chart(
        "Latency from origination to delivery, by service",
        "The higher, the more deliveries took so long: share of deliveries per doubling of the latency.",
        {service: points for service, points in series.items() if points[0]},
        {"xaxis": {"type": "log", "title": {"text": "latency, ms"}}, "yaxis": {"title": {"text": "share per octave"}}},
        {"fill": "tozeroy", "hovertemplate": "%{x:.3~g} ms: %{y:.3f}<extra>%{fullData.name}</extra>"},
    )


def _density(bars: Iterable[LatencyRow]) -> Points:
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


def throughput_chart(rows: Sequence[ThroughputRow], incidents: Sequence[IncidentRow], start_us: int) -> Chart | None:
    series = {
        node: _over_time(((row.start_us, row.messages * 1e6 / max(1, row.width_us)) for row in found), start_us)
        for node, found in _grouped(rows, lambda row: row.node).items()
    }
    layout = _time_layout("messages a second", incidents, start_us)
    note = "What each node delivered. Dotted lines are changes of view."
    return _chart("Throughput over time, by node", note, series, layout, _STEPS)


def ring_charts(rows: Sequence[RingRow], incidents: Sequence[IncidentRow], start_us: int) -> list[Chart]:
    """One chart for each of the most frequent kinds of notes; kinds that never occurred get none."""
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


def group_chart(rows: Sequence[GroupLatencyRow], incidents: Sequence[IncidentRow], start_us: int) -> Chart | None:
    series = {
        group: _over_time(((row.start_us, row.p99_us / 1000) for row in found), start_us)
        for group, found in _grouped(rows, lambda row: row.group).items()
    }
    layout = _time_layout("p99 latency, ms", incidents, start_us)
    note = "Of a hundred deliveries in a group ninety-nine were at least as fast."
    return _chart("p99 latency over time, by group", note, series, layout, _STEPS)


def figures_charts(rows: Sequence[PointRow]) -> list[Chart]:
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


def _scattered(rows: Sequence[PointRow], place: Callable[[PointRow], tuple[float, float]]) -> dict[str, Points]:
    """The points of each service from left to right; nothing if all have the same x."""
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


def _time_layout(what: str, incidents: Sequence[IncidentRow], start_us: int) -> dict[str, Any]:
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
