"""A replica's directory: its identity, and the log in SQLite (schema.py). One process at a time writes it; anybody may read.

1. What is waiting goes into one transaction and one sync (WAL, synchronous=FULL), so a commit costs the same for one or many.
2. A new life is durable before the replica says anything. A directory has a random identity, made with it: an empty one that
   takes the place of a lost one is another directory, which cannot be mistaken for it (R18).
3. A damaged row is named by a sentence. Content can come again from others; a damaged order cannot be guessed (prsl).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from transis.prsl.core import Config
from transis.prsl.log import Stored, StoreRecord
from transis.prsl.machine import first_base
from transis.prsl.record import DIRECTORY_SIZE
from transis.replication import schema, wal
from transis.replication.history import DiskHistory, load
from transis.replication.schema import LOCK, LOG
from transis.replication.tables import Tables
from transis.trace.files import locked, make_directory, sync
from transis.types.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator

WAL_PAGES: Final = 16_384
"""Pages of the write-ahead log (64 MiB) after which a commit moves it into the database; an idle writer does it before."""


class Store:
    """An open directory. `opened` is what a replica finds in it when it starts."""

    def __init__(self, directory: Path, group: str, name: str, founders: Sequence[str], identity: bytes) -> None:
        """`identity` are random bytes for a directory that is new; one that exists keeps its own."""
        self.path = directory
        self._held = ExitStack()
        try:
            self._hold()
            self._database = self._open(group, name, founders, identity)
            self.directory: bytes = schema.value_of(self._database, "directory")
            self.life = self._next_life()
            self._history = DiskHistory(directory / LOG)
            self._held.callback(self._history.close)
            self.opened = load(self._database, self._history)
            self._tables: Tables | None = Tables(self._database)
        except schema.TROUBLE as error:
            self._held.close()
            raise StoreError(f"{directory}: {schema.explained(error)}") from error
        except BaseException:
            self._held.close()
            raise

    def _hold(self) -> None:
        make_directory(self.path)
        try:
            self._held.enter_context(locked(self.path / LOCK))
        except BlockingIOError as error:
            raise StoreError(f"{self.path} is in use by another process: stop that one, or choose another directory") from error

    def _open(self, group: str, name: str, founders: Sequence[str], identity: bytes) -> sqlite3.Connection:
        path = self.path / LOG
        is_new = not path.exists()
        if missing := wal.missing_beside(path):
            raise schema.Damaged(missing)
        database = schema.connect(path, "mode=rwc")
        self._held.callback(database.close)
        database.execute("pragma journal_mode = wal")
        database.execute("pragma synchronous = full")
        database.execute(f"pragma wal_autocheckpoint = {WAL_PAGES}")
        _, whole, _ = database.execute("pragma wal_checkpoint(passive)").fetchone()
        if damaged := wal.damaged_in(path, whole):
            raise schema.Damaged(damaged)
        self._held.callback(wal.mark_closed, self.path)
        if is_new or schema_is_missing(database):
            assert len(identity) == DIRECTORY_SIZE
            _found(database, group, name, founders, identity)
            sync(self.path)
        self._require(database, group, name)
        return database

    def _require(self, database: sqlite3.Connection, group: str, name: str) -> None:
        version = schema.value_of(database, "version")
        if version != schema.VERSION:
            raise StoreError(f"{self.path} has format {version}, this release reads {schema.VERSION}: install a newer one")
        for what, wanted in (("group", group), ("replica", name)):
            found = schema.value_of(database, what)
            if found != wanted:
                raise StoreError(f"{self.path} belongs to the {what} {found!r}, not {wanted!r}: choose another directory")

    def _next_life(self) -> int:
        life = int(schema.value_of(self._database, "life")) + 1
        self._database.execute(schema.SAVE_META, ("life", life))
        wal.mark_open(self.path)
        return life

    # --- writing ------------------------------------------------------------------------------------------------------

    def commit(self, records: Iterable[StoreRecord], green: int = 0) -> None:
        """All of it is on the disk when this returns; if it raises, none is. Readers then see the order up to `green`."""
        tables = self._tables or Tables(self._database)
        self._tables = None
        with transaction(self._database):
            tables.write(records, green)
        self._tables = tables

    def tidy(self) -> None:
        """Delete some of what was trimmed, and move the write-ahead log into the database, as far as readers let it."""
        if self._tables is not None and self._tables.has_rubbish:
            with transaction(self._database):
                self._tables.sweep()
        self._database.execute("pragma wal_checkpoint(passive)")

    def close(self) -> None:
        self._held.close()


def schema_is_missing(database: sqlite3.Connection) -> bool:
    found = database.execute("select count(*) from sqlite_master where name = 'meta'").fetchone()
    return not found[0]


def _found(database: sqlite3.Connection, group: str, name: str, founders: Sequence[str], identity: bytes) -> None:
    """Everything of a new directory in one transaction: it is there whole or not at all."""
    stored = Stored(first_base(Config(name, identity, tuple(founders))))
    with transaction(database):
        for statement in schema.SCHEMA.split(";\n"):
            if statement.strip():
                database.execute(statement)
        rows = [("version", schema.VERSION), ("group", group), ("replica", name), ("directory", identity), ("life", 0)]
        rows += [("green", 0), ("trimmed", 0), ("base", schema.sealed(stored.base)), ("marks", schema.sealed(stored.marks))]
        rows += [("snapshot", schema.sealed(stored.snapshot)), ("checkpoint", schema.sealed(stored.checkpoint))]
        database.executemany(schema.SAVE_META, rows)


@contextmanager
def transaction(database: sqlite3.Connection) -> Iterator[None]:
    database.execute("begin immediate")
    try:
        yield
        database.execute("commit")
    except BaseException:
        if database.in_transaction:
            database.execute("rollback")
        raise
