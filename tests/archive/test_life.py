"""One life on its way to disk: what it acknowledges is safe, and journals end when they are large or old."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.archive.events import NODES, PROCESSES, START, batch, configuration, group_view
from transis.archive.directory import ArchiveDirectory
from transis.archive.life import ArchiveLimits, ArchiverLife
from transis.archive.rows import RowBuilder
from transis.types import ids
from transis.types.ids import Service


class Begun:
    """A life whose clock stands still unless it is told; its first rows are written."""

    def __init__(self, directory: Path, limits: ArchiveLimits, fdatasync: Callable[[int], None] = os.fdatasync) -> None:
        self.now = 0.0
        place = ArchiveDirectory(directory, "g", "ann")
        place.open("blue", NODES[0])
        self._rows = RowBuilder("g", "ann", 1, "totem", "evs")
        self._messages = 0
        self.life = ArchiverLife(place, "blue", 1, self._rows, limits, lambda: self.now, fdatasync)
        self._rows.begin("started", 0)
        self._rows.configuration(configuration(START, START, None), 0)
        self._rows.view(group_view(START, ids.Place(1, 0)), 0)
        self.life.write(*self.life.take())

    def write_more(self) -> None:
        self._messages += 1
        place = [(1 + self._messages, 0, 1)]
        self._rows.messages(batch(START, PROCESSES[0], Service.AGREED, self._messages, place), 0)
        self.life.write(*self.life.take())


def test_after_a_sync_that_failed_nothing_more_is_acknowledged(tmp_path: Path) -> None:
    """The kernel tells once that it lost what was written; a second sync would succeed."""
    answers = iter([None, None, OSError(5, "Input/output error")])

    def fdatasync(_: int) -> None:
        if answer := next(answers, None):
            raise answer

    begun = Begun(tmp_path, ArchiveLimits(), fdatasync)
    begun.life.sync()
    safe = begun.life.acknowledged
    assert safe is not None
    begun.write_more()
    with pytest.raises(OSError, match="Input/output error"):
        begun.life.sync()
    begun.life.give_up()
    assert begun.life.acknowledged == safe
    assert len(begun.life.sealed) == 1, "what can be read of it is published all the same"


def test_a_journal_that_is_large_enough_is_sealed_however_long_the_next_sync_is_away(tmp_path: Path) -> None:
    begun = Begun(tmp_path, ArchiveLimits(segment_bytes=20_000, sync_s=3600))
    written = 0
    while not begun.life.sync_is_due:
        begun.write_more()
        written += 1
        assert written < 100
    assert begun.now == 0.0
    begun.life.sync()
    [journal] = begun.life.sealed
    assert journal.stat().st_size >= 20_000
    assert begun.life.acknowledged is not None
    assert begun.life.acknowledged.row == 3 + written
