"""Placing words without overlaps: rows that fill from the first, and the longest wording that fits a width."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

CHARACTER_PX: Final = 6.4
"""A character of the diagram's 11-pixel type, on the wide side: a label that is thought too wide is only shorter."""

GAP_PX: Final = 10.0


def width_of(words: str) -> float:
    return len(words) * CHARACTER_PX


def fitting(wordings: Sequence[str], width: float) -> str:
    """The first wording that fits, given from the longest to the shortest; nothing if none does."""
    return next((words for words in wordings if width_of(words) <= width), "")


def shortened(words: str, length: int) -> str:
    return words if len(words) <= length else words[: length - 1].rstrip() + "…"


class Rows:
    """Hands out the row of a label at x: the first in which nothing is in its way, or None when all are taken."""

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
