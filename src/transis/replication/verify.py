"""Looking through a replica's directory, every record of it, while it is written or not; nothing is changed.

1. The order is walked step by step, each a short read transaction: checksums, digests from place to place, offsets, content.
   Final places never change, so steps fit together whatever is written between them. What is not final is one step at the end.
2. What is found says what to do: content before the checkpoint comes again from others by itself, all else needs a replacement.
3. The end of a write-ahead log that was cut off cannot be told from writes that a power cut took before they were synced.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from transis.prsl.actions import ActionId, Lane
from transis.prsl.log import Marks, Snapshot
from transis.prsl.prefix import Base, Numbers, next_digest
from transis.replication import schema
from transis.replication.history import ACTION, IN_ORDER, creators
from transis.replication.reader import look
from transis.replication.schema import LOG, REPLACE, Damaged, Row
from transis.replication.wal import missing_beside
from transis.types.errors import StoreError

STEP: Final = 1000
"""Places of one step."""
PAGES_SHOWN: Final = 10
"""What SQLite says of its own pages at most."""

FETCHED: Final = "The replica gets it from another one when it runs, if one has it"


class Problem(NamedTuple):
    what: str
    remedy: str = REPLACE

    def __str__(self) -> str:
        return f"{self.what}. {self.remedy}"


class Verified(NamedTuple):
    """What was looked at: actions that are final, their messages and bytes, and actions that are not final."""

    actions: int
    messages: int
    size: int
    others: int


class Position(NamedTuple):
    """Where the walk is. What the last place did not say is nothing to compare the next one with."""

    place: int
    offset: int | None
    digest: bytes | None


class Verification:
    """One look through a directory: `problems` as they are found, then `verified`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.verified = Verified(0, 0, 0, 0)
        self._numbers: Numbers | None = None
        self._at = Position(0, 0, b"")
        self._floor = 0

    def problems(self) -> Iterator[Problem]:
        """StoreError if it cannot be looked at, at all."""
        look(self.directory, lambda database: None)
        if missing := missing_beside(self.directory / LOG):
            yield Problem(missing)
        try:
            yield from look(self.directory, self._meta)
            green = look(self.directory, lambda database: schema.number_of(database, "green"))
            while self._at.place < green:
                yield from look(self.directory, partial(self._step, green, self._at, self.verified))
            yield from look(self.directory, partial(self._rest, self._at, self.verified))
        except StoreError as error:
            yield Problem(str(error).partition(f". {REPLACE}")[0])

    # --- meta ---------------------------------------------------------------------------------------------------------

    def _meta(self, database: sqlite3.Connection) -> list[Problem]:
        said = [row[0] for row in database.execute(f"pragma quick_check({PAGES_SHOWN})")]
        found = [Problem(f"{LOG}: {one}") for one in said if one != "ok"]
        for key, type_ in (("base", Base), ("checkpoint", Snapshot), ("snapshot", Snapshot), ("marks", Marks)):
            try:
                schema.kept(database, key, type_)
            except Damaged as error:
                found.append(Problem(str(error)))
        if not found:
            self._begin(schema.kept(database, "base", Base))
            self._floor = schema.kept(database, "checkpoint", Snapshot).base.place
        return found

    def _begin(self, base: Base) -> None:
        self._at = Position(base.place, base.offset, base.digest)
        self._numbers = Numbers(base.numbers)

    # --- the order ----------------------------------------------------------------------------------------------------

    def _step(self, end: int, at: Position, verified: Verified, database: sqlite3.Connection) -> list[Problem]:
        """From here on: a step may be looked at twice, if a writer comes meanwhile."""
        self._at, self.verified = at, verified
        base = schema.kept(database, "base", Base)
        if self._numbers is None or at.place < base.place:
            self._begin(base)
        last = min(self._at.place + STEP, end)
        rows = database.execute(f"{IN_ORDER} where p.place >= ? and p.place < ? order by p.place", (self._at.place, last))
        return [*self._walk(rows), *self._missing(last)]

    def _walk(self, rows: Iterable[Row]) -> Iterator[Problem]:
        many = len(schema.PLACE_COLUMNS)
        for row in rows:
            yield from self._missing(row[0])
            try:
                place, offset, action, digest = schema.place_of(row[:many])
            except Damaged as error:
                yield Problem(str(error))
                self._at = Position(self._at.place + 1, None, None)
                continue
            yield from self._continues(place, offset, action, digest)
            problem, count, size = self._content(place, action, row[many:])
            if problem is not None:
                yield problem
            self._count(count or 0, size)
            self._at = Position(place + 1, None if count is None else offset + count, digest)

    def _missing(self, place: int) -> Iterator[Problem]:
        first = self._at.place
        if first < place:
            which = f"place {first} of the order is" if place == first + 1 else f"places {first} to {place - 1} of the order are"
            yield Problem(f"{which} missing")
            self._at = Position(place, None, None)

    def _continues(self, place: int, offset: int, action: ActionId, digest: bytes) -> Iterator[Problem]:
        before = self._at
        expected = None if before.digest is None else next_digest(before.digest, action)
        if expected not in (None, digest) or before.offset not in (None, offset):
            yield Problem(f"place {place} of the order does not continue what is before it")
        assert self._numbers is not None
        self._numbers.add(action)

    def _content(self, place: int, action: ActionId, row: Row) -> tuple[Problem | None, int | None, int]:
        remedy = FETCHED if place < self._floor else REPLACE
        if row[0] is None:
            return Problem(f"the content of action {action} at place {place} is missing", remedy), None, 0
        try:
            found = schema.action_of(row)
        except Damaged as error:
            return Problem(f"{error}, at place {place}", remedy), None, 0
        return None, found.count, len(found.data)

    def _count(self, messages: int, size: int) -> None:
        before = self.verified
        self.verified = before._replace(actions=before.actions + 1, messages=before.messages + messages, size=before.size + size)

    # --- what is not final, and checkpoints -----------------------------------------------------------------------------

    def _rest(self, at: Position, verified: Verified, database: sqlite3.Connection) -> list[Problem]:
        if self._numbers is None:
            return []
        self._at = at
        below = Numbers(self._numbers.layout())
        rows = database.execute(f"{IN_ORDER} where p.place >= ? order by p.place", (at.place,))
        found = [*self._walk(rows), *self._bases(database)]
        others = 0
        for row in _content_behind(database, below):
            others += 1
            found += _damaged_content(row, self._numbers)
        self.verified = verified._replace(others=others)
        return found

    def _bases(self, database: sqlite3.Connection) -> Iterator[Problem]:
        first = schema.kept(database, "base", Base).place
        for place, content in database.execute("select place, content from bases order by place"):
            try:
                base = schema.unsealed(f"the base at place {place}", content, Base)
            except Damaged as error:
                yield Problem(str(error))
                continue
            told = database.execute("select digest from places where place = ?", (place - 1,)).fetchone()
            if place > first and told is not None and told[0] != base.digest:
                yield Problem(f"the base at place {place} is not that of the order")


def _content_behind(database: sqlite3.Connection, below: Numbers) -> Iterator[Row]:
    for creator in creators(database):
        highest = below.highest.get(creator, 0)
        yield from database.execute(
            f"select {ACTION} from actions where creator = ? and lane = 0 and number > ?", (creator, highest)
        )
        for row in database.execute(f"select {ACTION} from actions where creator = ? and lane = 1", (creator,)):
            if (creator, row[2]) not in below.changes:
                yield row


def _damaged_content(row: Row, placed: Numbers) -> list[Problem]:
    """What has a place was looked at with it."""
    action = ActionId(row[0], Lane(row[1]), row[2])
    if action in placed:
        return []
    try:
        schema.action_of(row)
    except Damaged as error:
        return [Problem(f"{error}, which has no place yet")]
    return []
