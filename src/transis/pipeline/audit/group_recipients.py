"""Who must get a run: the connected processes that are in the view in force of one of its groups, or that it names.

Recipients change only at *barriers*, which are views, leaves, words of life and configurations. Between two of them all runs of
one address have the same, so they are worked out once for a span and an address, not for a run.
"""

from __future__ import annotations

from functools import reduce
from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from transis.pipeline.audit.clients import NEVER, Clients, or_never
from transis.pipeline.audit.moments import latest

CHANGES: Final = ("group_views", "client_leaves", "clients")
"""Kinds of events at which recipients may change; configurations are the other one."""

KEY = ["node", "span", "address"]
"""A node, the last barrier, and an address."""


def before_gaps(crowd: Clients, rows: DataFrame) -> DataFrame:
    """Rows of lives with clients, up to the first gap: behind it nobody knows who is in a group."""
    cuts = crowd.lives.select("node", or_never("gap_lseq").alias("cut"))
    return rows.join(F.broadcast(cuts), "node").where("lseq < cut").drop("cut")


def barriers(crowd: Clients) -> DataFrame:
    tables = crowd.laid.tables
    marks = [tables[kind].select("node", "lseq") for kind in (*CHANGES, "confs")]
    return before_gaps(crowd, reduce(DataFrame.unionByName, marks))


def in_spans(rows: DataFrame, marks: DataFrame) -> DataFrame:
    """`span`: the last barrier before a row; 0 before any."""
    return latest(rows, marks, ["node"], "barrier").withColumn("span", F.coalesce("barrier.lseq", F.lit(0))).drop("barrier")


def addressed_runs(crowd: Clients, marks: DataFrame) -> DataFrame:
    """DELIVER events that are for somebody."""
    runs = crowd.laid.tables["deliveries"].where("address is not null").select(
        *("run", "node", "lseq", F.col("process").alias("sender"), "first", "count"),
        *((F.col("service") == 0).alias("is_basic"), "address"),
    )  # fmt: skip
    return in_spans(before_gaps(crowd, runs), marks)


def recipients(crowd: Clients, wanted: DataFrame) -> DataFrame:
    """`expected`, an array of (process, groups) in order of keys, for each (node, span, address) that is wanted and has any."""
    places = wanted.select(*KEY).distinct()
    addresses = crowd.laid.tables.names("addresses").select("address", "groups", "processes")
    known = places.join(addresses, "address").withColumn("lseq", F.col("span"))
    both = _by_group(crowd, known).unionByName(_by_name(crowd, known), allowMissingColumns=True)
    through = F.sort_array(F.collect_list(F.when(F.col("group").isNotNull(), F.struct("at", "group"))))["group"]
    single = both.groupBy(*KEY, "process").agg(through.alias("groups"))
    return single.groupBy(*KEY).agg(F.sort_array(F.collect_list(F.struct("process", "groups"))).alias("expected"))


def _by_group(crowd: Clients, known: DataFrame) -> DataFrame:
    """Seats of the view in force of each group of the address, that are not over."""
    groups = known.select(*KEY, "lseq", F.posexplode("groups").alias("at", "group"))
    marks = crowd.changes.select("node", "group", "lseq")
    placed = latest(groups, marks, ["node", "group"], "view").withColumn("lseq", F.col("view.lseq"))
    seats = crowd.seats.select("node", "group", "lseq", "process", or_never("until").alias("until"))
    return placed.join(seats, ["node", "group", "lseq"]).where("until > span").select(*KEY, "process", "at", "group")


def _by_name(crowd: Clients, known: DataFrame) -> DataFrame:
    """Processes that the address names, if they are connected; where nobody says who connects, they may be."""
    private = known.select(*KEY, "lseq", F.explode("processes").alias("private"))
    placed = private.join(crowd.people.select("node", "private", "process"), ["node", "private"])
    marks = crowd.laid.tables["clients"].select("node", "process", "lseq", "connected")
    lives = crowd.lives.select("node", "told")
    judged = latest(placed, marks, ["node", "process"], "life").join(F.broadcast(lives), "node")
    return judged.where("not told or life.connected").select(*KEY, "process")


def heard_of(crowd: Clients) -> DataFrame:
    """process, met, heard: when something was first and last told to a process, in lives that do not say who connects. Silence
    behind `heard` may be a process that is gone; where a life tells, `met` and `heard` are all of it."""
    lives = crowd.lives.where("not told").select("node")
    told = [
        crowd.seats.select("node", "process", "lseq"),
        crowd.laid.tables["client_leaves"].select("node", "process", "lseq"),
        crowd.handed.select("node", F.explode("processes").alias("process"), F.col("run_lseq").alias("lseq")),
    ]
    words = before_gaps(crowd, told[0].unionByName(told[1]).unionByName(told[2])).join(F.broadcast(lives), "node", "left_semi")
    silent = words.groupBy("process").agg(F.min("lseq").alias("met"), F.max("lseq").alias("heard"))
    everybody = crowd.people.join(crowd.lives.where("told").select("node"), "node")
    return everybody.select("process", F.lit(0).alias("met"), F.lit(NEVER).alias("heard")).unionByName(silent)


def numbered_events(crowd: Clients, marks: DataFrame) -> DataFrame:
    """CDELIVER events with `span`, `reach` (the last run that they hand over) and `reached` (by those before them)."""
    runs = F.flatten(F.transform("handed", lambda one: one.runs))
    events = crowd.laid.tables["client_deliveries"].select(
        "run", "node", "lseq", F.coalesce(F.array_max(runs), F.lit(0)).alias("reach")
    )
    earlier = Window.partitionBy("node").orderBy("lseq").rowsBetween(Window.unboundedPreceding, -1)
    placed = in_spans(before_gaps(crowd, events), marks)
    return placed.withColumn("reached", F.coalesce(F.max("reach").over(earlier), F.lit(0)))
