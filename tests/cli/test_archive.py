"""`transis archive` as a person runs it: what it says while it runs, how it ends, and what it says when it cannot begin."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from tests.cli.running import Up, brought_up
from transis.cli.archive import progress_text
from transis.cli.main import app

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def up() -> Iterator[Up]:
    with brought_up("--nodes", "1") as cluster:
        cluster.until("whole")
        yield cluster


def test_a_group_is_archived_until_somebody_ends_it(up: Up, tmp_path: Path) -> None:
    archiving = up.start("archive", "orders", "--to", str(tmp_path / "to"), "--sync-s", "0.1", "--json")
    archiving.out.until('"acknowledged": {"life": 1')
    assert up.run("send", "orders", "--lines", "one", "two", "--key", "k", "--header", "source=web")[0] == 0
    last = json.loads(archiving.out.until('"rows": 5'))
    archiving.signal(signal.SIGTERM)
    code, told, errors = archiving.ended()
    assert (code, errors) == (0, "")
    assert json.loads(told.splitlines()[-1])["files"] == 1, "the last line is of the end"
    assert (last["acknowledged"]["row"], last["gaps"], last["behind_bytes"]) == (5, 0, 0)
    rows = pq.read_table(tmp_path / "to" / "stream").to_pylist()
    assert [row["kind"] for row in rows] == ["begin", "configuration", "view", "message", "message"]
    assert [row["value"] for row in rows[3:]] == [b"one", b"two"]
    assert [(row["key"], row["headers"]) for row in rows[3:]] == [(b"k", [("source", b"web")])] * 2
    assert [(row["key"], row["headers"], row["event_time"]) for row in rows[:3]] == [(None, None, None)] * 3
    assert all(timedelta(0) <= row["received_at"] - row["event_time"] < timedelta(minutes=1) for row in rows[3:])
    assert {row["archiver"] for row in rows} == {"n1"}


def test_it_ends_after_so_many_seconds_and_says_a_line(up: Up, tmp_path: Path) -> None:
    code, told, errors = up.run("archive", "quiet", "--to", str(tmp_path / "to"), "--seconds", "1.5", "--name", "x")
    assert (code, errors) == (0, "")
    assert told.startswith("quiet: ")
    assert told.splitlines()[-1].startswith("quiet: 3 rows, ")
    assert "acknowledged to R" in told.splitlines()[-1]
    assert [path.name.partition("-")[2] for path in (tmp_path / "to" / "stream").iterdir()] == ["x-000001-000001.parquet"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--to", "s3://x"), "transis archive: 's3://x' is not a local directory"),
        (("--to", "TO", "--name", "a b"), "'a b' cannot be the name of an archiver"),
        (("--to", "TO", "--socket", "/nowhere"), "no node listens at /nowhere"),
        (("--to", ""), "'' names no directory: give its path"),
        ((), "name a group and a directory: transis archive GROUP --to PATH"),
        (("--publish", "OTHER"), "--publish PATH publishes for all groups in PATH and joins none: leave out GROUP and --to"),
        (("--to", "/dev/null"), "'/dev/null' cannot hold an archive"),
        (("--to", "OTHER"), "holds the archive of cluster 'red', but this node belongs to 'transis': give another --to"),
    ],
)
def test_what_cannot_begin_says_why_in_a_sentence(up: Up, tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    (tmp_path / "archive.json").write_text('{"format": 1, "cluster": "red"}')
    places = {"TO": str(tmp_path / "to"), "OTHER": str(tmp_path)}
    code, _, errors = up.run("archive", "orders", *(places.get(one, one) for one in arguments))
    assert code == 2
    assert said in errors
    assert len(errors.splitlines()) == 1


def test_a_group_that_cannot_be_leaves_no_directory(up: Up, tmp_path: Path) -> None:
    code, _, errors = up.run("archive", "", "--to", str(tmp_path / "to"))
    assert (code, "is not a group name: use 1 to 128 bytes" in errors, (tmp_path / "to").exists()) == (2, True, False)


def test_what_a_killed_archiver_left_is_published_without_a_daemon(up: Up, tmp_path: Path) -> None:
    to = f"file://{tmp_path / 'to'}"
    archiving = up.start("archive", "left", "--to", to, "--sync-s", "0.1", "--name", "x", "--json")
    archiving.out.until('"acknowledged": {"life": 1')
    assert up.run("archive", "--publish", to)[:2] == (0, "left, archived by x: 1 journal, left alone: that archiver runs\n")
    archiving.signal(signal.SIGKILL)
    archiving.ended()
    code, told, errors = up.run("archive", "--publish", to, "--json")
    assert (code, errors) == (0, "")
    [one] = json.loads(told)["archivers"]
    assert (one["group"], one["archiver"], one["journals"], one["files"]) == ("left", "x", 1, 1)
    assert pq.read_table(tmp_path / "to" / "stream").num_rows == 3
    assert up.run("archive", "--publish", to)[:2] == (0, f"no journal waits in {tmp_path / 'to' / 'open'}\n")
    code, _, errors = up.run("archive", "--publish", str(tmp_path))
    assert (code, "holds no archive" in errors) == (2, True)


def test_what_a_damaged_journal_lost_is_told_when_it_is_published(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "stream").mkdir()
    (tmp_path / "archive.json").write_text('{"format": 1, "cluster": "red"}')
    journal = tmp_path / "open" / "0123456789abcdef-x-000001-000001.journal"
    journal.write_bytes(bytes(5000))
    outcome = CliRunner().invoke(app, ["archive", "--publish", str(tmp_path)])
    assert outcome.exit_code == 1
    assert outcome.stdout == "0123456789abcdef, archived by x: 1 journal, of which 1 published as 0 files, 0.0 MB\n"
    assert f"part of {journal}.damaged cannot be read" in outcome.stderr


def test_figures_in_words() -> None:
    figures = {"rows": 1204331, "rows_per_s": 98700, "lag_ms": 900, "files": 14, "bytes": 93_000_000, "acknowledged": None}
    assert progress_text("orders", figures) == (
        "orders: 1,204,331 rows, 98,700 a second, nothing acknowledged yet, lag 0.9 s, 14 files, 93 MB"
    )
    figures["acknowledged"] = {"position": "R8@ann/1 51234.7"}
    assert "acknowledged to R8@ann/1 51234.7, lag" in progress_text("orders", figures)
