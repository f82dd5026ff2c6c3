"""Colours and type, for light and for dark screens; paper is always light.

Plain classes instead of CSS variables, so that viewers other than browsers draw the file too.
"""

from __future__ import annotations

from typing import Final, NamedTuple

FONT: Final = "system-ui,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif"


class Theme(NamedTuple):
    paper: str
    ink: str
    faint: str
    grid: str
    fault: str
    alarm: str
    senders: tuple[str, ...]
    views: tuple[str, ...]


LIGHT: Final = Theme(
    paper="#ffffff",
    ink="#1c2430",
    faint="#5d6878",
    grid="#d5dae1",
    fault="#a3510b",
    alarm="#c8102e",
    senders=("#1f6feb", "#d1430f", "#1a7f37", "#8250df", "#a86200", "#0a7a8a", "#c2185b", "#5b6b00", "#3949ab", "#7b4b2a"),
    views=("#dbe8ff", "#ffe8da", "#dcf3e0", "#ece2ff", "#fff1c9", "#d6f0f3", "#fde0ec", "#e8ebcd"),
)

DARK: Final = Theme(
    paper="#12161c",
    ink="#e4e9f0",
    faint="#9aa6b5",
    grid="#333c48",
    fault="#f0a45a",
    alarm="#ff6b7d",
    senders=("#6cb0ff", "#ff8a5c", "#5fd17a", "#c3a0ff", "#f0b040", "#4fd0dd", "#ff82b0", "#c4d24a", "#9fb0ff", "#d8a27a"),
    views=("#1b2f52", "#47281a", "#1a3b24", "#34285a", "#433611", "#143e45", "#4a2135", "#373c17"),
)

_SHAPES: Final = f"""
text{{font:11px {FONT}}}
.title{{font-size:17px;font-weight:600}}
.small{{font-size:10px}}
.lane{{font-size:14px;font-weight:600}}
.middle{{text-anchor:middle}}
.m line{{fill:none;stroke-opacity:.62}}
.safe line{{stroke-dasharray:5 3}}
.basic line{{stroke-dasharray:1 3}}
.causal line{{stroke-dasharray:9 3}}
.m{{stroke-linecap:round}}
.life{{stroke-width:1.4}}
.rest{{stroke-width:7;stroke-opacity:.45}}
.grid{{stroke-width:1}}
.blow{{stroke-width:1.2;stroke-dasharray:2 3}}
.wide{{stroke-dasharray:7 4}}
.cross{{stroke-width:2.6;stroke-linecap:round}}
.ring{{fill:none;stroke-width:2.4}}
.edge{{stroke-width:1}}
.halo{{paint-order:stroke;stroke-width:3;stroke-linejoin:round}}
"""


def _theme(theme: Theme) -> str:
    rules = [
        f".paper{{fill:{theme.paper}}}",
        f"text,.ink{{fill:{theme.ink}}}",
        f".faint{{fill:{theme.faint}}}",
        f".grid,.edge{{stroke:{theme.grid}}}",
        f".life,.hatching{{stroke:{theme.faint}}}",
        f".rest{{stroke:{theme.ink}}}",
        f".blow{{stroke:{theme.fault}}}",
        f".word{{fill:{theme.fault}}}",
        f".cross,.ring{{stroke:{theme.alarm}}}",
        f".alarm{{fill:{theme.alarm}}}",
        f".halo{{stroke:{theme.paper}}}",
    ]
    rules += [f".c{i}{{stroke:{colour};fill:{colour}}}" for i, colour in enumerate(theme.senders)]
    rules += [f".v{i}{{fill:{colour}}}" for i, colour in enumerate(theme.views)]
    return "\n".join(rules)


def sender_class(lane: int) -> str:
    return f"c{lane % len(LIGHT.senders)}"


def view_class(number: int) -> str:
    return f"v{number % len(LIGHT.views)}"


def style() -> str:
    """The style sheet of the drawing."""
    return f"{_SHAPES}{_theme(LIGHT)}\n@media screen and (prefers-color-scheme:dark){{\n{_theme(DARK)}\n}}\n"
