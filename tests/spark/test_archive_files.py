"""Archives of which files are missing, or hold what does not belong there: nothing that is left is lost, and what is not there is
said."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from tests.archive.events import EVENT_US, NODES, PROCESSES, START, configuration, group_view
from tests.archive.written import of_an_earlier_release, tables
from transis.archive.rows import STREAM, RowBuilder
from transis.client.events import View
from transis.spark import once as in_force
from transis.spark.archive import ABSENT, BEFORE, BLOCK, MISSING, OPEN, UNSEEN, gaps, read_stream, spans
from transis.spark.once import messages, views
from transis.spark.reconcile import gap_sentence
from transis.trace.reader import group_view_name, process_name, view_name
from transis.types import ids
from transis.types.ids import ViewId, ViewKind
from transis.types.views import GroupViewId, Origin, group_id

NEXT = ViewId(ViewKind.REGULAR, START.seq + 4, NODES[0])


def write(archive: Path, archiver: str, made: dict[int, pa.Table]) -> None:
    """Files of one life, by their numbers."""
    (archive / "stream").mkdir(exist_ok=True)
    for number, table in made.items():
        pq.write_table(table, archive / "stream" / f"{group_id('g'):016x}-{archiver}-000001-{number:06d}.parquet")


def without(made: list[pa.Table], *lost: int) -> dict[int, pa.Table]:
    return {number: table for number, table in enumerate(made) if number not in lost}


def read(spark: SparkSession, archive: Path) -> tuple[list[int], list[Row]]:
    """The counters of the messages, and what is missing."""
    stream = read_stream(spark, str(archive), ["g"])
    known = as_local(spark, spans(stream))
    found = sorted(row.counter for row in messages(stream, known).collect())
    return found, sorted(gaps(stream, known).collect(), key=lambda row: (row.kind, row.after is not None))


def as_local(spark: SparkSession, rows: DataFrame) -> DataFrame:
    return spark.createDataFrame(rows.collect(), rows.schema)


def test_a_file_that_one_archiver_lost_is_read_from_the_other(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path, "ann", without(tables(4), 1, 2))
    write(tmp_path, "bob", without(tables(4, archiver="bob")))
    counters, missing = read(spark, tmp_path)
    assert counters == list(range(1, 21))
    assert [row.kind for row in missing] == [BEFORE, OPEN]


def test_what_all_lost_is_a_gap_that_says_which_rows(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path, "ann", without(tables(4), 1, 2))
    write(tmp_path, "bob", without(tables(4, archiver="bob"), 2, 3))
    counters, missing = read(spark, tmp_path)
    assert counters == [*range(1, 11), *range(16, 21)]
    absent, *_ = missing
    assert (absent.kind, absent.after.place_seq, absent.before.place_seq) == (ABSENT, 3, 5)
    assert gap_sentence(absent) == "nobody archived R4@ann/1 between 3.4 and 5.0; ann: rows 9 to 18 of life 1 are missing"


@pytest.mark.parametrize("lost", [(0,), (3,), (0, 3)])
def test_the_first_and_the_last_files_of_a_life_may_be_missing(
    spark: SparkSession, tmp_path: Path, lost: tuple[int, ...]
) -> None:
    write(tmp_path, "ann", without(tables(4), *lost))
    counters, missing = read(spark, tmp_path)
    assert counters == [counter for number in range(4) if number not in lost for counter in range(5 * number + 1, 5 * number + 6)]
    assert [row.kind for row in missing] == [BEFORE, OPEN], "an archive may begin and end anywhere"


def test_a_hole_inside_of_a_file_is_one_too(spark: SparkSession, tmp_path: Path) -> None:
    """As a damaged journal leaves it."""
    first, _, third = tables(3)
    write(tmp_path, "ann", {1: pa.concat_tables([first, third])})
    counters, missing = read(spark, tmp_path)
    assert counters == [*range(1, 6), *range(11, 16)]
    assert [(row.kind, row.why) for row in missing if row.kind == ABSENT] == [(ABSENT, "rows 9 to 13 of life 1 are missing")]


@pytest.mark.parametrize("lost", [(), (1,)])
def test_every_message_of_a_long_life_knows_its_view_unless_one_may_be_lost(
    spark: SparkSession, tmp_path: Path, lost: tuple[int, ...]
) -> None:
    """Rows 1 to 3 are the beginning, and each of three files has more rows than a block of views."""
    size = 2 * in_force.BLOCK
    write(tmp_path, "ann", without(tables(3, messages=size), *lost))
    write(tmp_path, "bob", without(tables(1, messages=size, archiver="bob")))
    stream = read_stream(spark, str(tmp_path), ["g"])
    known = as_local(spark, spans(stream))
    told = stream.where("kind = 'message'").drop("view")
    found = in_force.in_views(told, stream, known).groupBy("archiver", "view").count().collect()
    shown = view_name(START) + "+1.0"
    unknown = {("ann", None): size} if lost else {}
    whole = {("ann", shown): size if lost else 3 * size, ("bob", shown): size}
    assert {(row.archiver, row["view"]): row["count"] for row in found} == whole | unknown


@pytest.mark.parametrize(("lost", "rows"), [((), [(1, 120_003)]), ((1,), [(1, 40_003), (80_004, 120_003)])])
def test_a_life_is_one_part_however_many_tasks_look_at_it(
    spark: SparkSession, tmp_path: Path, lost: tuple[int, ...], rows: list[tuple[int, int]]
) -> None:
    assert rows[-1][1] > BLOCK
    write(tmp_path, "ann", without(tables(3, messages=40_000), *lost))
    found = spans(read_stream(spark, str(tmp_path), ["g"])).orderBy("first_row").collect()
    assert [(row.first_row, row.last_row) for row in found] == rows
    assert sum(row.messages for row in found) == 40_000 * (3 - len(lost))


def two_rings(archiver: str) -> list[pa.Table]:
    """Three files: most of a ring, its end and the beginning of the next, and what follows there."""
    rows = RowBuilder("g", archiver, 1, "totem", "evs")
    rows.begin("started", 0)
    rows.configuration(configuration(START, START, None), 0)
    rows.view(group_view(START, ids.Place(0, 0)), 0)
    made = [rows.take().table()]
    rows.view(group_view(START, ids.Place(7, 0)), 0)
    rows.configuration(configuration(NEXT, NEXT, START), 0)
    rows.view(group_view(NEXT, ids.Place(0, 0)), 0)
    made.append(rows.take().table())
    rows.view(group_view(NEXT, ids.Place(5, 0)), 0)
    return [*made, rows.take().table()]


def test_who_lost_the_change_of_a_ring_has_seen_neither_its_end_nor_the_beginning_of_the_next(
    spark: SparkSession, tmp_path: Path
) -> None:
    write(tmp_path, "ann", without(two_rings("ann"), 1))
    _, missing = read(spark, tmp_path)
    shown = [(row.kind, row.ring_seq, row.after and row.after.place_seq, row.before and row.before.place_seq) for row in missing]
    assert shown == [(ABSENT, 8, None, 5), (ABSENT, 4, 0, None), (OPEN, 8, 5, None)]


def test_an_end_that_was_lost_says_which_rows(spark: SparkSession, tmp_path: Path) -> None:
    """As a hole between two places does; and no merge is told that never was: each view names the one before it."""
    write(tmp_path, "ann", without(two_rings("ann"), 1))
    _, missing = read(spark, tmp_path)
    assert [gap_sentence(row) for row in missing if row.kind in MISSING] == [
        "nobody archived R8@ann/1 between its beginning and 5.0; ann: rows 4 to 6 of life 1 are missing",
        "nobody archived R4@ann/1 between 0.0 and its end; ann: rows 4 to 6 of life 1 are missing",
    ]


ALONE = ViewId(ViewKind.REGULAR, START.seq + 4, NODES[1])
AGAIN = ViewId(ViewKind.REGULAR, START.seq + 8, NODES[0])


def merging(archiver: str, own: ViewId) -> list[pa.Table]:
    """Three files: the ring that parted, the archiver's own behind it, and where both met."""
    rows = RowBuilder("g", archiver, 1, "totem", "evs")
    rows.begin("started", 0)
    rows.configuration(configuration(START, START, None), 0)
    rows.view(view_from(START), 0)
    made = [rows.take().table()]
    rows.configuration(configuration(own, own, START), 0)
    rows.view(view_from(own, START), 0)
    made.append(rows.take().table())
    rows.configuration(configuration(AGAIN, AGAIN, own), 0)
    rows.view(view_from(AGAIN, NEXT, ALONE), 0)
    return [*made, rows.take().table()]


