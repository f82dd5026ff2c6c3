"""What nodes saw of their ring over time: visits and rotations of the token, backlog, retransmissions, losses.

The token itself is not recorded. But a node that had something left to send after a visit sends again at the next one, so the
time between the two is a rotation; and what was submitted and neither sent nor refused is the backlog.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from transis.pipeline.measure.cells import with_bins
from transis.pipeline.measure.clocks import Clocks
from transis.pipeline.measure.schemas import RING
from transis.pipeline.tables import Tables

NOTES: Final = {"tokens_retransmitted": "token retransmitted", "tokens_lost": "token lost", "state_changes": "state"}
"""Notes that are counted, by column."""

KEY: Final = ["run", "node", "bin_us"]


def ring(tables: Tables, known: Clocks, cut: DataFrame, node_names: DataFrame) -> DataFrame:
    """RING: a row for each node and bin in which anything of it happened."""
    visited = with_bins(queue(tables), known, cut).groupBy(*KEY).agg(
        F.count_if(F.col("is_visit")).alias("visits"),
        F.percentile_approx("rotation_us", 0.5).cast("double").alias("rotation_us"),
        F.max("backlog").alias("backlog"),
    )  # fmt: skip
    rows = visited.join(_noted(with_bins(tables["notes"], known, cut)), KEY, "full")
    counts = ["visits", "retransmitted", *NOTES]
    return rows.join(F.broadcast(node_names.select("node", "node_name")), "node").fillna(0, counts).select(*RING.names)


def queue(tables: Tables) -> DataFrame:
    """Every moment at which a node's backlog changed: run, node, time_us, backlog, is_visit, rotation_us.

    All SENDs of one moment are of one visit of the token.
    """
    changes = [
        tables[kind].select("run", "node", "lseq", "time_us", change.alias("change"), F.lit(kind == "sends").alias("is_visit"))
        for kind, change in (("submits", F.col("count")), ("sends", -F.col("count")), ("refusals", -F.col("count")))
    ]
    moments = changes[0].unionByName(changes[1]).unionByName(changes[2]).groupBy("run", "node", "time_us").agg(
        F.sum("change").alias("change"), F.max("is_visit").alias("is_visit")
    )  # fmt: skip
    life = Window.partitionBy("node").orderBy("time_us")
    queued = moments.withColumn("backlog", F.sum("change").over(life))
    visits = Window.partitionBy("node", "is_visit").orderBy("time_us")
    since = F.col("time_us") - F.lag("time_us").over(visits)
    waited = F.col("is_visit") & (F.lag("backlog").over(visits) > 0)
    return queued.withColumn("rotation_us", F.when(waited, since))


def _noted(notes: DataFrame) -> DataFrame:
    again = F.when(F.col("what") == "retransmitted", _number_in_detail("count"))
    counted = (F.count_if(F.col("what") == what).alias(column) for column, what in NOTES.items())
    return notes.groupBy(*KEY).agg(F.sum(again).alias("retransmitted"), *counted)


def _number_in_detail(key: str) -> Column:
    return F.expr(f"bigint(filter(detail, one -> one.key = '{key}')[0].value)")
