"""docs/choosing.md measures nothing: every figure of it stands in the page that it was taken from."""

from __future__ import annotations

import re

import pytest

from tests.house.sources import ROOT

DOCS = ROOT / "docs"


def rows(text: str) -> list[str]:
    return re.findall(r"^\|.*\|$", text, re.MULTILINE)


def figures(row: str) -> list[str]:
    """The times and rates in the last column of a row."""
    last = row.rstrip("|").rsplit("|", 1)[-1].strip()
    return re.findall(r"(?<![\w-])\d[\d,]*\.\d+|\d[\d,]*\d(?= ms)|\d{1,3}(?:,\d{3})+", last)


PAGE = (DOCS / "choosing.md").read_text(encoding="utf-8")
CITED = [figure for row in rows(PAGE) for figure in figures(row)]
MEASURED = "\n".join((DOCS / name).read_text(encoding="utf-8") for name in ("engines.md", "benchmarks.md"))


@pytest.mark.parametrize("figure", sorted(set(CITED)))
def test_a_figure_was_measured(figure: str) -> None:
    assert re.search(rf"(?<![\d.,]){re.escape(figure)}(?![\d]|[.,]\d)", MEASURED)


def test_figures_are_seen() -> None:
    assert len(CITED) > 30
    assert figures("| a | 4 nodes, 1 % loss: 0.43 / 2.82 ms, a death: 221 ms, 748,200 messages a second |") == [
        "0.43",
        "2.82",
        "221",
        "748,200",
    ]
