"""Elements of HTML as text: unlike those of SVG they are never closed by themselves, except those that cannot hold anything."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from transis.drawing.svg import attributes_of, escaped

VOID: Final = frozenset({"br", "hr", "meta", "col"})


def tag(name: str, *content: str, **attributes: object) -> str:
    """One element. `content` is markup already; attributes are named as those of SVG (`svg.element`)."""
    opened = f"<{name}{attributes_of(attributes)}>"
    return opened if name in VOID else f"{opened}{''.join(content)}</{name}>"


def words(name: str, text: object, **attributes: object) -> str:
    """One element around words from anywhere."""
    return tag(name, escaped(text), **attributes)


def row(cells: Iterable[str]) -> str:
    return tag("tr", *cells)


def table(headings: Iterable[str], rows: Iterable[str], **attributes: object) -> str:
    """A table with a heading row; `rows` are markup, `headings` words. One that begins with `#` is above numbers."""
    heads = [words("th", name.removeprefix("#"), scope="col", class_="n" if name.startswith("#") else None) for name in headings]
    return tag("div", tag("table", tag("thead", row(heads)), tag("tbody", *rows), **attributes), class_="scroll")


def folded(summary: str, *content: str, is_open: bool = False, **attributes: object) -> str:
    """Content behind a summary (markup) that opens by pointer or keyboard."""
    return tag("details", tag("summary", summary), *content, open="" if is_open else None, **attributes)
