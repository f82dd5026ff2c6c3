"""The views of a run, node by node over time, with what was done to the nodes and how they ended."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from transis.drawing.labels import Rows, fitting, shortened, width_of
from transis.drawing.palette import sender_class, view_class
from transis.drawing.svg import element, group, line, number, path, rect, text, title
from transis.drawing.times import clock
from transis.pipeline.report.content import End, Fault, Stay

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
