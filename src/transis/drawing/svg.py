"""Elements of SVG as text. Everything that reaches a document goes through `escaped`, names of nodes included."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

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
