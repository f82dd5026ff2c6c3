"""Reading a replica's directory from outside, while it is written or not: by anybody who may read its files.

    end(DIR)   first_kept(DIR)   runs(DIR, start, end)   arrow(DIR, start, end)   changes(DIR)   who(DIR)

1. Only what is final is shown: the same at every replica, for all time. Offsets count messages; `start` is the first that is
   wanted, `end` the first that is not.
2. Each step is a short read transaction of its own, so a reader holds up neither the writer nor the return of space on its disk.
   What is trimmed between two steps is missed with a sentence, never silently.
3. A directory whose writer has ended has no write-ahead log, and SQLite would want to make one. It is read as it is then, and
   looked at again if a writer came meanwhile.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from transis.prsl.actions import Action
from transis.prsl.log import Marks, Snapshot
from transis.prsl.prefix import Base, Numbers
from transis.prsl.record import Record, What, change_of, fold
from transis.replication import schema
from transis.replication.history import IN_ORDER, creators, placed
from transis.replication.schema import LOCK, LOG, TROUBLE, Damaged, explained
from transis.replication.wal import wal_of
from transis.types.errors import StoreError

STEP_ROWS: Final = 256
STEP_BYTES: Final = 4 << 20
"""Actions, and bytes of data, of one step at most (and one action at least)."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Run:
    """Messages that one replica posted together: `data` has them one behind the other. `posted` is microseconds since 1970 by the
    poster's clock, 0 if it did not say; `key` a client key, by which a retry is known."""

    offset: int
    creator: int
    number: int
    lengths: tuple[int, ...]
    data: bytes
    posted: int
    key: bytes

    @property
    def count(self) -> int:
        return len(self.lengths)

    def messages(self) -> Iterator[bytes]:
        start = 0
        for length in self.lengths:
            yield self.data[start : start + length]
            start += length


class Changed(NamedTuple):
    """A change of the replicas: it stands before the message with this offset. `name` came or left; a REPLACE has both in
    `names`, as they are behind it. A void one changed nothing, as another came first."""

    offset: int
    place: int
    what: What
    version: int
    number: int
    is_void: bool
    names: tuple[str, ...]


class Who(NamedTuple):
    """Whose directory it is, and how far it is. Places count actions, offsets messages."""

    group: str
    replica: str
    directory: bytes
    life: int
    marks: Marks
    base: Base
    green: int
    end: int
    """How many actions have a place here: green and yellow."""
    offset: int
    red: int
    """How many have no place."""
    record: Record
    """The replicas behind the last green action."""

    def name(self, number: int) -> str:
        entry = self.record.entry(number)
        return entry.name if entry is not None else f"replica {number}"


# --- doors --------------------------------------------------------------------------------------------------------------


def end(directory: Path) -> int:
    """The offset behind the last message that is final."""
    return look(directory, _end)


def first_kept(directory: Path) -> int:
    """The offset of the first message that was not trimmed."""
    return look(directory, lambda database: schema.kept(database, "base", Base).offset)


def runs(directory: Path, start: int, end: int) -> Iterator[list[Run]]:
    """Everything final from `start` up to `end`, batch by batch. Runs are whole: the first may begin before `start`, and the last
    end behind `end`. What has no effect is left out."""
    while start < end:
        batch = actions(directory, start, end)
        if not batch:
            return
        yield [_run(offset, action) for offset, action in batch]
        start = batch[-1][0] + batch[-1][1].count


def actions(directory: Path, start: int, end: int, place: int = 0) -> list[tuple[int, Action]]:
    """One step of it, as actions with their first offsets; empty if there are no more. The replica itself knows better than its
    disk what is final: all before `place`."""
    return look(directory, partial(_step, start=start, end=end, final=place))


def arrow(directory: Path, start: int, end: int) -> Iterator[Any]:
    """The same as Arrow's record batches, if pyarrow is there: a row for each run."""
    import pyarrow

    schema_ = pyarrow.schema(
        [
            ("offset", pyarrow.int64()),
            ("count", pyarrow.int32()),
            ("creator", pyarrow.int64()),
            ("number", pyarrow.int64()),
            ("lengths", pyarrow.list_(pyarrow.int32())),
            ("data", pyarrow.binary()),
            ("posted", pyarrow.timestamp("us", "UTC")),
            ("key", pyarrow.binary()),
        ]
    )
    for batch in runs(directory, start, end):
        columns: list[list[Any]] = [
            [run.offset for run in batch],
            [run.count for run in batch],
            [run.creator for run in batch],
            [run.number for run in batch],
            [run.lengths for run in batch],
            [run.data for run in batch],
            [run.posted or None for run in batch],
            [run.key or None for run in batch],
        ]
        arrays = [pyarrow.array(values, type=field.type) for values, field in zip(columns, schema_, strict=True)]
        yield pyarrow.RecordBatch.from_arrays(arrays, schema=schema_)


def changes(directory: Path) -> list[Changed]:
    """Every change of the replicas that is final and was not trimmed."""
    return look(directory, lambda database: _fold(database)[0])


def record(directory: Path) -> Record:
    """The replicas behind the last final action."""
    return look(directory, lambda database: _fold(database)[1])


def is_running(directory: Path) -> bool:
    """Whether a process holds the directory's lock, by what the kernel tells: trying to take it could keep a replica from
    starting."""
    try:
        lock, locks = (directory / LOCK).stat(), Path("/proc/locks").read_text(encoding="ascii")
    except OSError:
        return False
    name = f"{os.major(lock.st_dev):02x}:{os.minor(lock.st_dev):02x}:{lock.st_ino}"
    return any(name in line.split() for line in locks.splitlines())


