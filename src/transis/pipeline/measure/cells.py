"""Deliveries counted once, at the finest grain that any table shows: who, from whom, to whom, when, how large, how late.

One pass over the large table; throughput, latency and the figures are sums over these cells.
"""

from __future__ import annotations

from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from transis.pipeline.measure.clocks import Clocks, told_by, told_by_reference, with_origins
from transis.pipeline.measure.schemas import CELLS
from transis.pipeline.tables import Tables

BUCKETS_AN_OCTAVE: Final = 8
"""A bucket of the latency is then about 9 % wide."""

NOT_POSITIVE: Final = -1
"""The bucket of what arrived at once, or, within the uncertainty of the clocks, seems to arrive before it left."""

BINS: Final = 100
"""Bins of time that a run has at most."""

_STEPS: Final = [digit * 10**power for power in range(3, 13) for digit in (1, 2, 5)]
"""Widths of bins in microseconds, from a millisecond on: those that people read easily."""

_SIZES: Final = [64 * 4**power for power in range(9)]
"""Classes of size: messages of up to so many bytes; what is larger is in the last."""


def bins(known: Clocks) -> DataFrame:
    """run, bin_width_us, from_us, to_us: how the time of each run is cut."""
    edges = [known.spans.select("run", "node", F.col(edge).alias("edge_us")) for edge in ("first_us", "last_us")]
    told = told_by_reference(edges[0].unionByName(edges[1]).where("edge_us is not null"), known, "edge_us", "edge_us")
    ends = told.groupBy("run").agg(F.min("edge_us").alias("from_us"), F.max("edge_us").alias("to_us"))
    return ends.withColumn("bin_width_us", _first_of(_STEPS, (F.col("to_us") - F.col("from_us")) / BINS))


def with_bins(rows: DataFrame, known: Clocks, cut: DataFrame) -> DataFrame:
    """Events of nodes with `bin_us` and its `bin_width_us`; `cut` is what `bins` gave."""
    told = told_by_reference(rows, known, "time_us", "run_us").join(F.broadcast(cut.select("run", "bin_width_us")), "run")
    return told.withColumn("bin_us", _bin("run_us")).drop("run_us_uncertainty")


def cells(tables: Tables, known: Clocks, cut: DataFrame) -> DataFrame:
    """CELLS of all deliveries."""
    told = told_by(with_origins(tables["deliveries"], known.spans, known.skews), known.clocks, "sender", "origin_us", "sent_us")
    told = told_by(told, known.clocks, "node", "time_us", "run_us").join(F.broadcast(cut), "run")
    latency, uncertainty = _latency()
    placed = told.select(
        "run", "node", "sender", "address", "service", "count", "size",
        _first_of(_SIZES, F.col("size") / F.col("count")).alias("size_up_to"), _bin("run_us").alias("bin_us"),
        bucket_of(latency).alias("bucket"), (latency * F.col("count")).alias("waited"), uncertainty.alias("uncertainty_us"),
    )  # fmt: skip
    return placed.groupBy(*CELLS.names[:8]).agg(
        F.sum("count").alias("messages"), F.sum("size").alias("bytes"), F.sum("waited").cast("double").alias("latency_sum_us"),
        F.max("uncertainty_us").alias("uncertainty_us"),
    )  # fmt: skip


def _latency() -> tuple[Column, Column]:
    """The latency and its uncertainty: a node's own messages need no other clock; those of others one that both were compared
    with, or else the times are taken as they are."""
    is_own = F.col("sender") == F.col("node")
    is_comparable = ~is_own & (F.col("sent_us_reference") == F.col("run_us_reference"))
    latency = F.when(is_comparable, F.expr("run_us - sent_us")).otherwise(F.expr("time_us - origin_us"))
    compared = F.when(is_comparable, F.col("sent_us_uncertainty") + F.col("run_us_uncertainty"))
    return latency, F.col("origin_us_uncertainty") + F.when(is_own, 0.0).otherwise(compared)


def bucket_of(latency: Column) -> Column:
    bucket = F.floor(F.log2(latency) * BUCKETS_AN_OCTAVE).cast("int")
    return F.when(latency > 0, bucket).otherwise(F.lit(NOT_POSITIVE))


def bucket_edges(bucket: str = "bucket") -> tuple[Column, Column]:
    """Where a bucket begins and ends, in microseconds."""
    from_us = F.when(F.col(bucket) >= 0, F.pow(F.lit(2.0), F.col(bucket) / BUCKETS_AN_OCTAVE)).otherwise(0.0)
    to_us = F.when(F.col(bucket) >= 0, F.pow(F.lit(2.0), (F.col(bucket) + 1) / BUCKETS_AN_OCTAVE)).otherwise(1.0)
    return from_us, to_us


def by_group(cells: DataFrame, tables: Tables) -> DataFrame:
    """Cells with `group` and `group_name`, once for each group that they are addressed to; null for those without an address."""
    to = tables.names("addresses").select("address", F.explode_outer("groups").alias("group"))
    names = tables["group_views"].groupBy("group").agg(F.min("name").alias("group_name"))
    named = to.join(names, "group", "left").withColumn("group_name", F.coalesce("group_name", F.lower(F.hex("group"))))
    return cells.join(F.broadcast(named), "address", "left")


def _bin(time: str) -> Column:
    return (F.floor(F.col(time) / F.col("bin_width_us")) * F.col("bin_width_us")).cast("long")


def _first_of(steps: list[int], least: Column) -> Column:
    """The first step that is not below; the last one if all are."""
    others = reversed(steps[:-1])
    return reduce(lambda rest, step: F.when(least <= step, step).otherwise(rest), others, F.lit(steps[-1])).cast("long")
