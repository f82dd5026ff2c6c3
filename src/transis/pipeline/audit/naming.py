"""Names in sentences: keys become names only where something is broken; the tables of names are joined there and not before."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from transis.pipeline.audit.finding import words

NAMED_MAX: Final = 5
"""Things named one by one in a sentence; the rest are counted."""


def several(names: Column) -> Column:
    """`x`, or `x, y and 3 more`, of an array of names."""
    few = F.array_join(F.slice(names, 1, NAMED_MAX), ", ", "unknown")
    rest = F.size(names) - NAMED_MAX
    return F.when(F.size(names) == 0, "nothing").when(rest <= 0, few).otherwise(words(few, " and ", rest, " more"))


def name_views(rows: DataFrame, view_names: DataFrame, *columns: str) -> DataFrame:
    """`x_name` beside each column `x` of views; null stays null."""
    for column in columns:
        names = view_names.select(F.col("view").alias(column), F.col("view_name").alias(f"{column}_name"))
        rows = rows.join(names, column, "left")
    return rows


def name_nodes(rows: DataFrame, node_names: DataFrame, *columns: str) -> DataFrame:
    """`x_name` beside each column `x` of nodes."""
    for column in columns:
        names = node_names.select(F.col("node").alias(column), F.col("node_name").alias(f"{column}_name"))
        rows = rows.join(names, column, "left")
    return rows


def name_members(rows: DataFrame, node_names: DataFrame, *columns: str) -> DataFrame:
    """`x_names` beside each column `x` that is an array of nodes, in the same order."""
    of_run = node_names.groupBy("run").agg(F.map_from_entries(F.collect_list(F.struct("node", "node_name"))).alias("by_node"))
    named = {f"{column}_names": F.transform(column, lambda node: F.try_element_at("by_node", node)) for column in columns}
    return rows.join(of_run, "run", "left").withColumns(named).drop("by_node")


def name_processes(rows: DataFrame, process_names: DataFrame) -> DataFrame:
    """`process_name` beside `process`."""
    return rows.join(process_names.select("process", "process_name"), "process", "left")