def view_from(view: ViewId, *before: ViewId) -> View:
    """Of one member more than it came from; each view says where its members come from, whether several came together or not."""
    origins = tuple(Origin(GroupViewId(one, ids.Place(0, 0)), PROCESSES[rank : rank + 1]) for rank, one in enumerate(before))
    return group_view(view, ids.Place(0, 0))._replace(merged_from=origins)


@pytest.mark.parametrize(
    ("lost_by_ann", "lost_by_bob", "unseen"),
    [
        ((), (), []),
        ((), (0, 1, 2), [ALONE]),  # bob was there, and nothing is left of it.
        ((1,), (0, 1, 2), []),  # One of the two was ann's own, and nobody knows which: her rows are missing, and that is said.
        ((1,), (), [NEXT]),  # ann archived it, and bob can tell that it is gone.
    ],
)
def test_a_component_is_unseen_if_a_merge_says_so(
    spark: SparkSession, tmp_path: Path, lost_by_ann: tuple[int, ...], lost_by_bob: tuple[int, ...], unseen: list[ViewId]
) -> None:
    write(tmp_path, "ann", without(merging("ann", NEXT), *lost_by_ann))
    write(tmp_path, "bob", without(merging("bob", ALONE), *lost_by_bob))
    _, missing = read(spark, tmp_path)
    found = [row["view"] for row in missing if row.kind == UNSEEN]
    assert found == [group_view_name(GroupViewId(one, ids.Place(0, 0))) for one in unseen]


