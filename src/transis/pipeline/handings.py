"""What clients were handed, in short: between two barriers of a node one event hands over what many did before.

An event hands runs over right behind their delivery, and no barrier stands between. So the one that takes their place stands
right behind the last of its runs: no other event is there, and no barrier.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from transis.pipeline.audit.clients import handed_runs
from transis.pipeline.audit.group_recipients import CHANGES, in_spans
from transis.pipeline.audit.lay import Laid, Settle
from transis.pipeline.schemas import HANDED, KINDS, WAITED

BLOCK: Final = 1 << 16
"""Events of a node whose runs are handed over by one: an array should not become long."""


@dataclass(frozen=True)
class Handings:
    handed: DataFrame
    """run, node, lseq, groups, processes, run_lseq: a row per run and entry of a CDELIVER that becomes past."""
    marks: DataFrame
    """node, lseq: barriers that become past."""
    ways: DataFrame
    """node, run_lseq, way: a hash of who got a run through which groups."""
    waited: DataFrame
    """node, process, first, named: basic runs that are told to have waited."""
    settled: DataFrame
    """node, reach, settled_lseq: the last run that was handed over, and the last event by which it is known what became of the
    runs before it. One row a node with clients."""
    pieces: DataFrame
    """node, in_pieces: nodes that did not hand over each run at once, or of which nobody can say so."""


def handings_of(laid: Laid, events: DataFrame, cuts: DataFrame, settle: Settle) -> Handings:
    """`events` are CDELIVERs that become past, `cuts` as in shortened.py."""
    tables, ends = laid.tables, F.broadcast(cuts.select("node", "upto"))
    places = [tables[kind].select("node", "segment", "lseq") for kind in (*CHANGES, "confs")]
    marks = settle(reduce(DataFrame.unionByName, places).join(ends, "node").where("segment <= upto").select("node", "lseq"))
    handed = handed_runs(events)
    entry = F.array_sort(F.collect_list(F.struct("groups", "processes")))
    ways = handed.groupBy("node", "run_lseq").agg(F.xxhash64(entry).alias("way"), F.countDistinct("lseq").alias("events"))
    ways = settle(ways)
    waited = events.select("node", F.explode("waited").alias("one"))
    waited = waited.select("node", F.col("one.sender").alias("process"), "one.first", F.lit(True).alias("named")).distinct()
    crowd = reduce(DataFrame.unionByName, [tables[kind].select("node") for kind in (*CHANGES, "client_deliveries")]).distinct()
    crowd = settle(crowd.join(ends, "node").select("node"))
    gapped = laid.lives.where("gapped").select("node").join(crowd, "node")
    pieces = ways.where("events > 1").select("node").unionByName(gapped).distinct().withColumn("in_pieces", F.lit(True))
    return Handings(handed, marks, ways.drop("events"), waited, settle(_settled(crowd, marks, ways)), pieces)


def _settled(crowd: DataFrame, marks: DataFrame, ways: DataFrame) -> DataFrame:
    reached = ways.groupBy("node").agg(F.max("run_lseq").alias("reach"))
    barred = marks.groupBy("node").agg(F.max("lseq").alias("barred"))
    known = crowd.join(reached, "node", "left").join(barred, "node", "left")
    return known.select("node", "reach", F.coalesce(F.greatest("reach", "barred"), F.lit(0)).alias("settled_lseq"))


def short_events(events: DataFrame, short: DataFrame, handings: Handings) -> DataFrame:
    """CDELIVERs that hand over what is left. `short` has the deliveries that may be coalesced, and which of them are heads."""
    runs = short.select("node", F.col("lseq").alias("run_lseq"), "is_head", "segment", "conf_no", "time_us")
    placed = handings.handed.join(runs, ["node", "run_lseq"], "left")
    together = _together(placed.where("is_head"), handings.marks).withColumn("waited", F.array().cast(WAITED))
    columns = KINDS["client_deliveries"]
    both = together.select(*columns).unionByName(_others(events, placed.where("is_head is null")).select(*columns))
    key = ["run", "node", "lseq"]
    lists = [F.flatten(F.collect_list(name)).alias(name) for name in ("handed", "waited")]
    origin = [F.min(name).alias(name) for name in ("segment", "conf_no", "time_us")]
    return both.groupBy(*key).agg(*origin, *lists).select(*columns)


def _together(handed: DataFrame, marks: DataFrame) -> DataFrame:
    """One event for all heads between two barriers."""
    placed = in_spans(handed.drop("lseq").withColumn("lseq", F.col("run_lseq")), marks)
    key = ["run", "node", "span", "block"]
    last = F.struct("run_lseq", "segment", "conf_no", "time_us")
    entries = (
        placed.withColumn("block", F.expr(f"run_lseq div {BLOCK}"))
        .groupBy(*key, "groups", "processes")
        .agg(F.sort_array(F.collect_set("run_lseq")).alias("runs"), F.max(last).alias("last"))
    )
    entry = F.struct("groups", "processes", "runs")
    events = entries.groupBy(*key).agg(F.collect_list(entry).cast(HANDED).alias("handed"), F.max("last").alias("last"))
    return events.select("run", "node", "last.*", "handed").withColumn("lseq", F.col("run_lseq") + 1)


def _others(events: DataFrame, handed: DataFrame) -> DataFrame:
    """Events with what they hand over that stays as it is, and what had waited; those that are empty now are gone."""
    entries = handed.groupBy("node", "lseq", "groups", "processes").agg(F.sort_array(F.collect_set("run_lseq")).alias("runs"))
    entry = F.struct("groups", "processes", "runs")
    left = entries.groupBy("node", "lseq").agg(F.collect_list(entry).cast(HANDED).alias("left"))
    found = events.drop("handed").join(left, ["node", "lseq"], "left").where("left is not null or size(waited) > 0")
    return found.withColumn("handed", F.coalesce("left", F.array().cast(HANDED))).drop("left")
