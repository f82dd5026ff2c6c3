"""A directory with something in it, as a machine would have written it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from transis.prsl.actions import Action, ActionId, Kind, Lane
from transis.prsl.log import Checked, Ineffective, Kept, Marks, Placed, Snapshot, StoreRecord, Taken, Trimmed
from transis.prsl.outputs import Effect
from transis.prsl.prefix import Base, Prefix
from transis.prsl.record import Change, Entry, What, encode_change, founding
from transis.replication.schema import LOG
from transis.replication.store import Store

FOUNDERS = ("ann", "bob")
IDENTITY = bytes(range(16))
MANY = 20
"""Actions of the order before the checkpoint: the founding, a change, and messages."""


def opened(directory: Path) -> Store:
    return Store(directory, "bank", "ann", FOUNDERS, IDENTITY)


def said(creator: int, number: int, *texts: bytes) -> Action:
    identity = ActionId(creator, Lane.MESSAGES, number)
    return Action(identity, Kind.DATA, number, (), tuple(map(len, texts)), b"".join(texts), b"", 0, 1_000_000 * number)


def actions() -> list[Action]:
    """Two messages each but the last one, which is behind the checkpoint; CYD comes after the tenth message."""
    found = founding([Entry(number, name, bytes([number]) * 16) for number, name in enumerate(FOUNDERS, 1)])
    change = Change(What.JOIN, 1, 0, (Entry(0, "cyd", bytes(16)),))
    joined = Action(ActionId(2, Lane.CHANGES, 1), Kind.CHANGE, 9, (), (), encode_change(change))
    order = [found, *(said(1, number, b"open %d" % number, b"close %d" % number) for number in range(1, MANY - 1))]
    return [*order[:6], joined, *order[6:], said(2, 1, b"last")]


def base_behind(base: Base, order: list[Action]) -> Base:
    prefix = Prefix(base)
    for one in order:
        prefix.take(one)
    return prefix.base()


def fill(store: Store, trimmed: int = 0) -> None:
    """The whole order is green; one more action is red. The place after the joining has no effect."""
    order, red = actions(), said(2, 2, b"red")
    start = store.opened.base
    records: list[StoreRecord] = [*map(Kept, [*order, red]), Placed(0, tuple(one.id for one in order))]
    records += [Checked(Snapshot(base_behind(start, order[:10]))), Checked(Snapshot(base_behind(start, order[:MANY])))]
    records += [Ineffective(7, Effect.AGAIN), Marks(green=len(order), lines=((1, 21), (2, 12)))]
    store.commit(records, green=len(order))
    if trimmed:
        snapshot = Snapshot(base_behind(start, order[:trimmed]))
        store.commit([Taken(snapshot), Trimmed(snapshot.base)])


def filled(directory: Path, trimmed: int = 0) -> Path:
    store = opened(directory)
    fill(store, trimmed)
    store.close()
    return directory


def damage(directory: Path, statement: str) -> None:
    with closing(sqlite3.connect(directory / LOG)) as database:
        database.execute(statement)
        database.commit()
