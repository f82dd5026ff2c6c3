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

from transis.prsl.actions import Action, ActionId
from transis.prsl.core import Config
from transis.prsl.log import Kept, Marks, Placed, Stored, StoreRecord, Taken, Trimmed
from transis.prsl.machine import first_base
from transis.prsl.prefix import Base, Numbers
from transis.prsl.record import DIRECTORY_SIZE
from transis.replication import schema
from transis.trace.files import locked, make_directory, sync
from transis.types.errors import StoreError, plainly

if TYPE_CHECKING:
    from collections.abc import Iterator

LOG: Final = "log.db"
LOCK: Final = "lock"
WAL_PAGES: Final = 16_384
"""Pages of the write-ahead log (64 MiB) after which a commit moves it into the database; an idle writer does it before."""


class Store:
    """An open directory. `stored` is what it held when it was opened."""

    def __init__(self, directory: Path, group: str, name: str, founders: Sequence[str], identity: bytes) -> None:
        """`identity` are random bytes for a directory that is new; one that exists keeps its own."""
        self.path = directory
        self._held = ExitStack()
        try:
            self._hold()
            self._database = self._open(group, name, founders, identity)
            self.directory: bytes = schema.value_of(self._database, "directory")
            self.life = self._next_life()
            self.stored = self._load()
        except (sqlite3.Error, schema.Damaged, OSError) as error:
            self._held.close()
            raise StoreError(f"{directory}: {_sentence(error)}") from error
        except BaseException:
            self._held.close()
            raise
        self._base = self.stored.base
        self._end = self.stored.end

    def _hold(self) -> None:
        make_directory(self.path)
        try:
            self._held.enter_context(locked(self.path / LOCK))
        except BlockingIOError as error:
            raise StoreError(f"{self.path} is in use by another process: stop that one, or choose another directory") from error

    def _open(self, group: str, name: str, founders: Sequence[str], identity: bytes) -> sqlite3.Connection:
        path = self.path / LOG
        is_new = not path.exists()
        database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._held.callback(database.close)
        database.execute("pragma journal_mode = wal")
        database.execute("pragma synchronous = full")
        database.execute(f"pragma wal_autocheckpoint = {WAL_PAGES}")
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
        return life

    def _load(self) -> Stored:
        database = self._database
        stored = Stored(schema.unsealed_base("base", schema.value_of(database, "base")))
        stored.marks = schema.unsealed_marks("marks", schema.value_of(database, "marks"))
        stored.snapshot = schema.unsealed_snapshot("snapshot", schema.value_of(database, "snapshot"))
        for row in database.execute(f"select {schema.ACTION_COLUMNS} from actions"):
            action = schema.action_of(row)
            stored.content[action.id] = action
        for row in database.execute(f"select {schema.PLACE_COLUMNS} from places order by place"):
            place, action_id = schema.place_of(row)
            if place != stored.end or action_id not in stored.content:
                raise schema.Damaged(f"place {stored.end} of the order is missing, or its content is")
            stored.order.append(action_id)
        if stored.end < stored.marks.green:
            raise schema.Damaged(f"the order ends at place {stored.end}, and {stored.marks.green} were green")
        return stored

    # --- writing ------------------------------------------------------------------------------------------------------

    def commit(self, records: Iterable[StoreRecord]) -> None:
        """All of it is on the disk when this returns; if it raises, none is."""
        before = self._base, self._end
        try:
            with transaction(self._database):
                for record in records:
                    self._write(record)
        except BaseException:
            self._base, self._end = before
            raise

    def _write(self, record: StoreRecord) -> None:
        database = self._database
        match record:
            case Kept(action):
                database.execute(schema.SAVE_ACTION, schema.action_row(action))
            case Placed(start, ids):
                self._place(start, ids)
            case Trimmed(base):
                self._trim(base)
            case Taken(snapshot):
                database.execute(schema.SAVE_META, schema.sealed("snapshot", snapshot))
            case Marks():
                database.executemany(schema.SAVE_META, schema.meta_rows(record))

    def _place(self, start: int, ids: Sequence[ActionId]) -> None:
        offset = self._offset(start)
        self._database.execute("delete from places where place >= ?", (start,))
        rows = []
        for place, action in enumerate(ids, start):
            rows.append(schema.place_row(place, offset, action))
            offset += self._count(action)
        self._database.executemany(schema.SAVE_PLACE, rows)
        self._end = start + len(ids)

    def _offset(self, place: int) -> int:
        """Messages before a place, which is in the order or at its end."""
        if place == self._base.place:
            return self._base.offset
        found = self._database.execute(
            "select offset, creator, lane, number from places where place = ?", (place - 1,)
        ).fetchone()
        return int(found[0]) + self._count(found[1:])

    def _count(self, action: Sequence[int]) -> int:
        found = self._database.execute("select count from actions where (creator, lane, number) = (?, ?, ?)", tuple(action))
        return int(found.fetchone()[0])

    def _trim(self, base: Base) -> None:
        """What the base has is dropped, also what had no place here."""
        database, numbers = self._database, Numbers(base.numbers)
        database.execute("delete from places where place < ?", (base.place,))
        for creator, highest in numbers.highest.items():
            database.execute("delete from actions where creator = ? and lane = 0 and number <= ?", (creator, highest))
        database.executemany("delete from actions where creator = ? and lane = 1 and number = ?", sorted(numbers.changes))
        database.execute(schema.SAVE_META, schema.sealed("base", base))
        self._base = base

    def checkpoint(self) -> None:
        """Move the write-ahead log into the database, as far as readers let it."""
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
        rows += [schema.sealed("base", stored.base), schema.sealed("snapshot", stored.snapshot), *schema.meta_rows(stored.marks)]
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


def _sentence(error: Exception) -> str:
    if isinstance(error, schema.Damaged):
        return f"{error}. Keep the directory aside, and have this replica replaced by a new one"
    if isinstance(error, sqlite3.DatabaseError):
        return f"{LOG} cannot be read ({error}). Keep the directory aside, and have this replica replaced by a new one"
    return plainly(error)


def runs(directory: Path, start: int, end: int, place: int = -1) -> list[tuple[int, Action]]:
    """Green actions with messages from `start` up to `end`, by offsets, each with its first offset: for who may only read.
    One short transaction; call it again for more. A replica knows better than its disk what is green: all before `place`."""
    wanted = f"select p.offset, {', '.join('a.' + column for column in schema.ACTION_COLUMNS.split(', '))}"
    query = (
        f"{wanted} from places p join actions a using (creator, lane, number) where p.offset + a.count > ? and p.offset < ?"
        " and a.count > 0 and p.place < max(?, (select value from meta where key = 'green')) order by p.place"
    )
    found: list[tuple[int, Action]] = []
    with ExitStack() as open_while_read:
        database = sqlite3.connect(f"file:{directory / LOG}?mode=ro", uri=True)
        open_while_read.callback(database.close)
        for offset, *row in database.execute(query, (start, end, place)):
            found.append((offset, schema.action_of(tuple(row))))
    return found
