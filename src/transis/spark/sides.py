"""Histories of components that parted: side by side, what only one side saw, which keys collide, and one history by a policy.

1. A ring that only one side saw belongs to that side with everything in it: the lineage says which.
2. Of the ring that parted, all have the same beginning. Each side's own end of it begins above the lowest last place that a side
   delivered in the regular configuration: there a side may have delivered more, or other messages in its transitional one. An
   archiver speaks for the side that it went to; a life that ended in that ring speaks for none.
3. A side lacks a message of that end only if archivers went to all rings that it began with, and none of them has it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from transis.spark.archive import (
    LIFE,
    MESSAGE,
    MESSAGE_ID,
    MESSAGES,
    PLACE,
    RING,
    SIDE,
    VIEW,
    VIEWS,
    history_order,
    is_message,
    place,
)
from transis.spark.inputs import INT, LONG, TEXT, columns
from transis.spark.lineage import ArchivedConfiguration, Lineage, Policy, RingName, ring_of
from transis.types.errors import PipelineError, UsageError

# --- sides ------------------------------------------------------------------------------------------------------------

LINEAGE_MAX: Final = 100_000
"""The most configurations that are held in memory: one view change every minute for two months."""

_BETWEEN: Final = columns(ring_seq=LONG, ring_rep=TEXT, parting=INT, side=TEXT)
_WAYS: Final = columns(ring_seq=LONG, ring_rep=TEXT, next_ring_seq=LONG, next_ring_rep=TEXT, parting=INT, side=TEXT, firsts=INT)
HISTORY: Final = tuple(dict.fromkeys(("kind", *MESSAGES, *VIEWS)))
"""Columns of a history with messages and views."""


def lineage_of(configurations: DataFrame) -> Lineage:
    """Collects the regular configurations, which are few."""
    wanted = configurations.where("not transitional").select(
        *RING, "nodes", "previous", "primary", F.unix_micros("seen_at").alias("seen_us"), "hosts", "brought"
    )
    rows = wanted.limit(LINEAGE_MAX + 1).collect()
    if len(rows) > LINEAGE_MAX:
        raise PipelineError(f"the archive has more than {LINEAGE_MAX:,} configurations: read a part of its files")
    return Lineage(
        ArchivedConfiguration(
            RingName(row.ring_seq, row.ring_rep),
            tuple(row.nodes),
            tuple(None if one is None else ring_of(one) for one in row.previous),
            row.primary,
            row.seen_us,
            None if row.hosts is None else frozenset(row.hosts),
            frozenset(row.brought),
        )
        for row in rows
    )


def rings_apart(spark: SparkSession, lineage: Lineage) -> DataFrame:
    """Rings that not all sides of a parting saw: ring_seq, ring_rep, parting, side."""
    rows = [(*ring, parting.number, side) for parting in lineage.partings for ring, side in parting.between]
    return F.broadcast(spark.createDataFrame(rows, _BETWEEN))


def only_one_side(stream: DataFrame, spans: DataFrame, messages: DataFrame, lineage: Lineage) -> DataFrame:
    """Messages that a side of a parting saw and another did not, with `parting` and `side`. A message of a parting within a side
    is listed for both partings."""
    own = messages.join(rings_apart(stream.sparkSession, lineage), list(RING))
    return own.select(*SIDE, *MESSAGES).unionByName(ends_apart(stream, spans, lineage))


def ends_apart(stream: DataFrame, spans: DataFrame, lineage: Lineage) -> DataFrame:
    """Messages that one side delivered in a ring that parted and another side did not, each once."""
    has = F.filter("ends", _has)
    rows = _behind_the_parting(stream.where(is_message()), spans, lineage).withColumn(
        "having", F.transform(has, lambda e: e.side)
    )
    first = F.min_by(F.struct(*MESSAGES), F.struct(*RING, *PLACE, "archiver", "life", "row"))
    found = rows.groupBy("parting", *MESSAGE_ID).agg(
        F.array_sort(F.array_distinct(F.flatten(F.collect_list("having")))).alias("having"),
        F.first("ends").alias("ends"),
        first.alias("copy"),
    )
    lacking = F.exists("ends", lambda end: end.is_whole & ~F.array_contains("having", end.side))
    return found.where(lacking).select("parting", F.concat_ws("+", "having").alias("side"), "copy.*")


def _has(end: Column) -> Column:
    """Whether a side has the message of a row: its archiver has it, or the place is on its line, or the message is unordered
    and came before anybody archived there, so that nobody can say that the side lacks it."""
    is_on_line = F.when(F.col("ordered"), place() <= end.hi).otherwise(place() <= end.lo)
    return (end.side == F.col("side")) | is_on_line


def side_by_side(stream: DataFrame, spans: DataFrame, messages: DataFrame, views: DataFrame, lineage: Lineage) -> DataFrame:
    """What each side delivered from the point where they parted: messages and views, with `parting` and `side`. Sort it by both
    and by `columns.history_order`."""
    shown = _behind_the_parting(stream.where(F.col("kind").isin(MESSAGE, VIEW)), spans, lineage)
    each = Window.partitionBy(*SIDE, "kind", *MESSAGE_ID, "view").orderBy(*history_order())
    ends = shown.withColumn("rank", F.row_number().over(each)).where("rank = 1").select(*SIDE, *HISTORY)
    placed = messages.withColumn("kind", F.lit(MESSAGE)).unionByName(
        views.withColumn("kind", F.lit(VIEW)), allowMissingColumns=True
    )
    apart = placed.join(rings_apart(stream.sparkSession, lineage), list(RING))
    sides = F.explode(F.split("side", "[+]")).alias("side")
    return ends.unionByName(apart.select("parting", sides, *HISTORY))


def _behind_the_parting(rows: DataFrame, spans: DataFrame, lineage: Lineage) -> DataFrame:
    """Rows of rings that parted, behind what all sides are sure to have, with `parting`, the `side` that the archiver went to,
    and `ends`: the first and the last regular place of every way that an archiver took, and whether all ways of that side were
    taken. What stands at such a place and is not ordered came after it."""
    is_behind = (place() > F.col("lowest")) | (~F.col("ordered") & (place() == F.col("lowest")))
    passing = F.broadcast(_passing(spans, lineage))
    return rows.join(passing, [*LIFE, *RING]).where(is_behind)


def _passing(spans: DataFrame, lineage: Lineage) -> DataFrame:
    """Lives that went from a ring that parted to one of its sides."""
    ways = [
        (*parting.ring, *first, parting.number, str(side.number), len(side.firsts))
        for parting in lineage.partings
        for side in parting.sides
        for first in side.firsts
    ]
    by = spans.join(F.broadcast(spans.sparkSession.createDataFrame(ways, _WAYS)), [*RING, "next_ring_seq", "next_ring_rep"])
    by = by.where("hi is not null")
    ways_taken = by.groupBy("group", *SIDE, "firsts", "next_ring_seq", "next_ring_rep")
    began = F.when(~F.max("from_start"), F.min("lo"))  # Null if an archiver was there from the beginning of the ring.
    ends = ways_taken.agg(began.alias("lo"), F.max("hi").alias("hi"))
    is_whole = F.count("*").over(Window.partitionBy("group", *SIDE)) == F.col("firsts")
    by_parting = ends.withColumn("is_whole", is_whole).groupBy("group", "parting")
    compared = by_parting.agg(F.min("hi").alias("lowest"), F.collect_list(F.struct("side", "lo", "hi", "is_whole")).alias("ends"))
    return by.select(*LIFE, *RING, *SIDE).join(F.broadcast(compared), ["group", "parting"])


# --- reconciling ------------------------------------------------------------------------------------------------------

PATH: Final = r"\$(\.[A-Za-z_]\w*|\[\d{1,9}\]|\['[^']*'\])+"
NAME: Final = r"[A-Za-z_]\w*"
BLOCK: Final = 1 << 12
"""How many messages of one ring are numbered together, if they are spread evenly over its places."""

RESERVED: Final = frozenset({*MESSAGES, *SIDE, "merged_position", "sides", "touched", "messages", "first", "is_json", "parsed"})
"""Columns of the tables that keys are in, and of the jobs that make these. To Spark capitals make no difference."""

_ORDER: Final = columns(ring_seq=LONG, ring_rep=TEXT, turn=INT)


def read_keys(given: Sequence[str]) -> dict[str, str]:
    """`flight=$.flight` as a name and a path. UsageError for anything else, and for a name that would hide a column of
    messages."""
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
    """Columns from values that are JSON, as text; null where a value is not JSON (see `is_json`) or has nothing there."""
    for rank, name in enumerate(keys):
        if _is_taken(name, [*rows.columns, *list(keys)[:rank]]):
            raise UsageError(f"keys: the name {name!r} is taken by another column: choose another one")
    parsed = F.try_parse_json(F.col("value").cast("string"))
    named = {name: F.try_variant_get(F.col("parsed"), path, "string") for name, path in keys.items()}
    found = rows.withColumn("parsed", parsed).withColumns({**named, "is_json": F.col("parsed").isNotNull()})
    return found.drop("parsed")


def conflicts(rows: DataFrame, key: Sequence[str]) -> DataFrame:
    """From `only_one_side` with a user's columns: keys that were touched by sides which did not see each other. `touched` has,
    for each side, how many messages touched the key, and the first of them."""
    whole = rows.dropna(subset=list(key))
    first = F.min_by(F.struct("process", "counter"), F.struct(*RING, *PLACE, "archiver", "life", "row"))
    by_side = whole.groupBy("group", *SIDE, *key).agg(F.count("*").alias("messages"), first.alias("first"))
    found = by_side.groupBy("group", "parting", *key).agg(
        F.array_sort(F.collect_list(F.struct("side", "messages", "first.process", "first.counter"))).alias("touched")
    )
    return found.where(_sides_apart("touched.side"))


def _sides_apart(sides: str) -> Column:
    """Whether two of them have no side in common."""
    return F.expr(f"exists({sides}, one -> exists({sides}, other -> not arrays_overlap(split(one, '[+]'), split(other, '[+]'))))")


def merged(stream: DataFrame, spans: DataFrame, messages: DataFrame, lineage: Lineage, policy: Policy) -> DataFrame:
    """All messages as one history: `merged_position` counts from 1. Rings come in the order of the policy, messages in the order
    of their ring. `parting` and `side` are null for what all saw; of nested partings they are the inner one's."""
    spark = stream.sparkSession
    turns = [(*ring, turn) for ring, turn in lineage.linear(policy).items()]
    placed = messages.join(F.broadcast(spark.createDataFrame(turns, _ORDER)), list(RING), "left")
    placed = placed.withColumn("turn", F.coalesce("turn", F.lit(len(turns))))  # Rings that the lineage lacks go to the end.
    return numbered(_with_origin(placed, ends_apart(stream, spans, lineage), _origins(spark, lineage)))


