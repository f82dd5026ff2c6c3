"""SVG and HTML as text, labels that do not overlap, and the palette.

1. Everything that reaches a document goes through `escaped`, names of nodes included.
2. SVG elements without content close themselves; in HTML only elements that cannot have content do.
3. There are colours for light and for dark screens; paper is always light. Plain classes are used instead of CSS variables, so
   that viewers other than browsers draw the file too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

# --- svg --------------------------------------------------------------------------------------------------------------

_ILLEGAL: Final = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 does not allow in any form, escaped or not."""

_ENTITIES: Final = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"})


def escaped(text: object) -> str:
    return _ILLEGAL.sub("\ufffd", str(text)).translate(_ENTITIES)


def element(tag: str, *content: str, **attributes: object) -> str:
    """One element. `content` is markup already."""
    written = attributes_of(attributes)
    inside = "".join(content)
    return f"<{tag}{written}>{inside}</{tag}>" if inside else f"<{tag}{written}/>"


def attributes_of(attributes: Mapping[str, object]) -> str:
    """Attributes as they stand in a tag: `class_` is written `class`, `stroke_width` `stroke-width`; None is left out."""
    return "".join(
        f' {name.rstrip("_").replace("_", "-")}="{_value(value)}"' for name, value in attributes.items() if value is not None
    )


def _value(value: object) -> str:
    return number(value) if isinstance(value, float) else escaped(value)


def number(value: float) -> str:
    """A coordinate: a tenth of a pixel is enough, and files stay small."""
    return f"{value:.1f}".removesuffix(".0")


def group(children: Iterable[str], **attributes: object) -> str:
    return element("g", *children, **attributes)


def title(text: object) -> str:
    """What a viewer shows when the pointer rests on the parent element."""
    return element("title", escaped(text))


def text(x: float, y: float, words: object, *more: str, **attributes: object) -> str:
    return element("text", escaped(words), *more, x=float(x), y=float(y), **attributes)


def line(x1: float, y1: float, x2: float, y2: float, *content: str, **attributes: object) -> str:
    return element("line", *content, x1=float(x1), y1=float(y1), x2=float(x2), y2=float(y2), **attributes)


def rect(x: float, y: float, width: float, height: float, *content: str, **attributes: object) -> str:
    where = {"x": float(x), "y": float(y), "width": max(0.0, float(width)), "height": float(height)}
    return element("rect", *content, **where, **attributes)


def path(steps: str, *content: str, **attributes: object) -> str:
    return element("path", *content, d=steps, **attributes)


# --- html -------------------------------------------------------------------------------------------------------------

VOID: Final = frozenset({"br", "hr", "meta", "col"})


def tag(name: str, *content: str, **attributes: object) -> str:
    """One element. `content` is markup already; attributes are named as those of SVG (`svg.element`)."""
    opened = f"<{name}{attributes_of(attributes)}>"
    return opened if name in VOID else f"{opened}{''.join(content)}</{name}>"


def words(name: str, text: object, **attributes: object) -> str:
    """One element around words from anywhere."""
    return tag(name, escaped(text), **attributes)


def table_row(cells: Iterable[str]) -> str:
    return tag("tr", *cells)


def table(headings: Iterable[str], rows: Iterable[str], **attributes: object) -> str:
    """A table with a heading row; `rows` are markup, `headings` words. A heading that begins with `#` stands above numbers."""
    heads = [words("th", name.removeprefix("#"), scope="col", class_="n" if name.startswith("#") else None) for name in headings]
    return tag("div", tag("table", tag("thead", table_row(heads)), tag("tbody", *rows), **attributes), class_="scroll")


def word_table(headings: Sequence[str], rows: Iterable[Sequence[str]], **attributes: object) -> str:
    """The same with rows of words. The first column names its row, unless it has numbers."""
    kinds = [{"class_": "n"} if name.startswith("#") else {} for name in headings]
    first = {} if headings[0].startswith("#") else {"scope": "row"}

    def row(values: Sequence[str]) -> str:
        cells = [words("td", value, **kind) for value, kind in zip(values[1:], kinds[1:], strict=True)]
        return table_row([words("th" if first else "td", values[0], **first, **kinds[0]), *cells])

    return table(headings, map(row, rows), **attributes)


def folded(summary: str, *content: str, is_open: bool = False, **attributes: object) -> str:
    """Content behind a summary (markup) that opens by pointer or keyboard."""
    return tag("details", tag("summary", summary), *content, open="" if is_open else None, **attributes)


# --- times ------------------------------------------------------------------------------------------------------------


def clock(time_us: int) -> str:
    """A time as a person writes it: 350 µs, 12.5 ms, 1.25 s."""
    if time_us < 0:
        return f"-{clock(-time_us)}"
    if time_us == 0:
        return "0"
    for unit, scale in (("s", 1_000_000), ("ms", 1_000)):
        if time_us >= scale:
            return f"{time_us / scale:.3f}".rstrip("0").rstrip(".") + f" {unit}"
    return f"{time_us} µs"


# --- labels -----------------------------------------------------------------------------------------------------------

CHARACTER_PX: Final = 6.4
"""A character of the diagram's 11-pixel type, on the wide side: a label estimated too wide is only shortened."""

GAP_PX: Final = 10.0


def width_of(words: str) -> float:
    return len(words) * CHARACTER_PX


def fitting(wordings: Sequence[str], width: float) -> str:
    """The first wording that fits, given from the longest to the shortest; nothing if none does."""
    return next((words for words in wordings if width_of(words) <= width), "")


def shortened(words: str, length: int) -> str:
    return words if len(words) <= length else words[: length - 1].rstrip() + "…"


class LabelRows:
    """Rows of labels: each label goes to the first row in which nothing is in its way, or to none when all are taken."""

    def __init__(self, rows_max: int, right: float) -> None:
        self._free_from = [float("-inf")] * rows_max
        self._right = right
        self.used = 0

    def place(self, x: float, width: float) -> tuple[int, float] | None:
        """(row, x): a label that would run over the right edge is moved left."""
        x = max(0.0, min(x, self._right - width))
        for row, free_from in enumerate(self._free_from):
            if free_from <= x:
                self._free_from[row] = x + width + GAP_PX
                self.used = max(self.used, row + 1)
                return row, x
        return None


# --- palette ----------------------------------------------------------------------------------------------------------

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
.token line{{stroke-width:1.2;stroke-opacity:.55}}
.dag path{{fill:none;stroke-width:1;stroke-opacity:.6;stroke-dasharray:2 2}}
.off{{display:none}}
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
        f".rest,.token line,.dag path{{stroke:{theme.ink}}}",
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
