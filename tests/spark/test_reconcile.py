"""`transis reconcile` as people use it: whatever it is given, there is an answer or one sentence."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType
from rich.console import Console
from typer.testing import CliRunner, Result

from tests.archive.written import of_an_earlier_release, tables
from tests.spark.archived import archive_simulated
from transis.cli.main import app
from transis.spark.archive import MISSING, PLACE, RING
from transis.spark.cli import print_reconciled
from transis.spark.inputs import INT, TEXT, columns
from transis.spark.lineage import ArchivedConfiguration, Lineage, RingName
from transis.spark.reconcile import LISTED_MAX, ListedRows, Reconciled, ReconcileRequest, as_dict, exit_code, listed
from transis.spark.sides import conflicts, read_keys, with_keys
from transis.types.errors import UsageError
from transis.types.views import group_id

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
    assert refused(tmp_path) == f"transis reconcile: {wrong} is not a file of an archive, or only a part of one: move it away"


def test_a_table_of_somebody_else_is_named(archive: Path, tmp_path: Path) -> None:
    """Also under a name that an archiver might have given."""
    (tmp_path / "stream").mkdir()
    for name in ("foreign", f"{group_id('g'):016x}-n1-000001-000001"):
        wrong = tmp_path / "stream" / f"{name}.parquet"
        pq.write_table(pa.table({"group": ["g"]} if "-" in name else {"x": [1]}), wrong)
        told = f"transis reconcile: {wrong} is not a file of an archive, or only a part of one: move it away"
        assert refused(tmp_path) == told
        wrong.unlink()


def test_an_archive_of_an_earlier_release_is_reconciled(tmp_path: Path) -> None:
    (tmp_path / "stream").mkdir()
    before = of_an_earlier_release(tables(1)[0])
    pq.write_table(before, tmp_path / "stream" / f"{group_id('g'):016x}-ann-000001-000001.parquet")
    outcome = run(tmp_path, "--json")
    assert outcome.exit_code == 0
    assert json.loads(outcome.stdout)["messages"] == 5


def test_a_file_that_the_disk_damaged_is_named(archive: Path, tmp_path: Path) -> None:
    """Its end, which says what is where, is whole; a page in the middle is not."""
    shutil.copytree(archive / "stream", tmp_path / "stream")
    wrong = min((tmp_path / "stream").iterdir())
    metadata = pq.read_metadata(wrong)
    group = metadata.row_group(0)
    [page] = [group.column(at) for at in range(metadata.num_columns) if group.column(at).path_in_schema == "place_seq"]
    content = bytearray(wrong.read_bytes())
    for at in range(page.dictionary_page_offset, page.dictionary_page_offset + page.total_compressed_size):
        content[at] ^= 0xFF
    wrong.write_bytes(content)
    said = f"transis reconcile: {wrong} is damaged: put a good copy in its place, or move it away"
    assert refused(tmp_path).startswith(said)


@pytest.mark.parametrize(
    ("description", "said"),
    [
        (
            '{"format": 2, "cluster": "blue"}',
            "holds an archive of format 2, this release reads 1: install the release that wrote it",
        ),
        ("[]", "archive.json is not the description of an archive: put it back as it was written"),
        ("\x00", "archive.json is not the description of an archive: put it back as it was written"),
    ],
)
def test_an_archive_of_another_format_is_refused(archive: Path, tmp_path: Path, description: str, said: str) -> None:
    (tmp_path / "stream").symlink_to(archive / "stream")
    (tmp_path / "archive.json").write_text(description)
    assert refused(tmp_path).endswith(said)


def test_a_wrong_policy_and_tables_that_are_there_are_refused(archive: Path, tmp_path: Path) -> None:
    assert refused(archive, "--policy", "loudest").endswith("must be one of primary, larger, earlier")
    assert refused(archive, "--policy", "larger").endswith("so give --out DIR, too")
    assert refused(archive, "--out", tmp_path).endswith(f"'{tmp_path}' exists: name a directory that is new")


@pytest.mark.parametrize(
    "key", ["flight", "flight=", "flight=flight", "=$.flight", "a b=$.x", "x=$.a b", "x=$.a'", "x=$[99999999999]"]
)
def test_a_key_that_is_none_is_refused(archive: Path, key: str) -> None:
    assert refused(archive, "--key", key) == f"transis reconcile: --key {key!r}: write NAME=$.path, for instance seat=$.seat"


def test_a_key_may_not_hide_a_column() -> None:
    assert read_keys(["seat=$.a.b[0]['c d']", "row_no=$.x"]) == {"seat": "$.a.b[0]['c d']", "row_no": "$.x"}
    for taken in (["value=$.x"], ["side=$.x"], ["a=$.x", "a=$.y"], ["seat=$.x", "Seat=$.y"], ["Side=$.x"], ["GROUP=$.x"]):
        with pytest.raises(UsageError, match="is taken: choose another one"):
            read_keys(taken)


def test_no_column_of_a_table_with_keys_can_be_the_name_of_one(spark: SparkSession) -> None:
    """Whatever the job itself calls a column of what it writes, or of what it makes it of."""
    rows = spark.createDataFrame(
        [], columns(value=BinaryType(), parting=INT, **dict.fromkeys(("group", "side", "process"), TEXT))
    )
    rows = rows.withColumns({name: F.lit(1) for name in ("counter", *RING, *PLACE, "archiver", "life", "row")})
    keyed = with_keys(rows, {"seat": "$.seat"})
    for name in {*keyed.columns, *conflicts(keyed, ["seat"]).columns, "messages", "first", "parsed"} - {"seat"}:
        with pytest.raises(UsageError, match="is taken"):
            read_keys([f"{name.upper()}=$.x"])
    with pytest.raises(UsageError, match="the name 'Seat' is taken by another column"):
        with_keys(keyed, {"Seat": "$.seat"})


def test_one_run_with_everything(spark: SparkSession, archive: Path, tmp_path: Path) -> None:
    """JSON and tables tell the same."""
    out = tmp_path / "tables"
    (archive / "open").mkdir()
    (archive / "open" / f"{group_id(GROUP):016x}-first-000009-000001.journal").touch()
    told = run(archive, "--key", "seat=$.seat", "--policy", "larger", "--out", out, "--json")
    assert told.exit_code == 1
    found = json.loads(told.stdout)
    tables = {path.name: pq.read_table(path) for path in out.iterdir()}
    assert sorted(tables) == ["conflicts", "gaps", "merged", "messages", "only_one_side", "side_by_side", "views"]
    assert (found["group"], found["archivers"], found["policy"]) == (GROUP, ["first", "second"], "larger")
    assert found["waiting"] == {"first": 1}
    assert found["messages"] == tables["messages"].num_rows == tables["merged"].num_rows > 0
    assert found["views"] == tables["views"].num_rows > 0
    assert len(found["gaps"]) == found["gaps_total"] == tables["gaps"].num_rows > 0
    assert len(found["conflicts"]) == found["conflicts_total"] == tables["conflicts"].num_rows > 0
    by_side = sum(count for parting in found["partings"] for count in parting["messages"].values())
    assert by_side == tables["only_one_side"].num_rows > 0
    assert set(tables["side_by_side"].column("kind").to_pylist()) == {"message", "view"}
    assert set(tables["messages"].column("view").to_pylist()) <= set(tables["views"].column("view").to_pylist())
    is_missing = [row["kind"] in MISSING for row in found["gaps"]]
    assert is_missing == sorted(is_missing, reverse=True), "what matters is told first"
    assert (found["contradictions"], found["contradictions_total"], found["not_json"]) == ([], 0, 0)


def test_what_is_too_much_to_be_told_is_counted(spark: SparkSession) -> None:
    rows, total = listed(spark.range(LISTED_MAX + 5), F.col("id").desc())
    assert ([row.id for row in rows[:2]], len(rows), total) == ([LISTED_MAX + 4, LISTED_MAX + 3], LISTED_MAX, LISTED_MAX + 5)
    assert listed(spark.range(3), "id").total == 3


# -- in words --------------------------------------------------------------------------------------------------------


def reconciled(gaps: list[Row], **more: Any) -> Reconciled:
    """Of a cluster n1 n2 n3 that parted; nobody archived n3."""
    whole, first, again = (RingName(seq, "n1/1/00aa") for seq in (4, 8, 12))
    unseen, nodes = RingName(8, "n3/1/00cc"), ("n1/1/00aa", "n2/1/00bb", "n3/1/00cc")
    lineage = Lineage(
        [
            ArchivedConfiguration(whole, nodes, (None, None, None)),
            ArchivedConfiguration(first, nodes[:2], (whole, whole)),
            ArchivedConfiguration(again, nodes, (first, first, unseen)),
        ]
    )
    given = {"archivers": ("n1",), "lives": 2, "messages": 1234, "views": 1, "apart": {(1, "1"): 1}, "not_json": 0}
    given |= {"gaps": ListedRows(gaps, len(gaps)), "contradictions": ListedRows([], 0), "conflicts": ListedRows([], 0)}
    return Reconciled(
        request=ReconcileRequest("archive", keys={"seat": "$.seat"}), group="seats", lineage=lineage, **given | more
    )


def words(found: Reconciled) -> list[str]:
    text = StringIO()
    print_reconciled(Console(file=text, width=120), found)
    return [line.rstrip() for line in text.getvalue().splitlines()]


def gap(kind: str, after: tuple[int, int] | None, before: tuple[int, int] | None, why: str = "", view: str | None = None) -> Row:
    ends = [None if one is None else Row(place_seq=one[0], place_index=one[1]) for one in (after, before)]
    return Row(kind=kind, ring_seq=4, ring_rep="n1/1/00aa", after=ends[0], before=ends[1], archiver="n1", why=why, view=view)


def test_words() -> None:
    gaps = [
        gap("before", None, (16, 0)),
        gap("absent", (20, 1), (31, 0), "the session was lost"),
        gap("absent", (40, 0), None),
        gap("open", (52, 3), None),
        gap("unseen", None, None, view="T46@n3/1/00cc+0.0"),
    ]
    found = reconciled(gaps)
    assert words(found) == [
        "seats: 1,234 messages, 1 view, archived by n1 in 2 lives",
        "  the archive begins in R4@n1/1 at 16.0",
        "  nobody archived R4@n1/1 between 20.1 and 31.0; n1: the session was lost",
        "  nobody archived R4@n1/1 between 40.0 and its end",
        "  the archive ends in R4@n1/1 at 52.3",
        "  a component in T46@n3/1 was archived by nobody, says the merge that n1 saw",
        "R4@n1/1 parted into n1/1 n2/1 | n3/1 and met in R12@n1/1",
        "  only n1/1 n2/1 saw 1 message",
        "  only n3/1 saw what nobody archived; of it the archive has 0 messages",
    ]
    assert exit_code(found) == 1


def test_what_has_only_a_beginning_and_an_open_end_is_fine() -> None:
    assert exit_code(reconciled([gap("before", None, (16, 0)), gap("open", (52, 3), None)])) == 0


def test_collisions_and_contradictions_are_a_problem() -> None:
    touched = [Row(side="1", messages=3), Row(side="2", messages=1)]
    found = reconciled([], conflicts=ListedRows([Row(parting=1, seat="12A\n", touched=touched)], 1), not_json=2)
    assert exit_code(found) == 1
    lines = words(found)
    assert lines[-4:-2] == ["2 values of these cannot be read as JSON and have no key", "Keys that sides touched apart"]
    assert [line.split() for line in lines[-2:]] == [
        ["parting", "seat", "messages"],
        ["1", "12A\\n", "side", "1:", "3,", "side", "2:", "1"],
    ]
    wrong = reconciled([], contradictions=ListedRows([Row(what="two messages at one place", first="a", last="b")], 1))
    assert exit_code(wrong) == 1
    assert "  this cannot be: two messages at one place: a and b" in words(wrong)


def test_journals_that_nobody_publishes_are_told() -> None:
    found = reconciled([], waiting={"ann": 2, "bob": 1})
    what = "unpublished in archive/open: start that archiver or run transis archive --publish archive"
    assert words(found)[1:3] == [f"  2 journals of ann wait {what}", f"  1 journal of bob waits {what}"]
    assert as_dict(found)["waiting"] == {"ann": 2, "bob": 1}


def test_of_many_rows_it_is_said_how_many_there_are_and_where() -> None:
    """Those that the JSON has not are not said to be there."""
    gaps = [gap("absent", (number, 0), (number + 1, 0)) for number in range(30)]
    assert words(reconciled(gaps))[21] == "  and 10 more; --json and --out have them"
    many = replace(reconciled([]), gaps=ListedRows(gaps, 5_000))
    assert words(many)[21] == "  and 4,980 more; --json has 30, --out has all"
    assert as_dict(many)["gaps_total"] == 5_000
    touched = Row(parting=1, seat="1A", touched=[Row(side="1", messages=3), Row(side="2", messages=1)])
    assert (
        words(reconciled([], conflicts=ListedRows([touched] * 1_000, 1_001)))[-1]
        == "and 981 more; --json has 1,000, --out has all"
    )
