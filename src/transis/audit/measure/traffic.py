"""Traffic in numbers: latency, throughput, and what nodes saw of their ring.

1. Deliveries are counted once, at the finest grain that any table shows: who, from whom, to whom, when, how large, how late. That
   is the one pass over the large table; latency, throughput and Totem's figures are sums over these cells.
2. The token itself is not recorded. But a node that had something left to send after a visit sends again at the next one, so the
   time between the two is a rotation; and what was submitted and neither sent nor refused is the backlog.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from transis.audit.measure.clocks import Clocks, in_reference_time, in_time_of, with_origins
from transis.audit.plans.lay import Tables
from transis.spark.inputs import BYTE, INT, LONG, REAL, TEXT, columns

# --- tables -----------------------------------------------------------------------------------------------------------

CELLS: Final = columns(
    run=LONG,
    node=LONG,
    sender=LONG,
    address=LONG,
    service=BYTE,
    size_up_to=LONG,
    bin_us=LONG,
    bucket=INT,
    messages=LONG,
    bytes=LONG,
    latency_sum_us=REAL,
    uncertainty_us=REAL,
)
"""Deliveries, counted at the finest grain that any table shows; all of latency and throughput is made of them."""

THROUGHPUT: Final = columns(
    run=LONG,
    node=LONG,
    node_name=TEXT,
    sender=LONG,
    sender_name=TEXT,
    group=LONG,
    group_name=TEXT,
    service=BYTE,
    size_up_to=LONG,
    bin_us=LONG,
    width_us=LONG,
    messages=LONG,
    bytes=LONG,
    messages_per_s=REAL,
    bytes_per_s=REAL,
)
"""What each node delivered in a bin. A message for several groups counts in each of them: sum over one group at a time."""

_BUCKET: Final = columns(bucket=INT, from_us=REAL, to_us=REAL, messages=LONG, share=REAL)

_PATH: Final = columns(run=LONG, sender=LONG, sender_name=TEXT, node=LONG, node_name=TEXT, service=BYTE)

_PERCENTILES: Final = columns(messages=LONG, mean_us=REAL, p50_us=REAL, p90_us=REAL, p99_us=REAL, uncertainty_us=REAL)

LATENCY: Final = StructType([*_PATH.fields, *_BUCKET.fields, *columns(uncertainty_us=REAL).fields])
"""The latency density of each path, as a histogram with eight buckets an octave."""

LATENCY_SUMMARY: Final = StructType([*_PATH.fields, *_PERCENTILES.fields])

GROUP_LATENCY: Final = StructType([*columns(run=LONG, group=LONG, group_name=TEXT, bin_us=LONG).fields, *_PERCENTILES.fields])

DENSITIES: Final = StructType(
    [*columns(run=LONG, build=TEXT, service=BYTE).fields, *_BUCKET.fields, *columns(per_ms=REAL).fields],
)
"""Totem's Figure 7: `per_ms` is the probability density of the latency, by millisecond."""

FIGURES: Final = StructType(
    [
        *columns(run=LONG, build=TEXT, service=BYTE, nodes=INT, span_us=LONG, size=REAL, offered_per_s=REAL).fields,
        *columns(delivered_per_s=REAL, bytes_per_s=REAL).fields,
        *_PERCENTILES.fields,
    ]
)
"""Totem's Figure 6, a point a run and service: what one node delivers in a second, over the size of a message; and the latency
at the load that was offered."""

RING: Final = columns(
    run=LONG,
    node=LONG,
    node_name=TEXT,
    bin_us=LONG,
    visits=LONG,
    rotation_us=REAL,
    backlog=LONG,
    retransmitted=LONG,
    tokens_retransmitted=LONG,
    tokens_lost=LONG,
    state_changes=LONG,
)
"""What a node saw of its ring in a bin; `visits` are those of the token at which it sent something."""


# --- cells ------------------------------------------------------------------------------------------------------------

BUCKETS_AN_OCTAVE: Final = 8
"""A bucket of the latency is then about 9 % wide."""

NOT_POSITIVE: Final = -1
"""The bucket of messages that arrived at once or, within the uncertainty of the clocks, seem to arrive before they left."""

BINS: Final = 100
"""The most bins of time that a run has."""

_STEPS: Final = [digit * 10**power for power in range(3, 13) for digit in (1, 2, 5)]
"""Widths of bins in microseconds, from a millisecond on: those that people read easily."""

_SIZES: Final = [64 * 4**power for power in range(9)]
"""Classes of size: messages of up to this many bytes; larger ones are in the last class."""


def bins(known: Clocks) -> DataFrame:
    """run, bin_width_us, from_us, to_us: how the time of each run is cut."""
    edges = [known.spans.select("run", "node", F.col(edge).alias("edge_us")) for edge in ("first_us", "last_us")]
    converted = in_reference_time(edges[0].unionByName(edges[1]).where("edge_us is not null"), known, "edge_us", "edge_us")
    ends = converted.groupBy("run").agg(F.min("edge_us").alias("from_us"), F.max("edge_us").alias("to_us"))
    return ends.withColumn("bin_width_us", _first_of(_STEPS, (F.col("to_us") - F.col("from_us")) / BINS))


