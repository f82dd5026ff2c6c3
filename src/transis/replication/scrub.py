"""Reading slowly through all that is green and no longer in memory: damage is found before somebody needs what it hit.

A disk may rot for years without being asked. A piece is read every half second, half a megabyte each second at most, again and
again from the beginning.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

from transis.prsl.log import Unreadable
from transis.replication.history import DiskHistory
from transis.replication.schema import LOG

PAUSE_S: Final = 0.5
"""Between two pieces."""


class Scrub:
    """One step after the other, in any thread, but one at a time."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / LOG
        self._place = 0

    def step(self) -> Unreadable | None:
        """Read the next piece: what is damaged at its beginning, if anything is."""
        try:
            with closing(DiskHistory(self._path)) as history:
                self._read(history)
        except Unreadable as damage:
            self._place += 1
            return damage
        except sqlite3.Error:
            return None  # The writer meets what the disk refuses, too, and says so.
        return None

    def _read(self, history: DiskHistory) -> None:
        first, end = history.reach()
        self._place = max(first, self._place)
        if self._place < end:
            self._place += len(history.actions(self._place, end))
        else:
            self._place = first
