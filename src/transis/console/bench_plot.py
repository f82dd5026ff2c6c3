"""The figures of `transis bench engines` in one drawing: a panel for a question, a bar for an engine in a circumstance."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from transis.drawing.palette import sender_class, style
from transis.drawing.svg import element, group, line, rect, text, title

PANEL_W: Final = 430.0
PANEL_H: Final = 230.0
COLUMNS: Final = 2
HEAD: Final = 62.0
MARGIN: Final = 24.0
BASE: Final = 180.0
"""Where the bars of a panel stand, from its top."""
TALLEST: Final = 120.0

Values = Mapping[str, Any]


class Panel(NamedTuple):
    """`along` is what differs between its groups of bars; the rest of the circumstances are fixed."""

    heading: str
    along: str
    figure: str
    fixed: Values


PANELS: Final = (
    Panel("messages a second, all send as fast as they may", "nodes", "msgs_per_s", {"senders": "all", "load": "full"}),
    Panel("messages a second, one sends as fast as it may", "nodes", "msgs_per_s", {"senders": "one", "load": "full"}),
    Panel("ms to agreed delivery (median), one sends a little", "nodes", "p50_ms", {"senders": "one", "load": "low"}),
    Panel("ms to agreed delivery (median), all send a little", "nodes", "p50_ms", {"senders": "all", "load": "low"}),
    Panel(
        "ms to safe delivery (median), all send a little", "nodes", "p50_ms", {"senders": "all", "load": "low", "service": "safe"}
    ),
    Panel(
        "messages a second under loss, all of {fewest} nodes send",
        "loss_percent",
        "msgs_per_s",
        {"senders": "all", "load": "full"},
    ),
    Panel(
        "ms to agreed delivery under loss (99 %), all of {fewest} nodes send a little",
        "loss_percent",
        "p99_ms",
        {"senders": "all", "load": "low"},
    ),
)


def draw_engines(figures: Values) -> str:
    """A whole SVG document. Loads that could not be measured have no bar."""
    rounds: Sequence[Values] = figures["rounds"]
    names = [name for name in rounds[0] if isinstance(rounds[0][name], Mapping)]
    rows = -(-len(PANELS) // COLUMNS)
    width, height = COLUMNS * PANEL_W + 2 * MARGIN, HEAD + rows * PANEL_H + MARGIN
    drawn = [_panel(panel, index, rounds, names) for index, panel in enumerate(PANELS)]
    return element(
        "svg",
        element("style", style()),
        rect(0, 0, width, height, class_="paper"),
        *_head(figures, names),
        *drawn,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {width:g} {height:g}",
    )


def _head(figures: Values, names: Sequence[str]) -> Iterator[str]:
    machine = figures["machine"]
    words = f"{figures['size']} bytes, {figures['seconds']:g} s each, {figures['network']}, "
    words += f"{machine['cores']} cores, {machine['system']}"
    yield text(MARGIN, 26, "The engines side by side", class_="title")
    yield text(MARGIN, 46, words, class_="faint")
    for index, name in enumerate(names):
        x = MARGIN + 500 + 110 * index
        yield rect(x, 36, 11, 11, class_=sender_class(index)) + text(x + 17, 46, name)


def _panel(panel: Panel, index: int, rounds: Sequence[Values], names: Sequence[str]) -> str:
    left, top = MARGIN + (index % COLUMNS) * PANEL_W, HEAD + (index // COLUMNS) * PANEL_H
    found = {one[panel.along]: one for one in rounds if _is_asked(panel, one, rounds)}
    return group(
        [
            text(0, 30, panel.heading.format(fewest=_fewest(rounds)), class_="lane"),
            *_bars(panel, found, names),
            line(0, BASE, PANEL_W - 40, BASE, class_="grid"),
        ],
        transform=f"translate({left:g} {top:g})",
    )


def _is_asked(panel: Panel, one: Values, rounds: Sequence[Values]) -> bool:
    """Along the number of nodes without loss; along loss with the fewest nodes."""
    apart = {"loss_percent": 0.0} if panel.along == "nodes" else {"nodes": _fewest(rounds)}
    return all(one[name] == value for name, value in ({"service": "agreed"} | dict(panel.fixed) | apart).items())


def _fewest(rounds: Sequence[Values]) -> int:
    fewest: int = min(one["nodes"] for one in rounds)
    return fewest


def _bars(panel: Panel, found: Mapping[float, Values], names: Sequence[str]) -> Iterator[str]:
    highest = max((one[name].get(panel.figure, 0) for one in found.values() for name in names), default=0) or 1
    room = (PANEL_W - 40) / max(1, len(found))
    bar = min(44.0, (room - 16) / len(names))
    for at, (circumstance, one) in enumerate(sorted(found.items())):
        unit = "nodes" if panel.along == "nodes" else "% loss"
        yield text(at * room + len(names) * bar / 2, BASE + 18, f"{circumstance:g} {unit}", class_="middle")
        for index, name in enumerate(names):
            value = one[name].get(panel.figure)
            if value is not None:
                yield _bar(at * room + index * bar, bar - 3, TALLEST * value / highest, value, index, name)


def _bar(x: float, width: float, height: float, value: float, index: int, name: str) -> str:
    words = short(value)
    bar = rect(x, BASE - height, width, height, title(f"{name}: {value:g}"), class_=sender_class(index))
    return bar + text(x + width / 2, BASE - height - 5, words, class_="small middle")


def short(value: float) -> str:
    if value >= 1_000_000:
        return f"{value / 1_000_000:.2f}M"
    if value >= 1000:
        return f"{value / 1000:.0f}k"
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
