"""Histories of components that were parted, side by side, and what only one side saw.

1. A ring that nobody else saw belongs to its side with everything in it: the lineage says which.
2. Of the ring that parted, all have the same beginning. Each side's own end of it begins above the lowest last place that a side
   delivered in the regular configuration: there a side may have delivered more, or other messages in its transitional one. An
   archiver speaks for the side that it went to; a life that ended in that ring speaks for none.
3. A side lacks a message of that end only if archivers went to all rings that it began with, and none of them has it.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from transis.audit.plans.tables import INT, LONG, TEXT, columns
from transis.pipeline.archive.columns import (
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
from transis.pipeline.archive.lineage import Lineage
from transis.pipeline.archive.rings import Configuration, Ring, ring_of
from transis.types.errors import PipelineError

LINEAGE_MAX: Final = 100_000
"""Configurations that are laid out in memory: one view change every minute for two months."""

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
        Configuration(
            Ring(row.ring_seq, row.ring_rep),
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
    """Messages that a side of a parting saw and another did not, with `parting` and `side`. A message of a parting inside of a
    side is there for both."""
    own = messages.join(rings_apart(stream.sparkSession, lineage), list(RING))
    return own.select(*SIDE, *MESSAGES).unionByName(ends_apart(stream, spans, lineage))


def ends_apart(stream: DataFrame, spans: DataFrame, lineage: Lineage) -> DataFrame:
    """Messages of rings that parted which one side delivered there and another did not, each once."""
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
    """Whether a side has the message of a row: its archiver does, or the place is on its line, or what is not ordered came before
    anybody archived there, so that nobody can say that it lacks it."""
    is_on_line = F.when(F.col("ordered"), place() <= end.hi).otherwise(place() <= end.lo)
    return (end.side == F.col("side")) | is_on_line


def side_by_side(stream: DataFrame, spans: DataFrame, messages: DataFrame, views: DataFrame, lineage: Lineage) -> DataFrame:
    """What each side delivered from the point where they parted: messages and views, with `parting` and `side`. Sort it by both
    and by `columns.history_order`."""
    shown = _behind_the_parting(stream.where(F.col("kind").isin(MESSAGE, VIEW)), spans, lineage)
    each = Window.partitionBy(*SIDE, "kind", *MESSAGE_ID, "view").orderBy(*history_order())
    ends = shown.withColumn("rank", F.row_number().over(each)).where("rank = 1").select(*SIDE, *HISTORY)
    told = messages.withColumn("kind", F.lit(MESSAGE)).unionByName(
        views.withColumn("kind", F.lit(VIEW)), allowMissingColumns=True
    )
    apart = told.join(rings_apart(stream.sparkSession, lineage), list(RING))
    sides = F.explode(F.split("side", "[+]")).alias("side")
    return ends.unionByName(apart.select("parting", sides, *HISTORY))


def _behind_the_parting(rows: DataFrame, spans: DataFrame, lineage: Lineage) -> DataFrame:
    """Rows of rings that parted, behind what all sides are sure to have, with `parting`, the `side` that the archiver went to,
    and `ends`: the first and the last regular place of every way that an archiver went, and whether all ways of that side were
    gone. What stands at such a place and is not ordered came behind it."""
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
    began = F.when(~F.max("from_start"), F.min("lo"))  # Null if somebody was there from the beginning of the ring.
    ends = ways_taken.agg(began.alias("lo"), F.max("hi").alias("hi"))
    is_whole = F.count("*").over(Window.partitionBy("group", *SIDE)) == F.col("firsts")
    by_parting = ends.withColumn("is_whole", is_whole).groupBy("group", "parting")
    compared = by_parting.agg(F.min("hi").alias("lowest"), F.collect_list(F.struct("side", "lo", "hi", "is_whole")).alias("ends"))
    return by.select(*LIFE, *RING, *SIDE).join(F.broadcast(compared), ["group", "parting"])
