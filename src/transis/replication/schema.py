"""What a replica's log looks like on disk: one SQLite database that a person, `sqlite3` and Spark can read while it is written.

1. A row of `actions` is a whole action: writing one row a message would cost several times as much. The view `messages` cuts
   them. `pieces` has the start and the length of each message in `data`, so that cutting looks at nothing else.
2. `places` is the order as far as it is known here, each place with the digest of the order up to there and it. Below `green` (in
   `meta`) it is final, and only that is shown as messages. What is before `trimmed` is about to be deleted, and not shown.
3. `bases` has what is remembered of the order at each checkpoint: where it may be trimmed.
4. `ineffective` has the places of actions without effect: of a client key that ran before, of a creator that was no member, or of
   a change of membership that came too late.
5. Rows that others depend on have a checksum over all their fields. A damaged one is named, and never used.
6. Tables and rows of `meta` may be added within a version; whoever reads looks only at those that are named here.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any, Final, TypeVar
from zlib import crc32

import msgspec

from transis.prsl.actions import Action, ActionId, Kind, Lane
from transis.prsl.log import Unreadable
from transis.types.errors import plainly

VERSION: Final = 1

LOG: Final = "log.db"
LOCK: Final = "lock"

SCHEMA: Final = """
create table meta(key text primary key, value) without rowid;
create table actions(
    creator integer not null, lane integer not null, number integer not null, kind integer not null, count integer not null,
    lts integer not null, deps text not null, pieces text not null, data blob not null,
    key blob not null, at integer not null, posted integer not null, crc integer not null,
    primary key(creator, lane, number));
create table places(
    place integer primary key, offset integer not null, creator integer not null, lane integer not null, number integer not null,
    digest blob not null, crc integer not null);
create index places_by_offset on places(offset);
create index places_of_changes on places(place) where lane = 1;
create table bases(place integer primary key, offset integer not null, content blob not null);
create table ineffective(place integer primary key, effect text not null);
create view messages as
    select p.offset + m.key as offset, a.creator as creator, a.number as number,
           substr(a.data, 1 + json_extract(m.value, '$[0]'), json_extract(m.value, '$[1]')) as data,
           case when a.posted > 0 then strftime('%Y-%m-%dT%H:%M:%fZ', a.posted / 1e6, 'unixepoch') end as posted
    from places p join actions a using (creator, lane, number), json_each(a.pieces) m
    where p.lane = 0 and p.place >= (select value from meta where key = 'trimmed')
                     and p.place < (select value from meta where key = 'green')
                     and not exists (select 1 from ineffective i where i.place = p.place)
    order by p.place, m.key;
