"""The log on a real disk: the twin of `Stored`, through restarts, kills and damage."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from queue import Queue
from random import Random

import pytest

from tests.prsl.stories import action
from transis.prsl.actions import Action, ActionId, Kind, Lane
from transis.prsl.log import Checked, Ineffective, Kept, Marks, Opened, Placed, Snapshot, Stored, StoreRecord, Taken, Trimmed
from transis.prsl.outputs import Effect
from transis.prsl.prefix import Prefix
from transis.prsl.record import Change, What, encode_change
from transis.replication.reader import Run, end, first_kept, runs
from transis.replication.schema import LOG, SAVE_META, sealed
from transis.replication.store import Store
from transis.replication.writer import Writer
from transis.types.errors import StoreError

FOUNDERS = ("ann", "bob")
IDENTITY = bytes(range(16))


def opened(directory: Path, group: str = "bank", name: str = "ann", identity: bytes = IDENTITY) -> Store:
    return Store(directory, group, name, FOUNDERS, identity)


def messages(creator: int, number: int, *texts: bytes) -> Action:
    return Action(
        ActionId(creator, Lane.MESSAGES, number),
        Kind.DATA,
        number,
        ((2, 1),),
        tuple(map(len, texts)),
        b"".join(texts),
        b"",
        0,
        77,
    )


def holds(opened: Opened) -> tuple[object, ...]:
    """Everything but the history, which is asked."""
    places = range(opened.base.place, opened.checkpoint.base.place)
    older = [(opened.history.actions(place, place + 1), opened.history.digest_at(place + 1)) for place in places]
    return (*opened[:-1], older, opened.history.base_before(10**9, 10**9))


class Twins:
    """The same records to a store and to its twin in memory, as a machine might write them."""

    def __init__(self, store: Store, seed: int) -> None:
        self.store, self.twin, self.random = store, Stored(store.opened.base), Random(seed)
        self.numbers = {1: 0, 2: 0, 3: 0}

    def write(self, *records: StoreRecord) -> None:
        self.store.commit(records)
        for record in records:
            self.twin.apply(record)

    def step(self) -> None:
        random, twin = self.random, self.twin
        kind = random.random()
        if kind < 0.5:
            creator = random.choice(sorted(self.numbers))
            self.numbers[creator] += 1
            new = messages(creator, self.numbers[creator], *(b"m" * random.randrange(9) for _ in range(random.randrange(1, 4))))
            self.write(Kept(new))
        elif kind < 0.85:
            self._place()
        elif kind < 0.93 and twin.end > twin.checkpoint.base.place:
            self._check(random.randint(twin.checkpoint.base.place + 1, twin.end), random.random() < 0.5)
        else:
            self.write(Marks(random.randrange(9), random.randrange(9), twin.base.place, random.randrange(9), ((1, 2), (3, 4))))

    def _place(self) -> None:
        """From some place on that is not green, what is not below it: in the order of numbers."""
        twin = self.twin
        start = self.random.randint(twin.checkpoint.base.place, twin.end)
        below = set(twin.order[: start - twin.base.place])
        rest = sorted(one for one in twin.content if one not in below)
        self.write(Placed(start, tuple(rest[: self.random.randrange(len(rest) + 1)])))

    def _check(self, place: int, is_trimmed: bool) -> None:
        prefix = Prefix(self.twin.base)
        for one in self.twin.order[: place - self.twin.base.place]:
            if one.number != prefix.numbers.highest.get(one.creator, 0) + 1:
                return  # an order that a machine would never have
            prefix.take(self.twin.content[one])
        snapshot = Snapshot(prefix.base(), ((bytes(16), 3),), 2)
        self.write(Checked(snapshot), Taken(snapshot), Marks(green=place))
        if is_trimmed:
            self.write(Trimmed(snapshot.base))


@pytest.mark.parametrize("seed", range(4))
def test_a_store_is_what_its_twin_is_after_every_restart(tmp_path: Path, seed: int) -> None:
    store = opened(tmp_path)
    twins = Twins(store, seed)
    for step in range(120):
        twins.step()
        if step % 20 == 19:
            store.close()
            green = twins.twin.marks.green
            twins.twin.marks = twins.twin.marks._replace(green=min(green, twins.twin.end))
            twins.store = store = opened_with(tmp_path, twins.twin)
            assert holds(store.opened) == holds(twins.twin.opened())
    store.close()


def opened_with(directory: Path, twin: Stored) -> Store:
    """Random orders may end before the green line of older marks, which a machine's never do."""
    with closing(sqlite3.connect(directory / LOG)) as database:
        database.execute(SAVE_META, ("marks", sealed(twin.marks)))
        database.execute(SAVE_META, ("green", twin.marks.green))
        database.commit()
    return opened(directory)


