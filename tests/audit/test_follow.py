"""`transis audit --follow` on Spark: directories that grow, a follower that is started again, files that are none, a metric."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from typer.testing import CliRunner

from tests.audit.digests import seal
from tests.audit.test_fold import A, B, C, at
from transis.audit.follow.divergence import ONE_SEQUENCE, FollowVerdict
from transis.audit.follow.follower import FollowFigures, FollowMetrics
from transis.audit.follow.source import sealed
from transis.audit.guarantees.property import BROKEN, HELD
from transis.cli.main import app

RUNNER = CliRunner()


def followed(*arguments: str, code: int) -> list[dict[str, Any]]:
    """What a follower that looks once says, a line a batch, behind that it began and before its verdict."""
    return [line for line in all_said(*arguments, code=code)[:-1] if not line.get("note", "").startswith("following ")]


def all_said(*arguments: str, code: int, sentence: str = "") -> list[dict[str, Any]]:
    outcome = RUNNER.invoke(app, ["audit", "--follow", "--once", "--json", *arguments])
    assert outcome.exit_code == code, outcome.output
    assert sentence in outcome.stderr
    lines = [json.loads(line) for line in outcome.stdout.splitlines()]
    assert list(lines[-1]) == ["time", "ledger", "verdicts"]
    return lines


def words(batch: dict[str, Any]) -> str:
    (found,) = [one["verdict"] for one in batch["verdicts"] if one["property"] == ONE_SEQUENCE]
    return str(found)


def cut_off(path: Path) -> None:
    """As one is that is still being copied: without its seal."""
    path.write_bytes(path.read_bytes()[:-1])


def test_directories_that_grow_are_followed_across_restarts(spark: SparkSession, tmp_path: Path) -> None:
    one, two, ledger = tmp_path / "a, {b}", tmp_path / "two" / "deeper", tmp_path / "ledger"
    one.mkdir()
    two.mkdir(parents=True)
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "two").symlink_to(two)
    command = (str(one), str(tmp_path / "linked"), "--ledger", str(ledger))
    seal(one, at(A, 1, 2, 3))
    seal(two, at(B, 1, 2, 3))
    (one / "life-c-1-0000000000000009-000001.digests").write_bytes(b"what")
    (one / "life-c-1-0000000000000009-000002.digests.open").write_bytes(b"half")
    seal(two, at(C, 1, 2, 3), number=3)
    cut_off(two / "life-c-1-0000000000000009-000003.digests")
    (batch,) = followed(*command, code=0)
    assert (words(batch), batch["files"], batch["violations"]) == (HELD, 4, [])
    assert [Path(trouble["path"]).name[-14:] for trouble in batch["unreadable"]] == ["000001.digests", "000003.digests"]
    *_, verdict = all_said(*command, code=0)
    assert words(verdict) == HELD, "an idle cluster is judged by what it told earlier"
    assert len(pq.read_table(ledger / "unreadable")) == 2

    seal(two, at(B, 1, 2, 3, 4), at(C, 1, 2, 3, 5), number=2)
    seal(two, at(C, 1, 2, 3, 5), number=5)
    seal(one, at(A, 1, 2, 3, 5), number=2)
    batch, note = followed(*command, code=1)
    assert (words(batch), batch["files"]) == (BROKEN, 4)
    (violation,) = batch["violations"]
    assert (violation["sides"], violation["equal_at"], violation["differs_at"]) == ([["a/1", "c/1"], ["b/1"]], 3, 4)
    assert "no flight recorder has anything of R4@a/1" in note["note"]
    *_, verdict = all_said(*command, code=1)
    assert words(verdict) == BROKEN, "it is told though nothing is new"
    assert len(pq.read_table(ledger / "violations")) == 1

    seal(two, at(C, 1, 2, 3), number=4)
    late, *_ = [line for line in followed(*command, code=1) if "files" in line]
    assert (late["files"], late["violations"]) == (1, []), "a file is read, though later ones of its life were read before"


def test_nothing_that_could_be_judged_is_no_verdict(spark: SparkSession, tmp_path: Path) -> None:
    flight, ledger = tmp_path / "flight", tmp_path / "ledger"
    flight.mkdir()
    command = (str(flight), "--ledger", str(ledger))
    all_said(*command, code=2, sentence="there are no sealed digests below")
    (flight / "life-b-1-0000000000000008-000001.digests").write_bytes(b"")
    (flight / "life-c-1-0000000000000009-000001.digests").write_bytes(b"what")
    seal(flight, at(A, 1, 2, 3))
    cut_off(flight / "life-a-1-0000000000000007-000001.digests")
    *_, batch, _ = all_said(*command, code=2, sentence="none of the files that are new could be read to its end")
    assert len(batch["unreadable"]) == 3
    seal(flight, at(A, 1, 2, 3, 4), number=2)
    all_said(*command, code=2, sentence="no two nodes reported anything comparable")
    seal(flight, at(B, 1, 2, 3, 4), number=2)
    all_said(*command, code=0)


def test_a_checkpoint_that_a_power_cut_damaged_begins_anew_and_forgets_nothing(spark: SparkSession, tmp_path: Path) -> None:
    flight, ledger = tmp_path / "flight", tmp_path / "ledger"
    flight.mkdir()
    seal(flight, at(A, 1, 2), at(B, 2, 1))
    followed(str(flight), "--ledger", str(ledger), code=1)
    (ledger / "checkpoint" / "offsets" / "0").write_bytes(b"")
    note, *lines = followed(str(flight), "--ledger", str(ledger), code=1)
    assert "checkpoint was damaged and begins anew" in note["note"]
    (batch,) = [line for line in lines if "files" in line]
    assert (words(batch), batch["files"], batch["violations"]) == (BROKEN, 2, [])
    assert len(pq.read_table(ledger / "violations")) == 1


def kept_files(ledger: Path) -> dict[Path, bytes]:
    """What the ledger holds, without what Spark keeps beside it."""
    files = (path for path in ledger.rglob("*") if path.is_file() and "checkpoint" not in path.parts)
    return {path: path.read_bytes() for path in files}


def test_a_batch_that_spark_gives_again_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """Killed behind the ledger and before Spark's own commit."""
    flight, ledger = tmp_path / "flight", tmp_path / "ledger"
    flight.mkdir()
    seal(flight, at(A, 1, 2), at(B, 2, 1))
    followed(str(flight), "--ledger", str(ledger), code=1)
    before = kept_files(ledger)
    assert before
    for commit in (ledger / "checkpoint" / "commits").iterdir():
        commit.unlink()
    assert [line for line in followed(str(flight), "--ledger", str(ledger), code=1) if "files" in line] == []
    assert kept_files(ledger) == before


