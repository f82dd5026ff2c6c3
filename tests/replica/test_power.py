"""Power cuts and bad disks: every file cut, flipped and missing in turn; a disk that is full, and one that is read-only."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from queue import Queue
from typing import NamedTuple

import pytest

from tests.daemon.test_refusals_of_the_system import small_disk
from tests.replica.filled import opened, said
from transis.prsl.actions import ActionId
from transis.prsl.log import Kept, Marks, Placed
from transis.replication.reader import end
from transis.replication.schema import LOG
from transis.replication.store import LOCK, Store
from transis.replication.writer import Writer
from transis.types.errors import StoreError

WAL, SHM = f"{LOG}-wal", f"{LOG}-shm"
COMMITS = 8
FRAME = 24 + 4096


class Left(NamedTuple):
    """What a power cut leaves when nothing is lost, and how long the write-ahead log was after each commit."""

    directory: Path
    sizes: list[int]


def write(store: Store, number: int, size: int = 3000) -> None:
    """One commit, of some pages."""
    one = said(1, number, bytes([number % 250]) * size)
    store.commit([Kept(one), Placed(number - 1, (one.id,)), Marks(green=number)], green=number)


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Left:
    running, copied = tmp_path_factory.mktemp("running"), tmp_path_factory.mktemp("left") / "log"
    store = opened(running)
    sizes = [(running / WAL).stat().st_size]
    for number in range(1, COMMITS + 1):
        write(store, number)
        sizes.append((running / WAL).stat().st_size)
    shutil.copytree(running, copied, ignore=shutil.ignore_patterns("*-shm"))
    store.close()
    return Left(copied, sizes)


def order_in(directory: Path) -> list[ActionId]:
    store = opened(directory)
    store.close()
    return store.opened.order


def fresh(left: Left, directory: Path) -> Path:
    shutil.rmtree(directory, ignore_errors=True)
    shutil.copytree(left.directory, directory)
    return directory


def test_of_a_log_that_ends_anywhere_all_whole_commits_are_there(left: Left, tmp_path: Path) -> None:
    for cut in range(left.sizes[0], left.sizes[-1] + 1, 1009):
        directory = fresh(left, tmp_path / "log")
        with (directory / WAL).open("r+b") as file:
            file.truncate(cut)
        whole = sum(size <= cut for size in left.sizes[1:])
        assert [one.number for one in order_in(directory)] == list(range(1, whole + 1))


def flip(path: Path, place: int) -> None:
    with path.open("r+b") as file:
        file.seek(place)
        (byte,) = file.read(1)
        file.seek(place)
        file.write(bytes([byte ^ 4]))


def test_a_flip_in_what_was_synced_before_the_last_commit_is_named(left: Left, tmp_path: Path) -> None:
    """Also when it is opened again: SQLite has thrown the log away then."""
    frames = range(32, left.sizes[-2], FRAME)
    for place in (5, 20, *(frame + within for frame in frames for within in (4, 20, 3000))):
        directory = fresh(left, tmp_path / "log")
        flip(directory / WAL, place)
        for why in (f"{WAL} is damaged", f"{WAL} is missing"):
            with pytest.raises(StoreError, match=f"{why}.*Keep the directory aside"):
                opened(directory)


def test_a_flip_in_the_last_commit_is_as_if_the_power_had_been_cut(left: Left, tmp_path: Path) -> None:
    for frame in range(left.sizes[-2], left.sizes[-1], FRAME):
        directory = fresh(left, tmp_path / "log")
        flip(directory / WAL, frame + 3000)
        assert len(order_in(directory)) == COMMITS - 1


@pytest.mark.parametrize(
    ("name", "why"),
    [
        (LOG, f"{LOG} is missing or empty, and {WAL} is not"),
        (WAL, f"{WAL} is missing, and with it the newest commits"),
        (LOCK, ""),
    ],
)
def test_a_file_that_is_missing_after_a_crash_is_named(left: Left, tmp_path: Path, name: str, why: str) -> None:
    directory = fresh(left, tmp_path / "log")
    (directory / name).unlink()
    if why:
        with pytest.raises(StoreError, match=f"{why}. Keep the directory aside"):
            opened(directory)
    else:
        assert len(order_in(directory)) == COMMITS


def test_a_log_that_was_closed_needs_no_write_ahead_log(left: Left, tmp_path: Path) -> None:
    directory = fresh(left, tmp_path / "log")
    for _ in range(2):
        assert len(order_in(directory)) == COMMITS
        assert sorted(path.name for path in directory.iterdir()) == [LOCK, LOG]


def test_a_refusal_leaves_the_directory_as_a_crash_would(left: Left, tmp_path: Path) -> None:
    directory = fresh(left, tmp_path / "log")
    with pytest.raises(StoreError, match="belongs to the group 'bank', not 'shop'"):
        Store(directory, "shop", "ann", (), bytes(16))
    assert len(order_in(directory)) == COMMITS


def test_a_database_that_is_cut_anywhere_is_named(left: Left, tmp_path: Path) -> None:
    """But for an empty one, which is what a crash at its creation leaves: a directory with another identity."""
    directory = fresh(left, tmp_path / "log")
    order_in(directory)
    whole = (directory / LOG).read_bytes()
    for cut in range(100, len(whole), 4099):
        (directory / LOG).write_bytes(whole[:cut])
        with pytest.raises(StoreError, match="Keep the directory aside"):
            opened(directory)


def test_a_full_disk_is_told_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    done: Queue[list[int]] = Queue()
    trouble: Queue[str] = Queue()
    with small_disk(tmp_path / "disk", "1m") as disk:
        writer = Writer(opened(disk / "log"), done.put, trouble.put)
        for number in range(1, 41):
            one = said(1, number, bytes(50_000))
            writer.write(number, [Kept(one), Placed(number - 1, (one.id,)), Marks(green=number)])
        assert trouble.get(timeout=60).endswith("disk is full: free some space on that disk")
        assert end(disk / "log") <= 40
        subprocess.run(["mount", "-o", "remount,size=16m", disk], check=True)
        tickets: list[int] = []
        while len(tickets) < 40:
            tickets += done.get(timeout=60)
        assert tickets == list(range(1, 41)) and trouble.get(timeout=60) == ""
        writer.close()
        assert len(order_in(disk / "log")) == 40


def test_a_disk_that_is_read_only_is_told(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "4m") as disk:
        opened(disk / "log").close()
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        with pytest.raises(StoreError, match="Read-only file system: that disk cannot be written to: mount it for writing"):
            opened(disk / "log")
        assert end(disk / "log") == 0
