"""Records into tables: what one transaction of a replica's log does.

1. Neighbours go in together: content as one statement, places as one. Of the marks only the last count.
2. What is trimmed vanishes from view at once, and from the tables little by little, with the commits that follow: deleting a
   million rows at once would keep the disk for seconds.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Final

from transis.prsl.actions import Action, ActionId
from transis.prsl.log import Checked, Ineffective, Kept, Marks, Placed, StoreRecord, Taken, Trimmed
from transis.prsl.outputs import Effect
from transis.prsl.prefix import Base, Numbers, next_digest
from transis.prsl.votes import Voting
from transis.replication import schema
from transis.replication.schema import Row

SWEPT_MAX: Final = 1000
"""Rows of each kind that one commit deletes."""

COUNTS_MAX: Final = 10_000
"""Actions whose number of messages is remembered between their coming and their getting a place."""


class Tables:
    """Where the order on disk begins and ends. After a transaction that failed they are made again, from what is on disk."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        self._base = schema.kept(database, "base", Base)
        last = database.execute("select max(place) from places").fetchone()[0]
        self._end: int = self._base.place if last is None else max(self._base.place, last + 1)
        self._green = schema.number_of(database, "green")
        self._counts: dict[ActionId, int] = {}
        self._behind = self._look_behind(self._end)
        """Offset and digest at the end of the order."""
        self._actions: list[Row] = []
        self._places: list[Row] = []
        self.has_rubbish = True
        """Something may be left of what was trimmed."""

    def write(self, records: Iterable[StoreRecord], green: int) -> None:
        for record in records:
            self._write(record)
        self._flush()
        self._show(green)
        if self.has_rubbish:
            self.sweep()

    def _write(self, record: StoreRecord) -> None:
        match record:
            case Kept(action):
                self._keep(action)
            case Placed(start, ids):
                self._place(start, ids)
            case Trimmed(base):
                self._trim(base)
            case Taken(snapshot):
                self._save("snapshot", schema.sealed(snapshot))
            case Checked(checkpoint):
                base = checkpoint.base
                self._save("checkpoint", schema.sealed(checkpoint))
                self._database.execute(schema.SAVE_BASE, (base.place, base.offset, schema.sealed(base)))
            case Ineffective(place, effect):
                self._database.execute(schema.SAVE_INEFFECTIVE, (place, Effect(effect).name.lower().replace("_", " ")))
            case Marks():
                self._save("marks", schema.sealed(record))
            case Voting():
                self._save("voting", schema.sealed(record))

    def _save(self, key: str, value: object) -> None:
        self._database.execute(schema.SAVE_META, (key, value))

    def _show(self, green: int) -> None:
        """Readers see the order up to here. It never goes back."""
        if green > self._green:
            self._green = green
            self._save("green", green)

    def _flush(self) -> None:
        self._database.executemany(schema.SAVE_ACTION, self._actions)
        self._database.executemany(schema.SAVE_PLACE, self._places)
        self._actions.clear()
        self._places.clear()

    # --- content and order --------------------------------------------------------------------------------------------

    def _keep(self, action: Action) -> None:
        self._actions.append(schema.action_row(action))
        if len(self._counts) > COUNTS_MAX:
            self._flush()
            self._counts.clear()
        self._counts[action.id] = action.count

    def _place(self, start: int, ids: Sequence[ActionId]) -> None:
        if start != self._end:
            self._flush()
            self._database.execute("delete from places where place >= ?", (start,))
            self._behind = self._look_behind(start)
        offset, digest = self._behind
        for place, action in enumerate(ids, start):
            digest = next_digest(digest, action)
            self._places.append(schema.place_row(place, offset, action, digest))
            offset += self._count(action)
        self._end, self._behind = start + len(ids), (offset, digest)

    def _look_behind(self, place: int) -> tuple[int, bytes]:
        """Offset and digest at a place, which is in the order or at its end."""
        if place == self._base.place:
            return self._base.offset, self._base.digest
        query = f"select {', '.join(schema.PLACE_COLUMNS)} from places where place = ?"
        _, offset, action, digest = schema.place_of(self._database.execute(query, (place - 1,)).fetchone())
        return offset + self._count(action), digest

    def _count(self, action: ActionId) -> int:
        known = self._counts.pop(action, None)
        if known is not None:
            return known
        found = self._database.execute("select count from actions where (creator, lane, number) = (?, ?, ?)", action)
        return int(found.fetchone()[0])

    # --- trimming -----------------------------------------------------------------------------------------------------

    def _trim(self, base: Base) -> None:
        """Also what had no place here. Beyond the end of the order it is a snapshot of another replica, and nothing is left."""
        self._flush()
        database = self._database
        if base.place > self._end:
            self._end, self._behind = base.place, (base.offset, base.digest)
        self._base, self.has_rubbish = base, True
        database.executemany("delete from actions where creator = ? and lane = 1 and number = ?", base.numbers.changes)
        database.execute("delete from bases where place <= ?", (base.place,))
        database.execute("delete from ineffective where place < ?", (base.place,))
        self._save("base", schema.sealed(base))
        self._save("trimmed", base.place)
        self._show(base.place)

    def sweep(self) -> None:
        """Delete some of what the base has."""
        database, numbers = self._database, Numbers(self._base.numbers)
        deleted = database.execute(
            "delete from places where place in (select place from places where place < ? order by place limit ?)",
            (self._base.place, SWEPT_MAX),
        ).rowcount
        for creator, highest in numbers.highest.items():
            some = "select rowid from actions where creator = ? and lane = 0 and number <= ? limit ?"
            deleted += database.execute(f"delete from actions where rowid in ({some})", (creator, highest, SWEPT_MAX)).rowcount
        self.has_rubbish = deleted > 0