def test_what_a_person_sees(tmp_path: Path) -> None:
    """A row a message, in order, and only what is final; while the store is open."""
    store = opened(tmp_path)
    first, second = messages(1, 1, b"open 7", b"open 9"), messages(2, 1, b"move 7 9 50")
    change = Action(ActionId(1, Lane.CHANGES, 1), Kind.CHANGE, 1, (), (), encode_change(Change(What.LEAVE, 1, 2)))
    again, yellow = messages(2, 2, b"again"), messages(1, 2, b"yellow")
    ones = (first, change, second, again, yellow)
    records = [*map(Kept, ones), Placed(0, tuple(one.id for one in ones)), Ineffective(3, Effect.AGAIN)]
    store.commit(records, green=4)
    with closing(sqlite3.connect(f"file:{tmp_path / LOG}?mode=ro", uri=True)) as database:
        rows = database.execute("select * from messages limit 5").fetchall()
    posted = "1970-01-01T00:00:00.000Z"
    assert rows == [(0, 1, 1, b"open 7", posted), (1, 1, 1, b"open 9", posted), (2, 2, 1, b"move 7 9 50", posted)]
    one, two = Run(0, 1, 1, (6, 6), first.data, 77, b""), Run(2, 2, 1, (11,), second.data, 77, b"")
    assert list(runs(tmp_path, 1, 3)) == [[one, two]]
    assert list(runs(tmp_path, 2, 9)) == [[two]]
    assert (first_kept(tmp_path), end(tmp_path)) == (0, 4)
    store.close()


def test_a_commit_is_whole_or_not_at_all(tmp_path: Path) -> None:
    store = opened(tmp_path)
    one = action(1, 1)
    with pytest.raises(TypeError):
        store.commit([Kept(one), Placed(0, (ActionId(9, Lane.MESSAGES, 9),))])
    store.commit([Kept(one), Placed(0, (one.id,))])
    store.close()
    again = opened(tmp_path)
    assert again.opened.order == [one.id] and list(again.opened.content) == [one.id]
    again.close()


def test_a_life_is_counted_and_the_identity_stays(tmp_path: Path) -> None:
    lives = []
    for identity in (IDENTITY, bytes(16), bytes(16)):
        store = opened(tmp_path, identity=identity)
        lives.append(store.life)
        assert store.directory == IDENTITY
        store.close()
    assert lives == [1, 2, 3]


@pytest.mark.parametrize(
    ("group", "name", "why"),
    [("shop", "ann", "belongs to the group 'bank', not 'shop'"), ("bank", "bob", "belongs to the replica 'ann', not 'bob'")],
)
def test_a_directory_of_somebody_else_is_refused(tmp_path: Path, group: str, name: str, why: str) -> None:
    opened(tmp_path).close()
    with pytest.raises(StoreError, match=why):
        opened(tmp_path, group, name)


def test_a_directory_in_use_is_refused(tmp_path: Path) -> None:
    store = opened(tmp_path)
    with pytest.raises(StoreError, match="in use by another process: stop that one"):
        opened(tmp_path)
    store.close()
    opened(tmp_path).close()


def test_a_newer_directory_is_refused(tmp_path: Path) -> None:
    opened(tmp_path).close()
    with closing(sqlite3.connect(tmp_path / LOG)) as database:
        database.execute("update meta set value = 2 where key = 'version'")
        database.commit()
    with pytest.raises(StoreError, match="has format 2, this release reads 1"):
        opened(tmp_path)


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        ("update actions set data = 'other' where number = 1", "the content of action 1:1 is damaged"),
        ("update places set number = 3 where place = 1", "place 1 of the order is damaged"),
        ("delete from places where place = 0", "place 0 of the order is missing"),
        ("delete from actions where number = 2", "place 1 of the order is missing, or its content is"),
        ("update meta set value = zeroblob(30) where key = 'marks'", "'marks' in the table meta is damaged"),
        ("delete from places", "the order ends at place 0, and 3 were green"),
    ],
)
def test_damage_is_named(tmp_path: Path, damage: str, why: str) -> None:
    store = opened(tmp_path)
    ones = [action(1, number) for number in (1, 2, 3)]
    store.commit([*(Kept(one) for one in ones), Placed(0, tuple(one.id for one in ones)), Marks(green=3)])
    store.close()
    with closing(sqlite3.connect(tmp_path / LOG)) as database:
        database.execute(damage)
        database.commit()
    with pytest.raises(StoreError, match=f"{why}.*Keep the directory aside"):
        opened(tmp_path)


