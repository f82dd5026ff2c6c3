"""Reconciling what sides did apart: keys that several of them touched, and one history of all by a policy."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from transis.audit.plans.tables import INT, LONG, TEXT, columns
from transis.pipeline.archive.columns import MESSAGE_ID, MESSAGES, PLACE, RING, SIDE, history_order
from transis.pipeline.archive.lineage import Lineage, Policy
from transis.pipeline.archive.sides import ends_apart, rings_apart
from transis.types.errors import UsageError

PATH: Final = r"\$(\.[A-Za-z_]\w*|\[\d{1,9}\]|\['[^']*'\])+"
NAME: Final = r"[A-Za-z_]\w*"
BLOCK: Final = 1 << 12
"""Messages of one ring that are numbered together, if they are spread evenly over its places."""

RESERVED: Final = frozenset({*MESSAGES, *SIDE, "merged_position", "sides", "touched", "messages", "first", "is_json", "parsed"})
"""Columns of the tables that keys are in, and of the jobs that make them. Spark takes capitals for the same name."""

_ORDER: Final = columns(ring_seq=LONG, ring_rep=TEXT, turn=INT)


def read_keys(given: Sequence[str]) -> dict[str, str]:
    """`flight=$.flight` as a name and a path; what is no such thing, or would hide a column of messages, is a UsageError."""
    found: dict[str, str] = {}
    for one in given:
        name, _, path = one.partition("=")
        if not re.fullmatch(NAME, name) or not re.fullmatch(PATH, path):
            raise UsageError(f"--key {one!r}: write NAME=$.path, for instance seat=$.seat")
        if _is_taken(name, found):
            raise UsageError(f"--key {one!r}: the name {name!r} is taken: choose another one")
        found[name] = path
    return found


def _is_taken(name: str, others: Iterable[str]) -> bool:
    return name.casefold() in RESERVED.union(map(str.casefold, others))


def with_keys(rows: DataFrame, keys: Mapping[str, str]) -> DataFrame:
    """Columns out of values that are JSON, as text; null where a value is none or has nothing there. `is_json` tells which."""
    for rank, name in enumerate(keys):
        if _is_taken(name, [*rows.columns, *list(keys)[:rank]]):
            raise UsageError(f"keys: the name {name!r} is taken by another column: choose another one")
    parsed = F.try_parse_json(F.col("value").cast("string"))
    named = {name: F.try_variant_get(F.col("parsed"), path, "string") for name, path in keys.items()}
    found = rows.withColumn("parsed", parsed).withColumns({**named, "is_json": F.col("parsed").isNotNull()})
    return found.drop("parsed")


def conflicts(rows: DataFrame, key: Sequence[str]) -> DataFrame:
    """Of `only_one_side` with a user's columns: keys that sides touched which did not see each other. `touched` has for each side
    how often it did, and its first message."""
    whole = rows.dropna(subset=list(key))
    first = F.min_by(F.struct("process", "counter"), F.struct(*RING, *PLACE, "archiver", "life", "row"))
    by_side = whole.groupBy("group", *SIDE, *key).agg(F.count("*").alias("messages"), first.alias("first"))
    found = by_side.groupBy("group", "parting", *key).agg(
        F.array_sort(F.collect_list(F.struct("side", "messages", "first.process", "first.counter"))).alias("touched")
    )
    return found.where(_sides_apart("touched.side"))


def _sides_apart(sides: str) -> Column:
    """Two of them have nobody in common."""
    return F.expr(f"exists({sides}, one -> exists({sides}, other -> not arrays_overlap(split(one, '[+]'), split(other, '[+]'))))")


def merged(stream: DataFrame, spans: DataFrame, messages: DataFrame, lineage: Lineage, policy: Policy) -> DataFrame:
    """All messages as one history: `merged_position` counts from 1. Rings come in the order of the policy, messages in the order
    of their ring. `parting` and `side` are null for what all saw; of partings inside of each other they are the inner one's."""
    spark = stream.sparkSession
    turns = [(*ring, turn) for ring, turn in lineage.linear(policy).items()]
    placed = messages.join(F.broadcast(spark.createDataFrame(turns, _ORDER)), list(RING), "left")
    placed = placed.withColumn("turn", F.coalesce("turn", F.lit(len(turns))))  # Of a ring that the lineage lacks nothing is lost.
    return numbered(_with_origin(placed, ends_apart(stream, spans, lineage), _origins(spark, lineage)))


def _origins(spark: SparkSession, lineage: Lineage) -> DataFrame:
    rows = [(*ring, *origin) for ring, origin in lineage.origins().items()]
    return F.broadcast(spark.createDataFrame(rows, rings_apart(spark, lineage).schema))


def _with_origin(placed: DataFrame, ends: DataFrame, origins: DataFrame) -> DataFrame:
    inner = ends.groupBy(*MESSAGE_ID).agg(F.max(F.struct(*SIDE)).alias("end"))
    found = placed.join(origins, list(RING), "left").join(F.broadcast(inner), list(MESSAGE_ID), "left")
    return found.withColumns({name: F.coalesce(f"end.{name}", name) for name in SIDE}).drop("end")


def numbered(rows: DataFrame) -> DataFrame:
    """Dense numbers without one task that sees all: blocks of places are counted, then each is numbered from where it begins."""
    block = ("turn", "block")
    blocks = in_blocks(rows)
    sizes = blocks.groupBy("group", *block).agg(F.count("*").alias("size"))
    before = Window.partitionBy("group").orderBy(*block).rowsBetween(Window.unboundedPreceding, -1)
    starts = sizes.select("group", *block, F.coalesce(F.sum("size").over(before), F.lit(0)).alias("start"))
    rank = F.row_number().over(Window.partitionBy("group", *block).orderBy(*history_order()))
    counted = blocks.join(F.broadcast(starts), ["group", *block]).withColumn("merged_position", F.col("start") + rank)
    return counted.select("merged_position", *SIDE, *MESSAGES)


def in_blocks(rows: DataFrame) -> DataFrame:
    """With the `block` of each in its ring, as many of equal width as it has messages for. A place is one datagram on the engine
    `totem`, and every 32,768th number at most on `lansis`: only the messages themselves say how many blocks are worth it."""
    first, last = F.min("place_seq"), F.max("place_seq")
    width = (last - first + 1) / F.ceil(F.count("*") / BLOCK)
    rings = rows.groupBy("group", "turn").agg(first.alias("first"), width.alias("width"))
    block = F.floor((F.col("place_seq") - F.col("first")) / F.col("width"))
    return rows.join(F.broadcast(rings), ["group", "turn"]).withColumn("block", block).drop("first", "width")