def _origins(spark: SparkSession, lineage: Lineage) -> DataFrame:
    rows = [(*ring, *origin) for ring, origin in lineage.origins().items()]
    return F.broadcast(spark.createDataFrame(rows, rings_apart(spark, lineage).schema))


def _with_origin(placed: DataFrame, ends: DataFrame, origins: DataFrame) -> DataFrame:
    inner = ends.groupBy(*MESSAGE_ID).agg(F.max(F.struct(*SIDE)).alias("end"))
    found = placed.join(origins, list(RING), "left").join(F.broadcast(inner), list(MESSAGE_ID), "left")
    return found.withColumns({name: F.coalesce(f"end.{name}", name) for name in SIDE}).drop("end")


def numbered(rows: DataFrame) -> DataFrame:
    """Dense numbers without one task that sees everything: blocks of places are counted, then each is numbered from its start."""
    block = ("turn", "block")
    blocks = in_blocks(rows)
    sizes = blocks.groupBy("group", *block).agg(F.count("*").alias("size"))
    before = Window.partitionBy("group").orderBy(*block).rowsBetween(Window.unboundedPreceding, -1)
    starts = sizes.select("group", *block, F.coalesce(F.sum("size").over(before), F.lit(0)).alias("start"))
    rank = F.row_number().over(Window.partitionBy("group", *block).orderBy(*history_order()))
    counted = blocks.join(F.broadcast(starts), ["group", *block]).withColumn("merged_position", F.col("start") + rank)
    return counted.select("merged_position", *SIDE, *MESSAGES)


def in_blocks(rows: DataFrame) -> DataFrame:
    """Adds the `block` of each row: a ring has blocks of equal width, as many as it has messages for. A place is one datagram
    on the engine `totem`, and every 32,768th number at most on `lansis`: only the messages themselves say how many blocks are
    worth it."""
    first, last = F.min("place_seq"), F.max("place_seq")
    width = (last - first + 1) / F.ceil(F.count("*") / BLOCK)
    rings = rows.groupBy("group", "turn").agg(first.alias("first"), width.alias("width"))
    block = F.floor((F.col("place_seq") - F.col("first")) / F.col("width"))
    return rows.join(F.broadcast(rings), ["group", "turn"]).withColumn("block", block).drop("first", "width")
