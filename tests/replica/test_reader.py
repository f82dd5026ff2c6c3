"""Readers from outside: what they see, when, and with which rights."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.house.sources import ROOT
from tests.replica.filled import IDENTITY, actions, damage, fill, filled, opened, said
from transis.prsl.actions import Action
from transis.prsl.log import Kept, Placed
from transis.prsl.record import What
from transis.replication.reader import STEP_BYTES, STEP_ROWS, Run, arrow, changes, end, first_kept, is_running, record, runs, who
from transis.replication.schema import LOG
from transis.types.errors import StoreError


def messages(order: list[Action]) -> list[bytes]:
    return [message for one in order for message in one.messages()]


def read(directory: Path, start: int, last: int) -> list[tuple[int, bytes]]:
    found = [(run, batch) for batch in runs(directory, start, last) for run in batch]
    return [(run.offset + index, data) for run, _ in found for index, data in enumerate(run.messages())]


def test_runs_are_those_of_the_order_without_what_has_no_effect(tmp_path: Path) -> None:
    filled(tmp_path)
    order = actions()
    expected = list(enumerate(messages(order)))
    assert (first_kept(tmp_path), end(tmp_path)) == (0, len(expected))
    assert read(tmp_path, 0, end(tmp_path)) == [*expected[:10], *expected[12:]]
    assert read(tmp_path, 5, 6) == expected[4:6]
    assert read(tmp_path, 10, 12) == []
    assert next(runs(tmp_path, 36, 99)) == [Run(36, 2, 1, (4,), b"last", 1_000_000, b"")]


def test_steps_are_bounded_and_miss_nothing(tmp_path: Path) -> None:
    store = opened(tmp_path)
    many = 2 * STEP_ROWS + 5
    order = [said(1, number, b"one", b"two") for number in range(1, many + 1)]
    store.commit([*map(Kept, order), Placed(0, tuple(one.id for one in order))], green=many)
    batches = list(runs(tmp_path, 0, end(tmp_path)))
    assert [len(batch) for batch in batches] == [STEP_ROWS, STEP_ROWS, 5]
    assert [run.number for batch in batches for run in batch] == list(range(1, many + 1))
    large = said(1, many + 1, bytes(STEP_BYTES)), said(1, many + 2, b"x")
    store.commit([*map(Kept, large), Placed(many, tuple(one.id for one in large))], green=many + 2)
    assert [len(batch) for batch in runs(tmp_path, 2 * many, 2 * many + 2)] == [1, 1]
    store.close()


def test_what_is_trimmed_is_told(tmp_path: Path) -> None:
    filled(tmp_path, trimmed=10)
    assert (first_kept(tmp_path), end(tmp_path)) == (16, 37)
    assert [offset for offset, _ in read(tmp_path, 16, 20)] == [16, 17, 18, 19]
    with pytest.raises(StoreError, match="messages before offset 16 were trimmed: read from there"):
        list(runs(tmp_path, 15, 20))
    assert changes(tmp_path) == [] and len(record(tmp_path).members) == 3


def test_changes_stand_before_an_offset(tmp_path: Path) -> None:
    filled(tmp_path)
    found = changes(tmp_path)
    assert [(one.offset, one.place, one.what, one.is_void, one.names) for one in found] == [
        (0, 0, What.FOUND, False, ("ann", "bob")),
        (10, 6, What.JOIN, False, ("ann", "bob", "cyd")),
    ]


def test_arrow_has_the_same_in_columns(tmp_path: Path) -> None:
    filled(tmp_path)
    (batch,) = arrow(tmp_path, 0, 99)
    assert batch.num_rows == 18 and batch.column("offset").to_pylist()[-1] == 36
    row = batch.slice(0, 1).to_pylist()[0]
    assert (row["count"], row["creator"], row["number"], row["lengths"], row["data"]) == (2, 1, 1, [6, 7], b"open 1close 1")
    assert row["key"] is None and row["posted"].year == 1970


def test_who_it_is_and_how_far(tmp_path: Path) -> None:
    store = opened(tmp_path)
    fill(store)
    assert is_running(tmp_path)
    store.close()
    assert not is_running(tmp_path)
    found = who(tmp_path)
    assert (found.group, found.replica, found.directory, found.life) == ("bank", "ann", IDENTITY, 1)
    assert (found.green, found.end, found.red, found.offset) == (21, 21, 1, 37)


WRITER = """
import sys
from pathlib import Path
from tests.replica.filled import fill, opened
store = opened(Path(sys.argv[1]))
fill(store)
print("filled", flush=True)
sys.stdin.readline()
store.close()
"""
READER = """
import os, sys
from pathlib import Path
from transis.replication.reader import end, runs, who
if os.geteuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
directory = Path(sys.argv[1])
try:
    (directory / "lock").open("r+b")
except PermissionError:
    print(end(directory), sum(run.count for batch in runs(directory, 0, 99) for run in batch), who(directory).replica)
"""


@pytest.fixture
def shared() -> Iterator[Path]:
    """A directory that anybody may enter."""
    with TemporaryDirectory() as made:
        Path(made).chmod(0o755)
        yield Path(made) / "log"


def ended(writer: subprocess.Popen[str]) -> None:
    writer.communicate("\n", timeout=60)


def killed(writer: subprocess.Popen[str]) -> None:
    os.kill(writer.pid, signal.SIGKILL)
    writer.communicate(timeout=60)


def running(writer: subprocess.Popen[str]) -> None:
    """It goes on."""


@pytest.mark.parametrize("then", [running, ended, killed])
def test_somebody_who_may_only_read_reads(shared: Path, then: Callable[[subprocess.Popen[str]], None]) -> None:
    """While it is written, when its writer has ended, and when that was killed."""
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(shared)], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
    )
    try:
        assert writer.stdout is not None and writer.stdout.readline() == "filled\n"
        then(writer)
        before = sorted(shared.iterdir())
        assert read_without_rights(shared) == "37 35 ann"
        assert sorted(shared.iterdir()) == before
    finally:
        writer.kill()
        writer.communicate()


def read_without_rights(directory: Path) -> str:
    """By another user if this one is root, who may always write."""
    for path in (directory, *directory.iterdir()):
        path.chmod(0o555 if path.is_dir() else 0o444)
    done = subprocess.run(
        [sys.executable, "-c", READER, str(directory)], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    directory.chmod(0o755)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_what_cannot_be_read_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="nowhere: no such directory"):
        end(tmp_path / "nowhere")
    with pytest.raises(StoreError, match=f"is not a replica's directory: it has no {LOG}"):
        end(tmp_path)
    filled(tmp_path)
    damage(tmp_path, "update meta set value = 2 where key = 'version'")
    with pytest.raises(StoreError, match="has format 2, this release reads 1: install a newer one"):
        end(tmp_path)
    (tmp_path / LOG).write_bytes(b"no database" * 1000)
    with pytest.raises(StoreError, match=f"{LOG} cannot be read .*Keep the directory aside"):
        end(tmp_path)
    (tmp_path / LOG).write_bytes(b"")
    with pytest.raises(StoreError, match="not a replica's directory yet"):
        end(tmp_path)
