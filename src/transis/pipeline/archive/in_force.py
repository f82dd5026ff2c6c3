"""Which group view was in force when a message was delivered.

A view stays in force through configurations that change nothing in its group, so `conf` does not tell. The stream of a life does:
it is the last view before the message, unless rows are missing in between. Rows of a life are numbered, so a view is an interval
of them, and messages are joined with these. Intervals are cut at blocks of rows, so that a message is compared with those of its
block only, and neither values nor messages are shuffled.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from transis.pipeline.archive.columns import LIFE, VIEW

BLOCK: Final = 1 << 12
"""Rows of a life whose views are looked through for one message."""


def in_views(messages: DataFrame, stream: DataFrame, spans: DataFrame) -> DataFrame:
    """Messages with the group view (`view`) in which each was delivered, as whoever wrote its copy saw it. It is null behind lost
    rows, up to the next view: there may have been another one among them."""
    same = {name: f"of_{name}" for name in (*LIFE, "block")}
    stays = F.broadcast(_stays(stream, spans).withColumnsRenamed(same))
    told = messages.withColumn("block", F.floor(F.col("row") / BLOCK))
    is_there = F.col("row").between(F.col("since"), F.col("until"))
    found = told.join(stays, [*(F.col(name) == F.col(other) for name, other in same.items()), is_there], "left")
    return found.select(*messages.columns, "view")


def _stays(stream: DataFrame, spans: DataFrame) -> DataFrame:
    """A row for each life, view and block of rows: the view was in force from row `since` to row `until`."""
    shown = stream.where(F.col("kind") == VIEW).select(*LIFE, F.col("row").alias("since"), "view")
    torn = spans.where("lost > 0").select(*LIFE, F.col("first_row").alias("since"), F.lit(None).cast("string").alias("view"))
    last = spans.groupBy(*LIFE).agg(F.max("last_row").alias("last_row"))
    onward = Window.partitionBy(*LIFE).orderBy("since", F.col("view").asc_nulls_first())
    until = F.coalesce(F.lead("since").over(onward) - 1, F.col("last_row"))
    found = shown.unionByName(torn).join(F.broadcast(last), list(LIFE)).withColumn("until", until)
    found = found.where("view is not null and since <= until")
    blocks = F.explode(F.sequence(F.floor(F.col("since") / BLOCK), F.floor(F.col("until") / BLOCK)))
    return found.select(*LIFE, "view", "since", "until", blocks.alias("block"))