def test_who_joins_while_a_ring_comes_about_has_seen_its_beginning(spark: SparkSession, tmp_path: Path) -> None:
    """Its first view stands at the beginning of the ring, and its configuration was in force before it: no gap."""
    late = RowBuilder("g", "bob", 1, "lansis", "evs")
    late.begin("started", 0)
    late.configuration(configuration(NEXT, NEXT, START), 0)
    late.view(group_view(NEXT, ids.Place(0, 0)), 0)
    write(tmp_path, "ann", without(two_rings("ann"), 1, 2))
    write(tmp_path, "bob", {1: late.take().table()})
    _, missing = read(spark, tmp_path)
    assert [(row.kind, row.ring_seq) for row in missing] == [(ABSENT, 4), (OPEN, 8)]


def test_archives_of_an_earlier_release_are_read_with_those_of_now(spark: SparkSession, tmp_path: Path) -> None:
    """The columns that did not exist yet are null; what only the later files have is not lost, in whatever order they come."""
    before, now, last = tables(3, attributed=True)
    write(tmp_path, "ann", {0: of_an_earlier_release(before), 1: now, 2: of_an_earlier_release(last)})
    stream = read_stream(spark, str(tmp_path), ["g"])
    found = {row.counter: row for row in messages(stream, as_local(spark, spans(stream))).collect()}
    assert sorted(found) == list(range(1, 16))
    assert {found[counter][name] for counter in (1, 5, 11, 15) for name in ("key", "headers", "event_time")} == {None}
    expected = {row["counter"]: row for row in now.to_pylist() if row["kind"] == "message"}
    for counter in range(6, 11):
        row, wanted = found[counter], expected[counter]
        assert (row.key, row.headers) == (wanted["key"], dict(wanted["headers"]) if wanted["headers"] else None)
    at = stream.select("counter", F.unix_micros("event_time").alias("us")).where("us is not null").collect()
    assert {row.counter: row.us for row in at} == {
        counter: EVENT_US + (counter * 77 if counter % 5 == 0 else 6) for counter in range(6, 11)
    }
    table = pq.read_table(tmp_path / "stream", schema=STREAM, columns=["counter", "key", "event_time"])
    assert table.num_rows == 18
    assert {row["counter"] for row in table.to_pylist() if row["key"]} == {6, 8, 10}


def test_views_say_what_their_members_are_called(spark: SparkSession, tmp_path: Path) -> None:
    """As docs/archive.md joins names to messages, also where files of an earlier release have none."""
    rows = RowBuilder("g", "ann", 1, "totem", "evs")
    rows.begin("test", 0)
    rows.configuration(configuration(START, START, None), 0)
    for seq, names in ((1, ()), (2, ("billing", "", "stock"))):
        rows.view(group_view(START, ids.Place(seq, 0), names=names), 0)
    write(tmp_path, "ann", {0: rows.take().table()})
    write(tmp_path, "bob", {0: of_an_earlier_release(tables(1, archiver="bob")[0])})
    stream = read_stream(spark, str(tmp_path), ["g"])
    found = views(stream)
    assert sorted((row.place_seq, row.names) for row in found.collect()) == [(1, None), (2, ["billing", "", "stock"])]
    named = found.select("group", F.inline(F.arrays_zip("members", "names"))).where("names != ''").distinct()
    processes = named.withColumnsRenamed({"members": "process", "names": "name"})
    sent = stream.where("kind = 'message'").join(processes, ["group", "process"], "left")
    assert {(row.process, row.name) for row in sent.collect()} == {(process_name(PROCESSES[0]), "billing")}
