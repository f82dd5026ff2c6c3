"""Real daemons, real archivers, SIGKILL: what was acknowledged is in the table, nothing is there twice, and absences show.

The bench does it with a million messages; this is the same with few.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bench.archive import Wish, measure

pytestmark = pytest.mark.slow


def test_with_two_archivers_of_which_one_is_always_there_nothing_is_missing(tmp_path: Path) -> None:
    found = asyncio.run(measure(Wish(20_000, 64, 2, 2, 0, "totem"), tmp_path))
    assert (found["once"], found["missing"], found["lives"], found["gaps_told"]) == (20_000, 0, 4, 2)
    assert found["acknowledged_checked"] == 4


def test_the_absences_of_one_archiver_are_told(tmp_path: Path) -> None:
    found = asyncio.run(measure(Wish(20_000, 64, 1, 1, 0, "lansis"), tmp_path))
    assert (found["lives"], found["gaps_told"], found["acknowledged_checked"]) == (2, 1, 2)
    assert found["once"] + found["missing"] == 20_000
    assert found["once"] >= 5_000, "it was there for the last quarter"
