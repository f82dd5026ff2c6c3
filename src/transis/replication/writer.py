"""The thread that writes a replica's log, so that a sync holds up nobody: one commit for all that is waiting.

1. Tickets come back in the order in which they went in, each when it is on the disk.
2. A disk that refuses is told once, with what it said, and tried again; meanwhile nothing is lost and nothing comes back.
3. When nothing is waiting the write-ahead log is moved into the database, so that commits do not have to.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from threading import Condition, Thread
from typing import Final

from transis.prsl.log import StoreRecord
from transis.replication.store import Store

RETRY_S: Final = 1.0
"""How long a disk that refused is left alone."""

TICKETS_MAX: Final = 1024
"""Tickets of one commit: it must come to an end while others come in."""


class Writer:
    """`synced` and `refused` are called from the writer's thread: with the tickets that are on disk, and with what the disk said
    (empty when it writes again)."""

    def __init__(self, store: Store, synced: Callable[[list[int]], None], refused: Callable[[str], None]) -> None:
        self._store = store
        self._synced: Final = synced
        self._refused: Final = refused
        self._changed = Condition()
        self._waiting: list[tuple[int, Sequence[StoreRecord]]] = []
        self._is_closing = False
        self._thread = Thread(target=self._run, name="transis-replica-writer", daemon=True)
        self._thread.start()

    def write(self, ticket: int, records: Sequence[StoreRecord]) -> None:
        with self._changed:
            self._waiting.append((ticket, records))
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
            if not batch:
                return
            said = self._commit(batch)
            if said != trouble:
                trouble = said
                self._refused(said)
            if said and not self._rest():
                return

    def _next(self) -> list[tuple[int, Sequence[StoreRecord]]]:
        """What is waiting, empty at the end."""
        with self._changed:
            is_idle = not self._waiting
        if is_idle:
            self._store.checkpoint()
        with self._changed:
            while not self._waiting and not self._is_closing:
                self._changed.wait()
            return self._waiting[:TICKETS_MAX]

    def _commit(self, batch: list[tuple[int, Sequence[StoreRecord]]]) -> str:
        """Empty if all of it is on the disk, else what the disk said, and none of it is."""
        try:
            self._store.commit(record for _, records in batch for record in records)
        except (sqlite3.Error, OSError) as error:
            return f"{self._store.path}: {error}"
        with self._changed:
            del self._waiting[: len(batch)]
        self._synced([ticket for ticket, _ in batch])
        return ""

    def _rest(self) -> bool:
        """Leave the disk alone for a while; False if there is no time left."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closing, RETRY_S)
            return not self._is_closing
