"""A diagram in a file: the name's end says whether it is a page or a bare drawing."""

from __future__ import annotations

from pathlib import Path

from transis.console.diagram.layers import draw_svg
from transis.console.diagram.page import draw_html
from transis.sim.picture import Picture


def write_diagram(file: Path, picture: Picture) -> None:
    drawn = draw_svg(picture) if file.suffix.lower() == ".svg" else draw_html(picture)
    file.write_text(drawn, encoding="utf-8")
