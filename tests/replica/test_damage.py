"""Damage below what a replica has in memory: found when it is read, named, and repaired if it is content."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.embed.party import until
from tests.prsl.stories import action
from tests.replica.site import Site, tell
from transis.prsl.core import Config
from transis.prsl.log import Checked, Kept, Marks, Placed, Snapshot, Unreadable
from transis.prsl.machine import Machine
from transis.prsl.outputs import MoreToDeliver, Ordered, Stopped
from transis.prsl.prefix import Prefix
from transis.replication.reader import runs
from transis.replication.schema import LOG
from transis.replication.store import Store
from transis.replication.verify import Verification
from transis.types.errors import StoreError

IDENTITY = bytes(range(16))
MANY = 20


def opened(directory: Path) -> Store:
    return Store(directory, "bank", "ann", ("ann", "bob"), IDENTITY)


def filled(directory: Path) -> None:
    """Twenty actions before the checkpoint, and one behind it."""
    store = opened(directory)
    ones = [action(1, number) for number in range(1, MANY + 2)]
    prefix = Prefix(store.opened.base)
    for one in ones[:MANY]:
        prefix.take(one)
    checkpoint = Checked(Snapshot(prefix.base()))
    store.commit([*map(Kept, ones), Placed(0, tuple(one.id for one in ones)), checkpoint, Marks(green=MANY + 1)], green=MANY + 1)
    store.close()


def damage(directory: Path, statement: str) -> None:
    with closing(sqlite3.connect(directory / LOG)) as database:
        database.execute(statement)
        database.commit()


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("update actions set data = 'other' where number = 8", "the content of action 1:8 is damaged, at place 7"),
        ("update actions set deps = cast(x'fffe' as text) where number = 8", "the content of action 1:8 is damaged, at place 7"),
        ("delete from actions where number = 8", "the content of action 1:8 at place 7 is missing"),
    ],
)
def test_content_is_read_up_to_the_damage_which_is_named(tmp_path: Path, statement: str, why: str) -> None:
    filled(tmp_path)
    damage(tmp_path, statement)
    store = opened(tmp_path)
    history = store.opened.history
    assert [one.id.number for one in history.actions(2, MANY)] == [3, 4, 5, 6, 7]
    with pytest.raises(Unreadable, match=why) as found:
        history.actions(7, MANY)
    assert (found.value.place, found.value.action) == (7, action(1, 8).id)
    store.commit([Kept(action(1, 8))])
    assert len(history.actions(0, MANY)) == MANY
    store.close()


@pytest.mark.parametrize(
    "statement",
    [
        "update places set number = 3 where place = 7",
        "delete from places where place = 7",
        "update places set digest = x'00' where place = 7",
    ],
)
def test_a_damaged_order_ends_the_replica_with_a_sentence(tmp_path: Path, statement: str) -> None:
    filled(tmp_path)
    damage(tmp_path, statement)
    store = opened(tmp_path)
    machine = Machine(Config("ann", IDENTITY, ("ann", "bob")), store.opened)
    machine.start()
    outputs = machine.take()
    while any(isinstance(one, MoreToDeliver) for one in outputs):
        machine.deliver_more()
        outputs += (more := machine.take())
        if not more:
            break
    assert [one.place for one in outputs if isinstance(one, Ordered)] == list(range(7))
    why = next(one.why for one in outputs if isinstance(one, Stopped))
    assert "place 7 of the order is " in why and "have this replica replaced by a new one" in why
    store.close()


def test_a_reader_is_told(tmp_path: Path) -> None:
    filled(tmp_path)
    damage(tmp_path, "update actions set data = 'other' where number = 8")
    with pytest.raises(StoreError, match="the content of action 1:8 is damaged, at place 7"):
        list(runs(tmp_path, 0, 21))


def test_damage_that_nobody_meets_is_found_and_repaired(tmp_path: Path) -> None:
    """In the directory of a replica that runs, by its own looking through."""

    async def story(site: Site) -> None:
        logs = await site.start()
        await (await logs[0].post_many([bytes([number]) * 100_000 for number in range(30)])).stable()
        directory = site.log_directory("bob")
        damage(directory, "update actions set data = 'other' where creator = 1 and lane = 0 and number = 3")
        assert len(list(Verification(directory).problems())) == 1
        await until(lambda: not list(Verification(directory).problems()))
        assert logs[1].status().trouble == ""

    tell(tmp_path, story)
