"""Reading a replica's log: what it needs when it is opened, and what is older than its memory, on demand.

Opening looks only at what is behind the newest checkpoint, so it takes as long for a long log as for a short one. Older rows are
checked when they are read.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

from transis.prsl.actions import Action, ActionId
from transis.prsl.log import Marks, Opened, Snapshot, Unreadable
from transis.prsl.prefix import Base, Numbers, next_digest
from transis.prsl.votes import Voting
from transis.replication import schema
from transis.replication.schema import Damaged, Row
from transis.types.limits import ACTION_BYTES_MAX, RETRANSMITTED_MAX

ACTION: Final = ", ".join(schema.ACTION_COLUMNS)
_PLACE: Final = ", ".join(schema.PLACE_COLUMNS)
_BOTH: Final = ", ".join([f"p.{column}" for column in schema.PLACE_COLUMNS] + [f"a.{column}" for column in schema.ACTION_COLUMNS])
IN_ORDER: Final = f"select {_BOTH} from places p left join actions a using (creator, lane, number)"


def placed(row: Row) -> tuple[int, int, Action, bytes]:
    """From a row of IN_ORDER: place, offset, action, digest."""
    many = len(schema.PLACE_COLUMNS)
    place, offset, action_id, digest = schema.place_of(row[:many])
    if row[many] is None:
        raise Damaged(f"the content of action {action_id} at place {place} is missing", place, action_id)
    try:
        return place, offset, schema.action_of(row[many:]), digest
    except Damaged as error:
        raise Damaged(f"{error}, at place {place}", place, action_id) from error


class DiskHistory:
    """What is green, from the disk. A connection of its own, which waits for nobody who writes."""

    def __init__(self, path: Path) -> None:
        self._database = schema.connect(path, "mode=ro")

    def actions(self, start: int, end: int) -> list[Action]:
        try:
            return self._batch(start, min(end, start + RETRANSMITTED_MAX))
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise Unreadable(f"place {start} of the order cannot be read ({error})") from error

    def _batch(self, start: int, end: int) -> list[Action]:
        found: list[Action] = []
        query = f"{IN_ORDER} where p.place >= ? and p.place < ? order by p.place"
        with closing(self._database.execute(query, (start, end))) as rows:
            try:
                found.extend(_as_many_as_fit(start, rows))
            except Unreadable:
                if not found:
                    raise
        if not found:
            raise Damaged(f"place {start} of the order is missing")
        return found

    def digest_at(self, place: int) -> bytes:
        found = self._one(f"select {_PLACE} from places where place = ?", (place - 1,))
        if found is None:
            raise Damaged(f"place {place - 1} of the order is missing")
        return schema.place_of(found)[3]

    def base_before(self, place: int, offset: int) -> Base | None:
        query = "select place, content from bases where place <= ? and offset <= ? order by place desc limit 1"
        found = self._one(query, (place, offset))
        return schema.unsealed(f"the base at place {found[0]}", found[1], Base) if found is not None else None

    def reach(self) -> tuple[int, int]:
        """From which place to which it goes."""
        base, checkpoint = schema.kept(self._database, "base", Base), schema.kept(self._database, "checkpoint", Snapshot)
        return base.place, checkpoint.base.place

    def _one(self, query: str, values: tuple[int, ...]) -> Row | None:
        try:
            found: Row | None = self._database.execute(query, values).fetchone()
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise Unreadable(f"the log cannot be read ({error})") from error
        return found

    def close(self) -> None:
        self._database.close()


def _as_many_as_fit(place: int, rows: Iterable[Row]) -> Iterator[Action]:
    size = 0
    for row in rows:
        found, _, action, _ = placed(row)
        size += action.size
        if found != place or (size > action.size and size > ACTION_BYTES_MAX):
            return
        yield action
        place += 1


# --- opening ------------------------------------------------------------------------------------------------------------


def load(database: sqlite3.Connection, history: DiskHistory) -> Opened:
    base = schema.kept(database, "base", Base)
    checkpoint = schema.kept(database, "checkpoint", Snapshot)
    marks = schema.kept(database, "marks", Marks)
    content = {action.id: action for action in _content_behind(database, Numbers(checkpoint.base.numbers))}
    order = _order_behind(database, checkpoint.base, content)
    end = checkpoint.base.place + len(order)
    if end < max(marks.green, schema.number_of(database, "green")):
        raise Damaged(f"the order ends at place {end}, and {max(marks.green, schema.number_of(database, 'green'))} were green")
    snapshot = schema.kept(database, "snapshot", Snapshot)
    voting = schema.kept(database, "voting", Voting) if schema.value_of(database, "voting") is not None else None
    return Opened(base, checkpoint, order, content, marks, snapshot, voting, history)


def _content_behind(database: sqlite3.Connection, below: Numbers) -> Iterator[Action]:
    for creator in creators(database):
        query = f"select {ACTION} from actions where creator = ? and lane = 0 and number > ?"
        for row in database.execute(query, (creator, below.highest.get(creator, 0))):
            yield schema.action_of(row)
        for row in database.execute(f"select {ACTION} from actions where creator = ? and lane = 1", (creator,)):
            action = schema.action_of(row)
            if action.id not in below:
                yield action


def creators(database: sqlite3.Connection) -> Iterator[int]:
    """Creators of what is here: one step in the index for each."""
    creator: int | None = -1
    while True:
        creator = database.execute("select min(creator) from actions where creator > ?", (creator,)).fetchone()[0]
        if creator is None:
            return
        yield creator


def _order_behind(database: sqlite3.Connection, floor: Base, content: dict[ActionId, Action]) -> list[ActionId]:
    order: list[ActionId] = []
    offset, digest = floor.offset, floor.digest
    for row in database.execute(f"select {_PLACE} from places where place >= ? order by place", (floor.place,)):
        place, told, action, behind = schema.place_of(row)
        if place != floor.place + len(order) or action not in content:
            raise Damaged(f"place {floor.place + len(order)} of the order is missing, or its content is")
        digest = next_digest(digest, action)
        if (told, behind) != (offset, digest):
            raise Damaged(f"place {place} of the order does not continue what is before it")
        offset += content[action].count
        order.append(action)
    return order
