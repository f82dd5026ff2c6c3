"""One life of an archiver on its way to disk: rows gather in memory, portions of them go into journals, journals are sealed.

The event loop calls `add` and `take`. One other thread calls `write`, `sync` and `seal`, which block. A portion passes from the
one to the other, and nobody changes it any more.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from transis.archive.directory import ArchiveDirectory, FileNumber
from transis.archive.journal import Journal, JournalHeader
from transis.archive.rows import Portion, RowBuilder, RowPosition
from transis.client.events import Batch, Configuration, View
from transis.types.views import GroupView

Event = Batch[bytes] | View | Configuration


class ArchiveLimits(NamedTuple):
    """When a journal is sealed, how often it is synced, and how much disk space is left to others."""

    segment_bytes: int = 128 << 20
    segment_s: float = 60.0
    sync_s: float = 1.0
    free_bytes: int = 256 << 20


class Acknowledged(NamedTuple):
    """This row and all rows before it will be in the archive, whatever happens to this process or to the power."""

    life: int
    row: int
    position: RowPosition

    def as_json(self) -> dict[str, Any]:
        ring_seq, ring_rep, seq, index = self.position
        where = {"ring": f"R{ring_seq}@{ring_rep}", "place": [seq, index], "position": str(self.position)}
        return {"life": self.life, "row": self.row} | where


class ArchiverLife:
    """`sealed` lists the journals that are ready to be published. `clock` is monotonic, in seconds."""

    def __init__(
        self,
        archive: ArchiveDirectory,
        cluster: str,
        life: int,
        rows: RowBuilder,
        limits: ArchiveLimits,
        clock: Callable[[], float],
        fdatasync: Callable[[int], None] = os.fdatasync,
    ) -> None:
        self.rows = rows
        self.number = life
        self.sealed: deque[Path] = deque()
        self.acknowledged: Acknowledged | None = None
        self.is_refused = False
        """Whether the disk ended this life."""
        self.lag_s = 0.0
        """How long the oldest row acknowledged by the last sync had waited."""
        self._archive, self._cluster, self._limits, self._clock = archive, cluster, limits, clock
        self._fdatasync = fdatasync
        self._journal: Journal | None = None
        self._opened_at = 0.0
        self._files = 0
        self._written: Acknowledged | None = None
        self._waiting_since: float | None = None
        self._unsynced_since: float | None = None
        self._synced_at = clock()

    # --- in the event loop ------------------------------------------------------------------------------------------

    def add(self, event: Event, now_us: int) -> None:
        if self._waiting_since is None:
            self._waiting_since = self._clock()
        if isinstance(event, Batch):
            self.rows.messages(event, now_us)
        elif isinstance(event, GroupView):
            self.rows.view(event, now_us)
        else:
            self.rows.configuration(event, now_us)

    def take(self) -> tuple[Portion, float]:
        """The rows that came, and since when the first of them has been waiting."""
        since, self._waiting_since = self._waiting_since, None
        return self.rows.take(), self._clock() if since is None else since

    @property
    def last(self) -> RowPosition | None:
        """The position of the last row that is in a journal."""
        return None if self._written is None else self._written.position

    def release(self) -> None:
        """Close the open journal as it is: the next start publishes it."""
        if self._journal is not None:
            self._journal.release()

    # --- in the thread that writes ----------------------------------------------------------------------------------

    def write(self, portion: Portion, since: float) -> None:
        """Append to the journal. Raises OSError if the disk refuses: then the life has ended with the previous row."""
        assert portion.end is not None, "rows have places"
        self._journal = self._journal or self._open()
        self._journal.append(portion.table())
        row = portion.rows + (0 if self._written is None else self._written.row)
        self._written = Acknowledged(self.number, row, portion.end)
        if self._unsynced_since is None:
            self._unsynced_since = since

    def _open(self) -> Journal:
        self._files += 1
        self._opened_at = self._clock()
        header = JournalHeader(self._cluster, self._archive.group, self._archive.archiver, self.number, self._files)
        return Journal(self._archive.journal(FileNumber(self.number, self._files)), header, self._fdatasync)

    @property
    def sync_is_due(self) -> bool:
        """Rows wait to be acknowledged, or the journal is large or old enough to be sealed, even if nothing new came."""
        if self._unsynced_since is not None and self._clock() - self._synced_at >= self._limits.sync_s:
            return True
        return self._journal is not None and self._is_full(self._journal)

    def sync(self) -> None:
        """Acknowledge what was written, and seal a journal that is large or old enough."""
        journal = self._journal
        if journal is None:
            return
        journal.sync()
        self._acknowledge()
        if self._is_full(journal):
            self.seal()

    def _is_full(self, journal: Journal) -> bool:
        return journal.size >= self._limits.segment_bytes or self._clock() - self._opened_at >= self._limits.segment_s

    def _acknowledge(self) -> None:
        self.acknowledged, self._synced_at = self._written, self._clock()
        if self._unsynced_since is not None:
            self.lag_s, self._unsynced_since = self._synced_at - self._unsynced_since, None

    def seal(self) -> None:
        """Close the current journal, if there is one: it is ready to be published."""
        journal, self._journal = self._journal, None
        if journal is not None:
            self.sealed.append(journal.path)
            journal.seal()
            self._acknowledge()

    def give_up(self) -> None:
        """The disk refused. What is whole stays in the journal; it is acknowledged only if the disk still syncs."""
        self.is_refused = True
        with suppress(OSError):
            self.seal()