def test_a_file_that_its_node_deleted_meanwhile_ends_nothing(spark: SparkSession, tmp_path: Path) -> None:
    for number in (1, 2, 3):
        seal(tmp_path, at(A, number), number=number)
    batches = []

    def take(files: DataFrame, number: int) -> None:
        batches.append(len(files.collect()))
        for path in tmp_path.glob("*.digests"):
            path.unlink()

    query = sealed(spark, [str(tmp_path)], at_a_time=1).writeStream.foreachBatch(take)
    query.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start().awaitTermination()
    assert batches == [1, 0, 0]


def test_the_metric_says_what_is_broken_and_how_old_the_evidence_is() -> None:
    verdicts = (FollowVerdict("blue", ONE_SEQUENCE, BROKEN, 40, 2, 1), FollowVerdict("green", ONE_SEQUENCE, HELD, 7, 0, 0))
    metrics = FollowMetrics("127.0.0.1", 0, FollowFigures(verdicts, (("blue", "a/1", 5_000_000),), 9.0, 3))
    try:
        with urlopen(f"http://127.0.0.1:{metrics.port}/metrics") as answer:
            lines = answer.read().decode().splitlines()
    finally:
        metrics.close()
    for line in (
        'transis_audit_broken{cluster="blue",property="one_sequence"} 1.0',
        'transis_audit_broken{cluster="green",property="one_sequence"} 0.0',
        'transis_audit_violations_total{cluster="blue",property="one_sequence"} 2.0',
        'transis_audit_pending{cluster="blue",property="one_sequence"} 1.0',
        'transis_audit_positions_compared_total{cluster="blue"} 40.0',
        "transis_audit_unreadable_files_total 3.0",
        "transis_audit_last_batch_time_seconds 9.0",
    ):
        assert line in lines
    (age,) = [float(line.rpartition(" ")[2]) for line in lines if line.startswith("transis_audit_evidence_age_seconds{")]
    assert age > 1_000_000_000


@pytest.mark.parametrize(
    ("arguments", "named", "allowed"),
    [
        (["--follow"], "--ledger", "--follow needs a directory"),
        (["--ledger", "kept"], "--ledger", "give that too"),
        (["--once"], "--once", "give that too"),
        (["--every", "5"], "--every", "give that too"),
        (["--follow", "--ledger", "kept", "--store", "s"], "--store", "omit --store"),
        (["--follow", "--ledger", "kept", "--only", "places"], "--only", "omit --only"),
        (["--follow", "--ledger", "kept", "--every", "0"], "--every", "must be 1 to 3600"),
        (["--follow", "--ledger", "kept", "--metrics", "9478"], "--metrics", "must be HOST:PORT"),
        (["--follow", "--ledger", __file__], "--ledger", "must be a local or mounted directory"),
        (["--follow", "--ledger", "x" * 300], "--ledger", "cannot be used (File name too long)"),
        (["--follow", "--ledger", "kept", "--metrics", "127.0.0.1:²"], "--metrics", "must be HOST:PORT"),
    ],
)
def test_a_wrong_argument_is_named(arguments: list[str], named: str, allowed: str, tmp_path: Path) -> None:
    outcome = RUNNER.invoke(app, ["audit", str(tmp_path), *arguments], env={"COLUMNS": "200"})
    assert outcome.exit_code == 2
    assert named in outcome.stderr
    assert allowed in outcome.stderr


def test_a_directory_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    outcome = RUNNER.invoke(app, ["audit", "--follow", str(tmp_path / "none"), "--ledger", str(tmp_path / "kept")])
    assert outcome.exit_code == 2
    assert "there is no such directory" in outcome.stderr
    assert not (tmp_path / "kept").exists()
