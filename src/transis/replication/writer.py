"""The thread that writes a replica's log, so that a sync holds up nobody: one commit for all that is waiting.

1. Tickets come back in the order in which they went in, each when it is on the disk.
2. A disk that refuses is told once, with what it said, and tried again; meanwhile nothing is lost and nothing comes back.
3. How far the order is final is written for readers with the next commit, or by itself when nothing else is written for a moment.
   Then the write-ahead log is moved into the database, too, so that commits do not have to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Condition, Thread
from typing import Final

from transis.prsl.log import StoreRecord
from transis.replication.schema import TROUBLE, explained
from transis.replication.store import Store

RETRY_S: Final = 1.0
"""How long a disk that refused is left alone."""

QUIET_S: Final = 0.05
"""How long nothing is written before readers are told by a commit of its own: a person does not notice it, and a disk that is
kept busy is not given more to do."""

TICKETS_MAX: Final = 1024
"""Tickets of one commit: it must come to an end while others come in."""

Batch = list[tuple[int, Sequence[StoreRecord]]]


class Writer:
    """`synced` and `refused` are called from the writer's thread: with the tickets that are on disk, and with what the disk said
    (empty when it writes again)."""

    def __init__(self, store: Store, synced: Callable[[list[int]], None], refused: Callable[[str], None]) -> None:
        self._store = store
        self._synced: Final = synced
        self._refused: Final = refused
        self._changed = Condition()
        self._waiting: Batch = []
        self._green = self._shown = 0
        self._is_closing = self._is_resting = False
        self._thread = Thread(target=self._run, name="transis-replica-writer", daemon=True)
        self._thread.start()

    def write(self, ticket: int, records: Sequence[StoreRecord]) -> None:
        with self._changed:
            self._waiting.append((ticket, records))
            self._changed.notify()

    def show(self, green: int) -> None:
        """The order is final up to this place: readers see it soon."""
        with self._changed:
            self._green = max(self._green, green)
            if self._is_resting:
                self._changed.notify()

    def close(self) -> None:
        """Write what is waiting, if the disk takes it, and end."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        self._thread.join()
        self._store.close()

    def _run(self) -> None:
        trouble = ""
        while True:
            batch = self._next()
            if not batch and self._is_done():
                return
            said = self._commit(batch)
            if said != trouble:
                trouble = said
                self._refused(said)
            if said and not self._rest():
                return

    def _is_done(self) -> bool:
        with self._changed:
            return self._is_closing and not self._waiting and self._green <= self._shown

    def _next(self) -> Batch:
        """What is waiting. Nothing if there is only something to show, or if this is the end."""
        while True:
            with self._changed:
                if self._changed.wait_for(self._has_work, QUIET_S):
                    return self._waiting[:TICKETS_MAX]
                if self._green > self._shown:
                    return []
            self._tidy()
            with self._changed:
                self._is_resting = True
                self._changed.wait_for(lambda: self._has_work() or self._green > self._shown)
                self._is_resting = False

    def _has_work(self) -> bool:
        return bool(self._waiting) or self._is_closing

    def _tidy(self) -> None:
        """A disk that refuses this says so at the next commit, too."""
        try:
            self._store.tidy()
        except TROUBLE:
            return

    def _commit(self, batch: Batch) -> str:
        """Empty if all of it is on the disk, else what the disk said, and none of it is."""
        with self._changed:
            green = self._green
        try:
            self._store.commit((record for _, records in batch for record in records), green)
        except TROUBLE as error:
            return f"{self._store.path}: {explained(error)}"
        with self._changed:
            self._shown = green
            del self._waiting[: len(batch)]
        if batch:
            self._synced([ticket for ticket, _ in batch])
        return ""

    def _rest(self) -> bool:
        """Leave the disk alone for a while; False if there is no time left."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closing, RETRY_S)
            return not self._is_closing
