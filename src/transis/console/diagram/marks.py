"""The smaller signs: faults with their words, births and deaths, pauses, proofs of a violation, and the legend."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from transis.console.diagram.layout import Label, Layout
from transis.drawing.svg import element, group, line, number, path, rect, text, title
from transis.drawing.times import clock
from transis.sim.picture import LifeLine

DEATHS: Final = {"failed": "crashed", "stopped": "stopped by itself", "unknown": "trace ends"}


def fault_marks(layout: Layout) -> Iterator[str]:
    for label in layout.labels:
        words = f"{clock(label.strike.time_us)}: {label.strike.text}"
        yield group((*_fault_lines(layout, label), *_fault_words(layout, label), title(words)), class_="f")


def _fault_lines(layout: Layout, label: Label) -> Iterator[str]:
    """A fault of the network crosses all lanes; one of a node ends at its lane."""
    lanes = label.strike.lanes
    whole = not lanes or label.strike.kind == "partition"
    end = layout.lanes_end if whole else layout.line_y(lanes[-1])
    top = layout.axis_y - 4 if label.row is None else layout.label_y(label.row) + 2
    yield line(label.x, top, label.x, end, class_="blow wide" if whole else "blow", stroke_opacity=".8" if whole else ".5")
    for lane in () if whole else lanes:
        yield element("circle", cx=label.x, cy=layout.line_y(lane), r=3.0, class_="word")


def _fault_words(layout: Layout, label: Label) -> Iterator[str]:
    if label.row is None:
        yield path(f"M{number(label.x - 3)} {number(layout.axis_y - 7)} h6 l-3 5 z", class_="word")
    else:
        yield text(label.word_x, layout.label_y(label.row), label.words, class_="word halo")


def life_marks(layout: Layout) -> Iterator[str]:
    for life in layout.picture.lives:
        y, start, end = layout.line_y(life.lane), layout.at(life.start_us), layout.at(life.end_us)
        yield line(start, y, end, y, class_="life")
        yield from _birth(layout, life, start, y)
        if life.how:
            yield group(
                (_death(life.how, end, y), title(f"{life.node} {DEATHS.get(life.how, life.how)} at {clock(life.end_us)}"))
            )
    for rest in layout.picture.rests:
        y, start, end = layout.line_y(rest.lane), layout.at(rest.start_us), layout.at(rest.end_us)
        words = f"paused from {clock(rest.start_us)} to {clock(rest.end_us)}"
        yield line(start, y, end, y, title(words), class_="rest")
    for lane, time_us, why in layout.picture.refusals:
        x, y = layout.at(time_us), layout.line_y(lane)
        yield path(f"M{number(x)} {number(y + 4)} l-3 6 h6 z", title(f"refused at {clock(time_us)}: {why}"), class_="faint")


def _birth(layout: Layout, life: LifeLine, x: float, y: float) -> Iterator[str]:
    words = f"{life.node} starts at {clock(life.start_us)}"
    yield path(f"M{number(x)} {number(y - 5)} l8 5 l-8 5 z", title(words), class_="ink")
    if life.node.incarnation > 1 and layout.detailed:
        yield text(x + 11, y + 13, f"life {life.node.incarnation}", class_="small halo", pointer_events="none")


def _death(how: str, x: float, y: float) -> str:
    if how == "failed":
        return path(f"M{number(x - 6)} {number(y - 6)} l12 12 m0 -12 l-12 12", class_="cross", fill="none")
    return rect(x - 5, y - 5, 10, 10, class_="ink")


def proof_marks(layout: Layout) -> Iterator[str]:
    for proof in layout.picture.proofs:
        yield element("circle", title(proof.text), cx=layout.x(proof.moment), cy=layout.line_y(proof.lane), r=9.0, class_="ring")


def legend(x: float, y: float, broken: bool) -> Iterator[str]:
    """One row of signs, each with its meaning."""
    for sign, width, words in (*_LEGEND, _BROKEN) if broken else _LEGEND:
        yield element("g", sign, transform=f"translate({number(x)} {number(y)})")
        yield text(x + width + 5, y + 4, words, class_="faint")
        x += width + 5 + len(words) * 5.9 + 18


_LEGEND: Final = (
    (rect(0, -6, 22, 12, class_="edge v0"), 22.0, "regular view"),
    (rect(0, -6, 22, 12, class_="edge v0") + rect(0, -6, 22, 12, fill="url(#hatch)"), 22.0, "transitional"),
    (element("g", line(0, 0, 26, 0, stroke_width="1.4"), class_="m ordered c0"), 26.0, "ordered message, sender's colour"),
    (element("g", line(0, 0, 26, 0, stroke_width="1.4"), class_="m safe c0"), 26.0, "safe"),
    (element("g", line(0, 0, 26, 0, stroke_width="1.4"), class_="m basic c0"), 26.0, "basic"),
    (element("g", line(0, 0, 26, 0, stroke_width="1.4"), class_="m causal c0"), 26.0, "causal"),
    (element("circle", cx=3, cy=0, r=3, class_="c0"), 6.0, "delivered"),
    (path("M0 -5 l8 5 l-8 5 z", class_="ink"), 8.0, "start"),
    (path("M0 -5 l10 10 m0 -10 l-10 10", class_="cross", fill="none"), 10.0, "crash"),
    (rect(0, -5, 10, 10, class_="ink"), 10.0, "stop"),
    (line(0, 0, 18, 0, class_="rest"), 18.0, "paused"),
    (line(0, 0, 18, 0, class_="blow wide"), 18.0, "fault"),
    (path("M4 -5 l-4 10 M9 -5 l-4 10", class_="life", fill="none"), 9.0, "silence, cut short"),
)

_BROKEN: Final = (element("circle", cx=6, cy=0, r=6, class_="ring"), 12.0, "part of a violation")
