"""Latency from origination to delivery: densities and percentiles, all of them sums over the buckets of the cells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from transis.pipeline.measure.cells import bucket_edges, by_group
from transis.pipeline.measure.schemas import DENSITIES, GROUP_LATENCY, LATENCY, LATENCY_SUMMARY
from transis.pipeline.tables import Tables

PERCENTILES: Final = {"p50_us": 0.5, "p90_us": 0.9, "p99_us": 0.99}

PATH: Final = ["run", "sender", "node", "service"]


def latency(cells: DataFrame, node_names: DataFrame) -> DataFrame:
    """A histogram for each path (sender to receiver) and service."""
    return with_names(histogram(cells, PATH), node_names).select(*LATENCY.names)


def latency_summary(cells: DataFrame, node_names: DataFrame) -> DataFrame:
    """Percentiles of each path and service."""
    return with_names(percentiles(cells, PATH), node_names).select(*LATENCY_SUMMARY.names)


def group_latency(cells: DataFrame, tables: Tables) -> DataFrame:
    """Percentiles of what was delivered for each group over time, at whichever node."""
    rows = by_group(cells, tables).where("group is not null")
    return percentiles(rows, ["run", "group", "group_name", "bin_us"]).select(*GROUP_LATENCY.names)


def densities(cells: DataFrame, builds: DataFrame) -> DataFrame:
    """Totem's Figure 7 of each run: the probability density of the latency to delivery, by service, over all paths."""
    rows = histogram(cells, ["run", "service"]).join(F.broadcast(builds), "run")
    per_ms = F.col("share") / (F.col("to_us") - F.col("from_us")) * 1000
    return rows.withColumn("per_ms", per_ms).select(*DENSITIES.names)


def histogram(cells: DataFrame, key: Sequence[str]) -> DataFrame:
    """Counts and shares of the buckets."""
    counted = cells.groupBy(*key, "bucket").agg(
        F.sum("messages").alias("messages"), F.max("uncertainty_us").alias("uncertainty_us")
    )
    from_us, to_us = bucket_edges()
    share = F.col("messages") / F.sum("messages").over(Window.partitionBy(*key))
    return counted.withColumns({"from_us": from_us, "to_us": to_us, "share": share})


def percentiles(cells: DataFrame, key: Sequence[str]) -> DataFrame:
    """Mean and percentiles; a percentile lies inside its bucket as if that were evenly filled."""
    counted = cells.groupBy(*key, "bucket").agg(
        F.sum("messages").alias("n"), F.sum("latency_sum_us").alias("waited"), F.max("uncertainty_us").alias("uncertainty_us")
    )
    all_of_key = Window.partitionBy(*key)
    so_far = F.sum("n").over(all_of_key.orderBy("bucket"))
    ranked = counted.withColumns({"total": F.sum("n").over(all_of_key), "upto": so_far})
    return ranked.groupBy(*key).agg(
        F.sum("n").alias("messages"),
        (F.sum("waited") / F.sum("n")).alias("mean_us"),
        *(_percentile(part).alias(name) for name, part in PERCENTILES.items()),
        F.max("uncertainty_us").alias("uncertainty_us"),
    )


def _percentile(part: float) -> Column:
    """In the bucket that reaches the part: `upto` are the messages up to and with a bucket."""
    wanted = F.col("total") * part
    from_us, to_us = bucket_edges()
    before = F.col("upto") - F.col("n")
    is_inside = (before < wanted) & (F.col("upto") >= wanted)
    return F.max(F.when(is_inside, from_us + (to_us - from_us) * (wanted - before) / F.col("n")))


def with_names(rows: DataFrame, node_names: DataFrame) -> DataFrame:
    """Rows with the names of `node` and `sender`."""
    names = node_names.select("node", "node_name")
    senders = names.select(F.col("node").alias("sender"), F.col("node_name").alias("sender_name"))
    return rows.join(F.broadcast(names), "node", "left").join(F.broadcast(senders), "sender", "left")
