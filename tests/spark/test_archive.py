"""An archive in Spark, held against what members at all nodes were handed: simulated clusters that part and meet, archivers that
come and go."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from tests.spark.archived import Archived, Told, archive_simulated
from transis.archive import rows as schema
from transis.spark.archive import (
    ABSENT,
    BEFORE,
    FORMAT,
    MESSAGES,
    OPEN,
    SIDE,
    STREAM,
    UNSEEN,
    gaps,
    history_order,
    read_stream,
    spans,
)
from transis.spark.inputs import coalesced
from transis.spark.lineage import Lineage, RingParting, Side
from transis.spark.once import configurations, conflicting_keys, delivered_in, in_views, messages, views
from transis.spark.sides import BLOCK, conflicts, in_blocks, lineage_of, merged, numbered, only_one_side, side_by_side, with_keys

RUNS = (("totem", 1), ("totem", 2), ("totem", 3), ("lansis", 4), ("lansis", 5))

MessageKey = tuple[str, str, int]
"""Group, process, counter."""


class Archive:
    """All runs as one archive; what is asked of Spark is asked once."""

    def __init__(self, spark: SparkSession, directory: Path, runs: list[Archived]) -> None:
        self.runs = runs
        self.rows: list[dict[str, Any]] = pq.read_table(directory / "stream").to_pylist()
        self.stream = coalesced(read_stream(spark, str(directory)))
        found = spans(self.stream)
        self.spans = spark.createDataFrame(found.collect(), found.schema)
        self.once = coalesced(messages(self.stream, self.spans))
        self.lineage: Lineage = lineage_of(configurations(self.stream))

    @cached_property
    def messages(self) -> dict[MessageKey, Row]:
        return {key_of(row): row for row in self.once.collect()}

    @cached_property
    def gaps(self) -> list[Row]:
        return gaps(self.stream, self.spans).collect()

    @cached_property
    def apart(self) -> DataFrame:
        return coalesced(only_one_side(self.stream, self.spans, self.once, self.lineage))

    def told(self) -> Iterator[tuple[Archived, str, Told]]:
        """What the witness of each node was handed."""
        return ((run, node, one) for run in self.runs for node, told in run.told.items() for one in told)


@pytest.fixture(scope="module")
def archive(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Archive:
    directory = tmp_path_factory.mktemp("archive")
    return Archive(spark, directory, [archive_simulated(directory, engine, seed) for engine, seed in RUNS])


def key_of(row: Row) -> MessageKey:
    return row["group"], row["process"], row["counter"]


def place_of(row: Any) -> tuple[int, int]:
    return row["place_seq"], row["place_index"]


def test_the_columns_are_those_that_archivers_write() -> None:
    written = [(field.name, field.type.value_type if field.type == schema.WORD else field.type) for field in schema.STREAM]
    read = [(field.name, field.type) for field in to_arrow_schema(STREAM, timezone="UTC")]
    assert [name for name, _ in read] == [name for name, _ in written]
    assert [str(kind).replace("element", "item") for _, kind in read] == [str(kind) for _, kind in written]
    assert FORMAT == schema.FORMAT


def test_the_runs_have_what_this_is_about(archive: Archive) -> None:
    """Or the tests below show little."""
    lives = Counter((row["group"], row["archiver"]) for row in archive.rows if row["kind"] == "begin")
    assert len(lives) == 2 * len(RUNS) and max(lives.values()) > 1
    assert sum(row["transitional"] and row["kind"] == "message" for row in archive.rows) > 10
    assert sum(not row["ordered"] and row["kind"] == "message" for row in archive.rows) > 50
    assert len(archive.lineage.partings) > 10 and max(len(one.sides) for one in archive.lineage.partings) > 2
    assert {ABSENT, BEFORE, OPEN, UNSEEN} == {row.kind for row in archive.gaps}


# -- each once -------------------------------------------------------------------------------------------------------


def test_every_message_is_there_once_as_the_first_that_is_entitled_to_it_has_it(archive: Archive) -> None:
    copies = defaultdict(list)
    for row in archive.rows:
        if row["kind"] == "message":
            copies[row["group"], row["process"], row["counter"]].append(row)
    assert len(archive.messages) == archive.once.count()
    assert archive.messages.keys() == copies.keys()
    assert max(map(len, copies.values())) > 1
    for key, found in copies.items():
        best = min(found, key=_entitled)
        row = archive.messages[key]
        assert {name: row[name] for name in ("archiver", "life", "row", "value", "conf")} == {
            name: best[name] for name in ("archiver", "life", "row", "value", "conf")
        }


def _entitled(row: dict[str, Any]) -> tuple[Any, ...]:
    """The plain rule: who delivered it in the regular configuration, the lowest of them; else the first in the history."""
    if row["ordered"] and not row["transitional"]:
        return (0, row["archiver"], row["life"])
    return (1, row["ring_seq"], row["ring_rep"], *place_of(row), row["archiver"], row["life"], row["row"])


def test_a_message_has_the_place_and_the_configuration_that_members_were_told(archive: Archive) -> None:
    told = {(run.group, one.process, one.counter): one for run, _, one in archive.told()}
    for key, row in archive.messages.items():
        assert f"R{row.ring_seq}@{row.ring_rep}" == told[key].ring
        if row.ordered:
            assert place_of(row) == told[key].place


def test_views_and_configurations_are_there_once_and_messages_know_theirs(archive: Archive) -> None:
    shown = views(archive.stream).collect()
    assert sorted((row["group"], row["view"]) for row in shown) == sorted(
        {(row["group"], row["view"]) for row in archive.rows if row["kind"] == "view"}
    )
    joined = delivered_in(archive.once, configurations(archive.stream)).select("group", "process", "counter", "nodes").collect()
    nodes = {key_of(row): set(row.nodes) for row in joined}
    assert nodes.keys() == archive.messages.keys()
    for run, node, one in archive.told():
        key = run.group, one.process, one.counter
        if key in nodes and archive.messages[key].conf == one.conf:
            assert node in nodes[key]


def test_a_message_has_the_group_view_that_members_had_when_it_came(archive: Archive) -> None:
    rows = in_views(archive.once, archive.stream, archive.spans).collect()
    found = {key_of(row): row["view"] for row in rows}
    assert len(rows) == len(archive.messages) and found.keys() == archive.messages.keys()
    told = [(run, one, (run.group, one.process, one.counter)) for run, _, one in archive.told() if _is_ordered(run, one)]
    seen = [(one, found[key]) for _, one, key in told if key in found and archive.messages[key].conf == one.conf]
    assert len(seen) > 500
    assert [view for _, view in seen] == [one.view for one, _ in seen]


def test_good_archives_do_not_contradict_themselves_and_bad_ones_are_told(archive: Archive, spark: SparkSession) -> None:
    assert conflicting_keys(archive.stream).collect() == []
    placed = archive.stream.where("kind = 'message' and ordered").orderBy("group", "row").take(40)
    one, two, three, four = (placed[rank].asDict() for rank in (0, 10, 20, 30))
    wrong = [
        one | {"archiver": "zoe", "counter": 10_000},
        two | {"archiver": "zoe", "value": b"another"},
        three | {"archiver": "zoe", "place_seq": 10_000},
        four,
    ]
    damaged = archive.stream.unionByName(spark.createDataFrame(wrong, STREAM))
    assert sorted(row.what for row in conflicting_keys(damaged).collect()) == [
        "one message at two places",
        "one message twice in one life",
        "two messages at one place",
        "two values of one message",
    ]


# -- what is missing -------------------------------------------------------------------------------------------------


def test_what_nobody_archived_is_in_a_gap_and_what_somebody_did_is_in_none(archive: Archive) -> None:
    """Ordered messages of the regular part of a ring have places on one line; gaps are intervals of it. The end of a ring that
    parted belongs to its sides, and one that nobody archived is unseen as a whole."""
    intervals = defaultdict(list)
    for gap in archive.gaps:
        if gap.kind != UNSEEN:
            after = (-1, -1) if gap.after is None else place_of(gap.after)
            before = (1 << 63, 0) if gap.before is None else place_of(gap.before)
            intervals[gap["group"], f"R{gap.ring_seq}@{gap.ring_rep}"].append((after, before))
    seen_to = defaultdict(list)
    for span in archive.spans.collect():
        seen_to[span["group"], f"R{span.ring_seq}@{span.ring_rep}"].append((place_of(span.hi), span.next_ring_seq is not None))
    missing = 0
    for run, _, one in archive.told():
        spanned = seen_to[run.group, one.ring]
        is_of_an_unseen_side = bool(spanned) and any(went_on for _, went_on in spanned) and one.place > max(spanned)[0]
        if one.conf != one.ring or not _is_ordered(run, one) or not spanned or is_of_an_unseen_side:
            continue
        is_in_gap = any(after < one.place < before for after, before in intervals[run.group, one.ring])
        is_archived = (run.group, one.process, one.counter) in archive.messages
        assert is_in_gap != is_archived, (run.group, one)
        missing += is_in_gap
    assert missing > 20


def _is_ordered(run: Archived, one: Told) -> bool:
    return one.service.name in ("AGREED", "SAFE") or ("totem" in run.group and one.service.name == "CAUSAL")


def test_an_absence_that_the_other_archiver_covered_is_no_gap(archive: Archive) -> None:
    """Lives begin in the middle of rings, and only some of these beginnings are gaps."""
    begun = [row for row in archive.rows if row["kind"] == "begin"]
    told = {(gap["group"], gap.ring_seq, gap.ring_rep, place_of(gap.before)) for gap in archive.gaps if gap.before is not None}
    covered = [row for row in begun if (row["group"], row["ring_seq"], row["ring_rep"], place_of(row)) not in told]
    assert 0 < len(covered) < len(begun)


def test_a_component_that_nobody_archived_is_unseen(archive: Archive) -> None:
    shown = {(row["group"], row["view"]) for row in archive.rows if row["kind"] == "view"}
    for gap in archive.gaps:
        if gap.kind == UNSEEN:
            assert (gap["group"], gap["view"]) not in shown


# -- sides -----------------------------------------------------------------------------------------------------------


class Shown(NamedTuple):
    parting: int
    side: str
    key: MessageKey


def test_what_only_one_side_saw_is_what_nodes_of_that_side_were_handed(archive: Archive) -> None:
    found = [Shown(row.parting, row.side, key_of(row)) for row in archive.apart.collect()]
    assert len(set(found)) == len(found) > 100
    handed = defaultdict(set)
    for run, node, one in archive.told():
        handed[run.group, one.process, one.counter].add(node)
    went = {(f"R{row.ring_seq}@{row.ring_rep}", f"R{row.next_ring_seq}@{row.next_ring_rep}") for row in archive.spans.collect()}
    wanted = set()
    for parting in archive.lineage.partings:
        between = {str(ring): label for ring, label in parting.between}
        archived = [_archived_ways(archive.lineage, parting, side, went) for side in parting.sides]
        for key, row in archive.messages.items():
            ring = f"R{row.ring_seq}@{row.ring_rep}"
            if ring in between:
                wanted.add(Shown(parting.number, between[ring], key))
            elif ring == str(parting.ring):
                having = [side for side, ways in enumerate(archived, 1) if any(nodes & handed[key] for nodes in ways)]
                whole = [side.number for side, ways in zip(parting.sides, archived, strict=True) if len(ways) == len(side.firsts)]
                if having and set(whole) - set(having):
                    wanted.add(Shown(parting.number, "+".join(map(str, having)), key))
    assert _reliable(archive, found) == _reliable(archive, wanted)
    at_the_end = [one for one in found if archive.messages[one.key].transitional]
    assert len(at_the_end) > 5


def _reliable(archive: Archive, found: Any) -> set[Shown]:
    """Without basic messages: a node may have one that its archiver has not. And without those that are not ordered and came
    before an archiver did, of which nobody can say who has them."""
    begun = defaultdict(list)
    for span in archive.spans.collect():
        if not span.from_start and span.next_ring_seq is not None:
            begun[span["group"], span.ring_seq, span.ring_rep].append(place_of(span.lo))
    return {one for one in found if _is_certain(archive.messages[one.key], begun)}


def _is_certain(row: Row, begun: dict[Any, list[tuple[int, int]]]) -> bool:
    later = [place for place in begun[row["group"], row.ring_seq, row.ring_rep] if place_of(row) <= place]
    return row.service != "basic" and (row.ordered or not later)


def _archived_ways(lineage: Lineage, parting: RingParting, side: Side, went: set[tuple[str, str]]) -> list[set[str]]:
    """The nodes of each way into that side that an archiver went, too."""
    firsts = [lineage.known[first] for first in side.firsts if (str(parting.ring), str(first)) in went]
    return [{node for node, ring in zip(one.nodes, one.previous, strict=True) if ring == parting.ring} for one in firsts]


def _nodes_of(parting: RingParting, side: str) -> set[str]:
    return set(parting.sides[int(side) - 1].nodes)


def test_histories_side_by_side_are_those_of_nodes_on_that_side(archive: Archive) -> None:
    told = side_by_side(archive.stream, archive.spans, archive.once, views(archive.stream), archive.lineage)
    rows = told.orderBy("parting", "side", *history_order()).collect()
    histories = defaultdict(list)
    for row in rows:
        if row.kind == "message" and row.ordered:
            histories[row.parting, row.side].append(key_of(row))
    assert {row.kind for row in rows} == {"message", "view"} and len(histories) > 10
    order = _orders_of_nodes(archive)
    for (number, side), history in histories.items():
        assert len(set(history)) == len(history)
        nodes = _nodes_of(archive.lineage.partings[number - 1], side)
        for node in nodes & order.keys():
            ranks = [order[node][key] for key in history if key in order[node]]
            assert ranks == sorted(ranks)


def _orders_of_nodes(archive: Archive) -> dict[str, dict[MessageKey, int]]:
    return {
        node: {(run.group, one.process, one.counter): rank for rank, one in enumerate(told)}
        for run in archive.runs
        for node, told in run.told.items()
    }


# -- one history -----------------------------------------------------------------------------------------------------


def test_one_history_is_dense_and_keeps_the_order_of_every_node(archive: Archive) -> None:
    rows = merged(archive.stream, archive.spans, archive.once, archive.lineage, "larger").collect()
    by_group = defaultdict(list)
    for row in rows:
        by_group[row["group"]].append(row)
    assert {key_of(row) for row in rows} == archive.messages.keys()
    order = _orders_of_nodes(archive)
    for found in by_group.values():
        found.sort(key=lambda row: row.merged_position)
        assert [row.merged_position for row in found] == list(range(1, len(found) + 1))
        for ranks in order.values():
            placed = [ranks[key_of(row)] for row in found if row.ordered and key_of(row) in ranks]
            assert placed == sorted(placed)
    inner: dict[MessageKey, tuple[int | None, str | None]] = dict.fromkeys(archive.messages, (None, None))
    for row in sorted(archive.apart.collect(), key=lambda row: row.parting):
        inner[key_of(row)] = (row.parting, row.side)
    assert {key_of(row): (row.parting, row.side) for row in rows} == inner


@pytest.mark.parametrize("step", [1, 1 << 15], ids=["as totem", "as lansis"])
def test_blocks_are_as_many_as_the_messages_need_however_places_are_counted(spark: SparkSession, step: int) -> None:
    """On lansis a tick of its clock is 32,768 places: by places each tick or two were a block."""
    count = 10 * BLOCK
    ranks = spark.range(count).withColumn("turn", F.when(F.col("id") < BLOCK, 0).otherwise(1))
    own = {
        "group": F.lit("g"),
        "place_seq": F.col("id") * step,
        "ring_seq": F.col("turn"),
        "ordered": F.lit(True),
        "row": F.col("id"),
    }
    empty = {name: F.lit(0) for name in (*MESSAGES, *SIDE) if name not in own}
    blocks = in_blocks(ranks.withColumns(own | empty))
    sizes = blocks.groupBy("turn", "block").count().collect()
    assert len(sizes) == 10
    assert max(row["count"] for row in sizes) <= BLOCK + 1
    wrong = numbered(ranks.withColumns(own | empty)).where(F.col("merged_position") != F.col("row") + 1)
    assert wrong.count() == 0


def test_keys_that_sides_touched_apart_collide(archive: Archive) -> None:
    rows = archive.apart.collect()
    touched = defaultdict(Counter)
    for row in rows:
        touched[row["group"], row.parting, str(json.loads(row.value)["seat"])][row.side] += 1
    wanted = {key: counts for key, counts in touched.items() if _are_apart(list(counts))}
    found = conflicts(with_keys(archive.apart, {"seat": "$.seat"}), ["seat"]).collect()
    assert {(row["group"], row.parting, row.seat): {one.side: one.messages for one in row.touched} for row in found} == wanted
    assert len(wanted) > 10


def _are_apart(sides: list[str]) -> bool:
    return any(not set(one.split("+")) & set(other.split("+")) for one in sides for other in sides)


def test_values_that_are_no_json_have_no_key(spark: SparkSession) -> None:
    values = [b'{"a": {"b": [1, 2]}}', b'{"a": 3}', b"\xff\xfe", b"", b"[1"]
    rows = spark.createDataFrame([(value,) for value in values], "value binary")
    found = with_keys(rows, {"b": "$.a.b[1]"}).select(F.col("b"), F.col("is_json")).collect()
    assert [tuple(row) for row in found] == [("2", True), (None, True), (None, False), (None, False), (None, False)]