def who(directory: Path) -> Who:
    return look(directory, _who)


# --- steps --------------------------------------------------------------------------------------------------------------


def _end(database: sqlite3.Connection) -> int:
    base, green = schema.kept(database, "base", Base), schema.number_of(database, "green")
    if green <= base.place:
        return base.offset
    found = database.execute(f"{IN_ORDER} where p.place = ?", (green - 1,)).fetchone()
    if found is None:
        raise Damaged(f"place {green - 1} of the order is missing")
    _, offset, action, _ = placed(found)
    return offset + action.count


def _step(database: sqlite3.Connection, start: int, end: int, final: int) -> list[tuple[int, Action]]:
    base = schema.kept(database, "base", Base)
    if start < base.offset:
        raise StoreError(f"messages before offset {base.offset} were trimmed: read from there")
    first = "select max(offset) from places where offset <= ?"
    query = (
        f"{IN_ORDER} where p.offset >= ({first}) and p.offset < ? and p.place >= ? and p.place < ? and not exists"
        " (select 1 from ineffective i where i.place = p.place) order by p.offset, p.place"
    )
    found: list[tuple[int, Action]] = []
    size = 0
    with closing(database.execute(query, (start, end, base.place, max(final, schema.number_of(database, "green"))))) as rows:
        for row in rows:
            _, offset, action, _ = placed(row)
            if offset + action.count <= start or not action.count:
                continue
            size += action.size
            if found and size > STEP_BYTES:
                break
            found.append((offset, action))
            if len(found) == STEP_ROWS:
                break
    return found


def _run(offset: int, action: Action) -> Run:
    return Run(offset, action.id.creator, action.id.number, action.lengths, action.data, action.posted, action.key)


def _fold(database: sqlite3.Connection) -> tuple[list[Changed], Record]:
    base, green = schema.kept(database, "base", Base), schema.number_of(database, "green")
    found, record = [], base.record
    query = f"{IN_ORDER} where p.lane = 1 and p.place >= ? and p.place < ? order by p.place"
    for row in database.execute(query, (base.place, green)):
        place, offset, action, _ = placed(row)
        before, record = record, fold(record, action)
        change = change_of(action)
        if change is not None:
            names = tuple(record.entries[number - 1].name for number in record.members)
            found.append(Changed(offset, place, change.what, record.version, change.number, record is before, names))
    return found, record


def _who(database: sqlite3.Connection) -> Who:
    last = database.execute("select max(place) from places").fetchone()[0]
    base = schema.kept(database, "base", Base)
    return Who(
        schema.value_of(database, "group"),
        schema.value_of(database, "replica"),
        schema.value_of(database, "directory"),
        schema.number_of(database, "life"),
        schema.kept(database, "marks", Marks),
        base,
        schema.number_of(database, "green"),
        base.place if last is None else max(base.place, last + 1),
        _end(database),
        _reds(database),
        _fold(database)[1],
    )


def _reds(database: sqlite3.Connection) -> int:
    """What is behind the checkpoint, but for what has a place there."""
    floor = schema.kept(database, "checkpoint", Snapshot).base
    below, known = Numbers(floor.numbers), 0
    for creator in creators(database):
        values = (creator, below.highest.get(creator, 0))
        known += database.execute(
            "select count(*) from actions where creator = ? and lane = 0 and number > ?", values
        ).fetchone()[0]
        changes = database.execute("select number from actions where creator = ? and lane = 1", (creator,))
        known += sum((creator, number) not in below.changes for (number,) in changes)
    placed_behind: int = database.execute("select count(*) from places where place >= ?", (floor.place,)).fetchone()[0]
    return known - placed_behind


# --- opening ------------------------------------------------------------------------------------------------------------


def look(directory: Path, see: Callable[[sqlite3.Connection], T]) -> T:
    """One short read transaction. Every trouble is a sentence."""
    path = _log_in(directory)
    try:
        if not wal_of(path).exists():
            found = _look_at(path, see, "&immutable=1")
            if not wal_of(path).exists():
                return found
        return _look_at(path, see, "")
    except TROUBLE as error:
        raise StoreError(f"{directory}: {explained(error)}") from error


def _look_at(path: Path, see: Callable[[sqlite3.Connection], T], how: str) -> T:
    with closing(schema.connect(path, f"mode=ro{how}")) as database:
        database.execute("begin")
        _require_version(path, database)
        return see(database)


def _log_in(directory: Path) -> Path:
    path = directory / LOG
    try:
        if path.is_file() and os.access(path, os.R_OK):  # Not by opening it: closing it would give SQLite's locks away.
            return path
        if not directory.exists():
            raise StoreError(f"{directory}: no such directory")
        if not path.exists():
            raise StoreError(f"{directory} is not a replica's directory: it has no {LOG}")
    except PermissionError:
        pass
    raise StoreError(f"{directory}: this user may not read it: ask its owner for the right to do so")


def _require_version(path: Path, database: sqlite3.Connection) -> None:
    if not database.execute("select count(*) from sqlite_master where name = 'meta'").fetchone()[0]:
        raise StoreError(f"{path.parent} is not a replica's directory yet: its {LOG} is empty")
    version = schema.value_of(database, "version")
    if version != schema.VERSION:
        raise StoreError(f"{path.parent} has format {version}, this release reads {schema.VERSION}: install a newer one")