"""

ACTION_COLUMNS: Final = (
    *("creator", "lane", "number", "kind", "count", "lts", "deps", "pieces", "data"),
    *("key", "at", "posted", "crc"),
)
PLACE_COLUMNS: Final = ("place", "offset", "creator", "lane", "number", "digest", "crc")


def _insert(table: str, columns: tuple[str, ...]) -> str:
    return f"into {table}({', '.join(columns)}) values ({', '.join('?' * len(columns))})"


SAVE_ACTION: Final = f"insert or replace {_insert('actions', ACTION_COLUMNS)}"
SAVE_PLACE: Final = f"insert {_insert('places', PLACE_COLUMNS)}"
SAVE_BASE: Final = "insert or replace into bases(place, offset, content) values (?, ?, ?)"
SAVE_INEFFECTIVE: Final = "insert or replace into ineffective(place, effect) values (?, ?)"
SAVE_META: Final = "insert or replace into meta(key, value) values (?, ?)"

Row = tuple[Any, ...]
T = TypeVar("T")


class Damaged(Unreadable):
    """A row is not what was written. The text says which one."""


# --- rows ---------------------------------------------------------------------------------------------------------------


def checksum(row: Row) -> int:
    """Over every field, with its kind and length, so that nothing can move from one to the next."""
    return crc32(msgspec.msgpack.encode(row))


_pairs: Final = msgspec.json.Decoder(list[tuple[int, int]]).decode


def _text(pairs: object) -> str:
    """As short as JSON may be: a message of a few bytes takes as many again for saying where it is."""
    return msgspec.json.encode(pairs).decode()


def action_row(action: Action) -> Row:
    creator, lane, number = action.id
    pieces, start = [], 0
    for length in action.lengths:
        pieces.append((start, length))
        start += length
    head = (creator, int(lane), number, int(action.kind), action.count, action.lts)
    row = (*head, _text(action.deps), _text(pieces), action.data, action.key, action.at, action.posted)
    return (*row, checksum(row))


def action_of(row: Row) -> Action:
    *fields, crc = row
    if checksum(tuple(fields)) != crc:
        raise Damaged(f"the content of action {row[0]}:{row[2]} is damaged")
    creator, lane, number, kind, _, lts, deps, pieces, data, key, at, posted = fields
    lengths = tuple(length for _, length in _pairs(pieces))
    pairs = tuple(_pairs(deps))
    return Action(ActionId(creator, Lane(lane), number), Kind(kind), lts, pairs, lengths, data, key, at, posted)


def place_row(place: int, offset: int, action: ActionId, digest: bytes) -> Row:
    row = (place, offset, action.creator, int(action.lane), action.number, digest)
    return (*row, checksum(row))


def place_of(row: Row) -> tuple[int, int, ActionId, bytes]:
    """Place, offset, what stands there, and the digest behind it."""
    *fields, crc = row
    if checksum(tuple(fields)) != crc:
        raise Damaged(f"place {row[0]} of the order is damaged")
    place, offset, creator, lane, number, digest = fields
    return place, offset, ActionId(creator, Lane(lane), number), digest


def connect(path: Path, how: str) -> sqlite3.Connection:
    """Text that is damaged becomes other text, which its checksum tells."""
    database = sqlite3.connect(f"{path.absolute().as_uri()}?{how}", uri=True, isolation_level=None, check_same_thread=False)
    database.text_factory = lambda text: text.decode("utf-8", "replace")
    return database


# --- what is kept by a name ---------------------------------------------------------------------------------------------


def sealed(value: object) -> bytes:
    content = msgspec.msgpack.encode(value)
    return crc32(content).to_bytes(4, "big") + content


def unsealed(what: str, content: object, type_: type[T]) -> T:
    if not isinstance(content, bytes) or crc32(content[4:]).to_bytes(4, "big") != content[:4]:
        raise Damaged(f"{what} is damaged")
    return msgspec.msgpack.decode(content[4:], type=type_)


def value_of(database: sqlite3.Connection, key: str) -> Any:
    found = database.execute("select value from meta where key = ?", (key,)).fetchone()
    return found[0] if found else None


def kept(database: sqlite3.Connection, key: str, type_: type[T]) -> T:
    return unsealed(f"{key!r} in the table meta", value_of(database, key), type_)


def number_of(database: sqlite3.Connection, key: str) -> int:
    found = value_of(database, key)
    if not isinstance(found, int):
        raise Damaged(f"{key!r} in the table meta is damaged")
    return found


# --- trouble ------------------------------------------------------------------------------------------------------------

REPLACE: Final = "Keep the directory aside, and have this replica replaced by a new one"

TROUBLE: Final = (sqlite3.Error, OSError, Unreadable, UnicodeDecodeError)
"""What may come out of reading and writing a log. SQLite quotes damaged names in its messages, which Python may not decode."""

REMEDIES: Final = {
    "SQLITE_FULL": "free some space on that disk",
    "SQLITE_READONLY": "it cannot be written to: mount the disk for writing, or give this user the right to do so",
    "SQLITE_CANTOPEN": "give this user the right to read it, and whoever writes also the directory",
    "SQLITE_BUSY": "another program keeps it locked: end that one",
    "SQLITE_IOERR": "the disk may be failing: look at the system's log",
    "SQLITE_PERM": "give this user the right to do so",
}
"""By the beginning of SQLite's names."""


def explained(error: Exception) -> str:
    """What went wrong with a log and what to do, in one sentence."""
    if isinstance(error, Unreadable):
        return f"{error}. {REPLACE}"
    if isinstance(error, sqlite3.Error):
        name = getattr(error, "sqlite_errorname", "")
        remedy = next((words for begin, words in REMEDIES.items() if name.startswith(begin)), "")
        return f"{LOG}: {error}: {remedy}" if remedy else f"{LOG} cannot be read ({error}). {REPLACE}"
    if isinstance(error, UnicodeDecodeError):
        return f"{LOG} cannot be read (its tables are damaged). {REPLACE}"
    return plainly(error)