def with_bins(rows: DataFrame, known: Clocks, cut: DataFrame) -> DataFrame:
    """Events of nodes with `bin_us` and its `bin_width_us`; `cut` is what `bins` gave."""
    converted = in_reference_time(rows, known, "time_us", "run_us").join(F.broadcast(cut.select("run", "bin_width_us")), "run")
    return converted.withColumn("bin_us", _bin("run_us")).drop("run_us_uncertainty")


def cells(tables: Tables, known: Clocks, cut: DataFrame) -> DataFrame:
    """CELLS of all deliveries."""
    converted = in_time_of(
        with_origins(tables["deliveries"], known.spans, known.skews), known.clocks, "sender", "origin_us", "sent_us"
    )
    converted = in_time_of(converted, known.clocks, "node", "time_us", "run_us").join(F.broadcast(cut), "run")
    latency, uncertainty = _latency()
    placed = converted.select(
        "run", "node", "sender", "address", "service", "count", "size",
        _first_of(_SIZES, F.col("size") / F.col("count")).alias("size_up_to"), _bin("run_us").alias("bin_us"),
        bucket_of(latency).alias("bucket"), (latency * F.col("count")).alias("waited"), uncertainty.alias("uncertainty_us"),
    )  # fmt: skip
    return placed.groupBy(*CELLS.names[:8]).agg(
        F.sum("count").alias("messages"), F.sum("size").alias("bytes"), F.sum("waited").cast("double").alias("latency_sum_us"),
        F.max("uncertainty_us").alias("uncertainty_us"),
    )  # fmt: skip


def _latency() -> tuple[Column, Column]:
    """The latency and its uncertainty. A node's own messages need no other clock; others need one that both nodes were compared
    with, or the times are taken as they are."""
    is_own = F.col("sender") == F.col("node")
    is_comparable = ~is_own & (F.col("sent_us_reference") == F.col("run_us_reference"))
    latency = F.when(is_comparable, F.expr("run_us - sent_us")).otherwise(F.expr("time_us - origin_us"))
    compared = F.when(is_comparable, F.col("sent_us_uncertainty") + F.col("run_us_uncertainty"))
    return latency, F.col("origin_us_uncertainty") + F.when(is_own, 0.0).otherwise(compared)


def bucket_of(latency: Column) -> Column:
    bucket = F.floor(F.log2(latency) * BUCKETS_AN_OCTAVE).cast("int")
    return F.when(latency > 0, bucket).otherwise(F.lit(NOT_POSITIVE))


def bucket_edges() -> tuple[Column, Column]:
    """Where a bucket begins and ends, in microseconds."""
    from_us = F.when(F.col("bucket") >= 0, F.pow(F.lit(2.0), F.col("bucket") / BUCKETS_AN_OCTAVE)).otherwise(0.0)
    to_us = F.when(F.col("bucket") >= 0, F.pow(F.lit(2.0), (F.col("bucket") + 1) / BUCKETS_AN_OCTAVE)).otherwise(1.0)
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
    """The first step that is not below `least`; the last step if all are."""
    others = reversed(steps[:-1])
    return reduce(lambda rest, step: F.when(least <= step, step).otherwise(rest), others, F.lit(steps[-1])).cast("long")


# --- latency ----------------------------------------------------------------------------------------------------------

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
    """Mean and percentiles; a percentile lies within its bucket as if the bucket were evenly filled."""
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
    """The percentile in the bucket that reaches it: `upto` counts the messages up to and including a bucket."""
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


# --- throughput -------------------------------------------------------------------------------------------------------

SECOND_US: Final = 1e6

FLOW: Final = ["run", "node", "sender", "group", "group_name", "service", "size_up_to", "bin_us"]


def throughput(cells: DataFrame, cut: DataFrame, tables: Tables, node_names: DataFrame) -> DataFrame:
    """Messages and bytes that each node delivered, by sender, group, service and size, in bins of time."""
    sums = by_group(cells, tables).groupBy(*FLOW).agg(F.sum("messages").alias("messages"), F.sum("bytes").alias("bytes"))
    placed = sums.join(F.broadcast(cut.select("run", F.col("bin_width_us").alias("width_us"))), "run")
    rates = {f"{name}_per_s": F.col(name) * SECOND_US / F.col("width_us") for name in ("messages", "bytes")}
    return with_names(placed.withColumns(rates), node_names).select(*THROUGHPUT.names)


def builds_of(tables: Tables) -> DataFrame:
    """run, build: which build wrote each run; if several did, all are named."""
    builds = tables["segments"].where("trouble is null").groupBy("run").agg(F.sort_array(F.collect_set("build")).alias("builds"))
    return builds.select("run", F.array_join("builds", ", ").alias("build"))


def figure_points(cells: DataFrame, cut: DataFrame, tables: Tables) -> DataFrame:
    """A point for each run and service. Runs with several sizes make Figure 6, runs at several loads show what load costs.

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


# --- ring -------------------------------------------------------------------------------------------------------------

NOTES: Final = {"tokens_retransmitted": "token retransmitted", "tokens_lost": "token lost", "state_changes": "state"}
"""Notes that are counted, by column."""

KEY: Final = ["run", "node", "bin_us"]


def ring(tables: Tables, known: Clocks, cut: DataFrame, node_names: DataFrame) -> DataFrame:
    """RING: a row for each node and bin in which it noted anything."""
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

    All SENDs of one moment belong to one visit of the token.
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