def test_a_flipped_byte_anywhere_is_a_sentence_or_changes_nothing(tmp_path: Path) -> None:
    store = opened(tmp_path)
    ones = [action(1, number, size=300) for number in range(1, 100)]
    store.commit([*(Kept(one) for one in ones), Placed(0, tuple(one.id for one in ones)), Marks(green=99)])
    before = None
    store.close()
    whole = (tmp_path / LOG).read_bytes()
    random = Random(1)
    named = 0
    for place in [random.randrange(len(whole)) for _ in range(150)]:
        flipped = bytearray(whole)
        flipped[place] ^= 1 << random.randrange(8)
        (tmp_path / LOG).write_bytes(flipped)
        for left in ("-wal", "-shm"):
            (tmp_path / f"{LOG}{left}").unlink(missing_ok=True)
        try:
            again = opened(tmp_path)
        except StoreError:
            named += 1
            continue
        before = before or holds(again.opened)
        assert holds(again.opened) == before
        again.close()
    assert named > 50


def test_a_file_that_is_no_log_is_a_sentence(tmp_path: Path) -> None:
    tmp_path.joinpath(LOG).write_bytes(b"not a database" * 100)
    with pytest.raises(StoreError, match="cannot be read"):
        opened(tmp_path)


CHILD = """
import sys
from pathlib import Path
from tests.replica.test_store import messages, opened
from transis.prsl.log import Kept, Marks, Placed
store = opened(Path(sys.argv[1]))
number = store.opened.end
while True:
    number += 1
    one = messages(1, number, b"x" * 50)
    store.commit([Kept(one), Placed(number - 1, (one.id,)), Marks(green=number)])
    print(number, flush=True)
"""


def test_what_was_committed_survives_kill_9(tmp_path: Path) -> None:
    """Again and again, somewhere in the middle: nothing that was said to be on disk is missing, and nothing is half there."""
    said = 0
    for round_ in range(4):
        child = subprocess.Popen([sys.executable, "-c", CHILD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        for _ in range(5 + 13 * round_):
            said = int(child.stdout.readline())
        os.kill(child.pid, signal.SIGKILL)
        said = max([said, *(int(line) for line in child.stdout.read().split("\n")[:-1])])
        child.wait()
        child.stdout.close()
        store = opened(tmp_path)
        assert store.opened.end in (said, said + 1)
        assert [one.number for one in store.opened.order] == list(range(1, store.opened.end + 1))
        assert store.opened.marks.green == store.opened.end
        store.close()


def test_the_writer_gives_tickets_back_in_order_when_they_are_on_disk(tmp_path: Path) -> None:
    done: Queue[list[int]] = Queue()
    writer = Writer(opened(tmp_path), done.put, lambda _: None)
    for ticket in range(1, 201):
        one = action(1, ticket)
        writer.write(ticket, [Kept(one), Placed(ticket - 1, (one.id,)), Marks(green=ticket)])
    tickets: list[int] = []
    while len(tickets) < 200:
        tickets += done.get(timeout=30)
    assert tickets == list(range(1, 201)) and done.empty()
    writer.close()
    store = opened(tmp_path)
    assert store.opened.end == 200
    store.close()


def test_a_disk_that_refuses_is_told_once_and_tried_again(tmp_path: Path) -> None:
    """Somebody else holds the database locked, as a full disk would refuse: nothing is lost."""
    done: Queue[list[int]] = Queue()
    said: Queue[str] = Queue()
    store = opened(tmp_path)
    with closing(sqlite3.connect(tmp_path / LOG, isolation_level=None)) as other:
        other.execute("begin immediate")
        writer = Writer(store, done.put, said.put)
        writer.write(1, [Kept(action(1, 1))])
        assert "locked" in said.get(timeout=30)
        assert done.empty()
        other.execute("rollback")
    assert done.get(timeout=30) == [1] and said.get(timeout=30) == ""
    writer.close()
