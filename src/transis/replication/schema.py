"""What a replica's log looks like on disk: one SQLite database that a person, `sqlite3` and Spark can read while it is written.

1. A row of `actions` is a whole action: writing one row a message would cost several times as much. The view `messages` cuts
   them. `pieces` has the start and the length of each message in `data`, so that cutting looks at nothing else.
2. `places` is the order as far as it is known here; below `green` (in `meta`) it is final, and only that is shown as messages.
3. Each row has a checksum over all its fields. A damaged one is named, and never used.
"""

from __future__ import annotations

import json
import sqlite3
from typing import Any, Final
from zlib import crc32

import msgspec

from transis.prsl.actions import Action, ActionId, Kind, Lane
from transis.prsl.log import Marks, Snapshot
from transis.prsl.prefix import Base

VERSION: Final = 1

SCHEMA: Final = """
create table meta(key text primary key, value) without rowid;
create table actions(
    creator integer not null, lane integer not null, number integer not null, kind integer not null, count integer not null,
    lts integer not null, deps text not null, pieces text not null, data blob not null,
    key blob not null, at integer not null, posted integer not null, crc integer not null,
    primary key(creator, lane, number));
create table places(
    place integer primary key, offset integer not null,
    creator integer not null, lane integer not null, number integer not null, crc integer not null);
create index places_by_offset on places(offset);
create view messages as
    select p.offset + m.key as offset, a.creator as creator, a.number as number,
           substr(a.data, 1 + json_extract(m.value, '$[0]'), json_extract(m.value, '$[1]')) as data, a.posted as posted
    from places p join actions a using (creator, lane, number), json_each(a.pieces) m
    where p.lane = 0 and p.place < (select value from meta where key = 'green')
    order by p.place, m.key;
"""

ACTION_COLUMNS: Final = "creator, lane, number, kind, count, lts, deps, pieces, data, key, at, posted, crc"
PLACE_COLUMNS: Final = "place, offset, creator, lane, number, crc"
SAVE_ACTION: Final = f"insert or replace into actions({ACTION_COLUMNS}) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
SAVE_PLACE: Final = f"insert into places({PLACE_COLUMNS}) values (?, ?, ?, ?, ?, ?)"
SAVE_META: Final = "insert or replace into meta(key, value) values (?, ?)"

Row = tuple[Any, ...]


class Damaged(Exception):
    """A row is not what was written. The text says which one."""


# --- rows ---------------------------------------------------------------------------------------------------------------


def checksum(row: Row) -> int:
    """Over every field, with its kind and length, so that nothing can move from one to the next."""
    return crc32(msgspec.msgpack.encode(row))


def action_row(action: Action) -> Row:
    creator, lane, number = action.id
    pieces, start = [], 0
    for length in action.lengths:
        pieces.append((start, length))
        start += length
    head = (creator, int(lane), number, int(action.kind), action.count, action.lts)
    row = (*head, json.dumps(action.deps), json.dumps(pieces), action.data, action.key, action.at, action.posted)
    return (*row, checksum(row))


def action_of(row: Row) -> Action:
    *fields, crc = row
    if checksum(tuple(fields)) != crc:
        raise Damaged(f"the content of action {row[0]}:{row[2]} is damaged")
    creator, lane, number, kind, _, lts, deps, pieces, data, key, at, posted = fields
    lengths = tuple(length for _, length in json.loads(pieces))
    pairs = tuple((other, highest) for other, highest in json.loads(deps))
    return Action(ActionId(creator, Lane(lane), number), Kind(kind), lts, pairs, lengths, data, key, at, posted)


def place_row(place: int, offset: int, action: ActionId) -> Row:
    row = (place, offset, action.creator, int(action.lane), action.number)
    return (*row, checksum(row))


def place_of(row: Row) -> tuple[int, ActionId]:
    *fields, crc = row
    if checksum(tuple(fields)) != crc:
        raise Damaged(f"place {row[0]} of the order is damaged")
    place, _, creator, lane, number = fields
    return place, ActionId(creator, Lane(lane), number)


# --- what is kept by a name ---------------------------------------------------------------------------------------------


def meta_rows(marks: Marks) -> list[Row]:
    """`green` stands alone, for the view; the rest is one value with a checksum, which has it too."""
    return [("green", marks.green), sealed("marks", marks)]


def sealed(key: str, value: object) -> Row:
    content = msgspec.msgpack.encode(value)
    return (key, crc32(content).to_bytes(4, "big") + content)


def unsealed_base(key: str, content: bytes) -> Base:
    return msgspec.msgpack.decode(_opened(key, content), type=Base)


def unsealed_marks(key: str, content: bytes) -> Marks:
    return msgspec.msgpack.decode(_opened(key, content), type=Marks)


def unsealed_snapshot(key: str, content: bytes) -> Snapshot:
    return msgspec.msgpack.decode(_opened(key, content), type=Snapshot)


def _opened(key: str, content: object) -> bytes:
    if not isinstance(content, bytes) or crc32(content[4:]).to_bytes(4, "big") != content[:4]:
        raise Damaged(f"{key!r} in the table meta is damaged")
    return content[4:]


def value_of(database: sqlite3.Connection, key: str) -> Any:
    found = database.execute("select value from meta where key = ?", (key,)).fetchone()
    return found[0] if found else None
