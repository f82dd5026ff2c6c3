"""`transis reconcile` as people use it: whatever it is given, there is an answer or one sentence."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner, Result

from tests.pipeline.archived import archive_simulated
from transis.console.main import app
from transis.model.errors import UsageError
from transis.pipeline.archive.reconciling import read_keys

GROUP = "orders of totem 1"


def run(*arguments: str | Path) -> Result:
    outcome = CliRunner().invoke(app, ["reconcile", *map(str, arguments)])
    assert outcome.exception is None or isinstance(outcome.exception, SystemExit), outcome.exception
    assert "Traceback" not in outcome.output
    return outcome


def refused(*arguments: str | Path) -> str:
    outcome = run(*arguments)
    assert (outcome.exit_code, outcome.stdout) == (2, "")
    [sentence] = outcome.stderr.splitlines()
    return sentence


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("archive")
    archive_simulated(directory, "totem", 1)
    return directory


def test_what_is_no_archive_is_named(tmp_path: Path) -> None:
    assert refused(tmp_path) == (
        f"transis reconcile: {tmp_path}: holds no archive yet: name a directory that `transis archive --to` has written to"
    )


def test_an_archive_elsewhere_is_refused() -> None:
    assert "hdfs://host/archive: only a local or mounted archive can be read" in refused("hdfs://host/archive")


def test_a_group_that_is_not_there_is_answered_with_those_that_are(archive: Path) -> None:
    sentence = refused(archive, "--group", "seat")
    assert sentence == f"transis reconcile: there is no group 'seat' in {archive}: it holds {GROUP}"


def test_a_file_that_is_none_of_an_archive_is_named(archive: Path, tmp_path: Path) -> None:
    wrong = tmp_path / "stream" / "0123456789abcdef-n1-000001-000001.parquet"
    wrong.parent.mkdir()
    wrong.write_bytes(b"something else")
    assert refused(tmp_path) == f"transis reconcile: {wrong} is not a file of an archive, or only a part of one"


def test_a_wrong_policy_and_tables_that_are_there_are_refused(archive: Path, tmp_path: Path) -> None:
    assert refused(archive, "--policy", "loudest").endswith("possible are primary, larger, earlier")
    assert refused(archive, "--out", tmp_path).endswith(f"'{tmp_path}' exists: name a directory that is new")


@pytest.mark.parametrize("key", ["flight", "flight=", "flight=flight", "=$.flight", "a b=$.x", "x=$.a b", "x=$.a'"])
def test_a_key_that_is_none_is_refused(archive: Path, key: str) -> None:
    assert refused(archive, "--key", key) == f"transis reconcile: --key {key!r}: write NAME=$.path, for instance seat=$.seat"


def test_a_key_may_not_hide_a_column() -> None:
    assert read_keys(["seat=$.a.b[0]['c d']", "row_no=$.x"]) == {"seat": "$.a.b[0]['c d']", "row_no": "$.x"}
    for taken in (["value=$.x"], ["side=$.x"], ["a=$.x", "a=$.y"]):
        with pytest.raises(UsageError, match="is taken"):
            read_keys(taken)


def test_one_run_with_everything(spark: SparkSession, archive: Path, tmp_path: Path) -> None:
    """In words, as JSON and as tables: they tell the same."""
    out = tmp_path / "tables"
    told = run(archive, "--key", "seat=$.seat", "--policy", "larger", "--out", out)
    assert told.exit_code == 1
    found = json.loads(run(archive, "--key", "seat=$.seat", "--json").stdout)
    tables = {path.name: pq.read_table(path) for path in out.iterdir()}
    assert sorted(tables) == ["conflicts", "gaps", "merged", "messages", "only_one_side", "views"]
    assert found["group"] == GROUP
    assert found["messages"] == tables["messages"].num_rows == tables["merged"].num_rows > 0
    assert found["views"] == tables["views"].num_rows > 0
    assert len(found["gaps"]) == tables["gaps"].num_rows > 0
    assert found["conflicts_total"] == tables["conflicts"].num_rows > 0
    by_side = sum(count for parting in found["partings"] for count in parting["messages"].values())
    assert by_side == tables["only_one_side"].num_rows > 0
    assert (found["contradictions"], found["not_json"]) == ([], 0)
    assert f"{GROUP}: {found['messages']:,} messages, {found['views']:,} views, archived by first, second" in told.stdout
    assert told.stdout.count(" parted into ") == len(found["partings"]) > 0
    assert "Keys that sides touched apart" in told.stdout
    assert str(out) in told.stdout
