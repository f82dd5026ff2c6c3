"""Throughput over time, and the points of Totem's Figure 6."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from transis.pipeline.measure.cells import by_group
from transis.pipeline.measure.latency import percentiles, with_names
from transis.pipeline.measure.schemas import FIGURES, THROUGHPUT
from transis.pipeline.tables import Tables

SECOND_US: Final = 1e6

FLOW: Final = ["run", "node", "sender", "group", "group_name", "service", "size_up_to", "bin_us"]


def throughput(cells: DataFrame, cut: DataFrame, tables: Tables, node_names: DataFrame) -> DataFrame:
    """Messages and bytes that each node delivered, by sender, group, service and size, in bins of time."""
    sums = by_group(cells, tables).groupBy(*FLOW).agg(F.sum("messages").alias("messages"), F.sum("bytes").alias("bytes"))
    placed = sums.join(F.broadcast(cut.select("run", F.col("bin_width_us").alias("width_us"))), "run")
    rates = {f"{name}_per_s": F.col(name) * SECOND_US / F.col("width_us") for name in ("messages", "bytes")}
    return with_names(placed.withColumns(rates), node_names).select(*THROUGHPUT.names)


def builds_of(tables: Tables) -> DataFrame:
    """run, build: which build wrote a run; several are named together."""
    builds = tables["segments"].where("trouble is null").groupBy("run").agg(F.sort_array(F.collect_set("build")).alias("builds"))
    return builds.select("run", F.array_join("builds", ", ").alias("build"))


def figure_points(cells: DataFrame, cut: DataFrame, tables: Tables) -> DataFrame:
    """A point for each run and service. Runs at several sizes make Figure 6, runs at several loads show what load costs.

    `offered_per_s` is what applications handed over in all, `delivered_per_s` what one node delivered, both over the whole run.
    """
    key = ["run", "service"]
    at_nodes = cells.groupBy(*key).agg(
        F.sum("bytes").alias("bytes"), F.countDistinct("node").cast("int").alias("nodes"), F.sum("messages").alias("delivered")
    )
    submitted = tables["submits"].groupBy(*key).agg(F.sum("count").alias("offered"))
    spans = cut.select("run", (F.col("to_us") - F.col("from_us")).alias("span_us"))
    rows = percentiles(cells, key).join(at_nodes, key).join(submitted, key, "left").join(F.broadcast(spans), "run")
    rows = rows.join(F.broadcast(builds_of(tables)), "run")
    seconds = F.nullif(F.col("span_us"), F.lit(0)) / SECOND_US
    return rows.withColumns(
        {
            "size": F.col("bytes") / F.col("delivered"),
            "offered_per_s": F.col("offered") / seconds,
            "delivered_per_s": F.col("delivered") / F.col("nodes") / seconds,
            "bytes_per_s": F.col("bytes") / F.col("nodes") / seconds,
        }
    ).select(*FIGURES.names)
