"""The spine: one sequence per ring, and how far it is proven.

Ordered runs of all stays are brought together by (ring, position). Below the first position at which anything is wrong, the
*good* part, everything is proven at the cost of one shuffle: all stays have the same runs; each was sent once, in this ring,
with this place and service; places grow; a process's counters grow; nobody's message stands before what its sender had seen
or sent. What is not good, and what not everybody delivered in the regular configuration, is looked at message by message
(tail.py).
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from transis.audit.plans.lay import HistoryTables

# --- spine ------------------------------------------------------------------------------------------------------------

INDEX_BITS: Final = 20
"""A place (seq, index) as one number: a datagram has at most 65,000 bytes, so fewer messages than this."""

CHUNK: Final = 1 << 20
"""Positions in one unit of work: a view may last for weeks, and no task should have all of it."""

RUN: Final = ["process", "first", "count", "service", "place"]


def place() -> Column:
    return F.shiftleft("place_seq", INDEX_BITS) + F.col("place_index")


def ordered(laid: HistoryTables) -> DataFrame:
    """Ordered deliveries that stand in a stay, with their place as one number."""
    return reliable(laid).where("is_ordered")


def reliable(laid: HistoryTables) -> DataFrame:
    """The same with causal deliveries, whether they are in the order or not."""
    return laid.deliveries.where("service > 0 and stay_no > 0").withColumn("place", place())


def ranked_sends(laid: HistoryTables) -> DataFrame:
    """SENDs with their place, and how many messages, basic ones apart, this node had sent before in the stay."""
    stay = Window.partitionBy("node", "stay_no").orderBy("lseq").rowsBetween(Window.unboundedPreceding, -1)
    earlier = F.sum(F.when(F.col("service") > 0, F.col("count"))).over(stay)
    return laid.sends.withColumn("place", place()).withColumn("rank", F.coalesce(earlier, F.lit(0)))


def spine(deliveries: DataFrame) -> DataFrame:
    """One row per position at which any stay has a run: the run, and whether all have the same."""
    same = deliveries.withColumn("same", F.xxhash64(*RUN))
    values = [F.max(name).alias(name) for name in (*RUN, "sender")]
    agreed = (F.min("same") == F.max("same")).alias("agreed")
    return same.groupBy("run", "ring", "tpos").agg(*values, agreed)


def matched(runs: DataFrame, sends: DataFrame) -> DataFrame:
    """The spine beside what was sent in the ring; a row of one side only has nulls for the other."""
    key = ["ring", "process", "first"]
    once = (
        sends.where("stay_no > 0 and is_ordered")
        .groupBy("run", *key)
        .agg(
            F.count("*").alias("times"),
            *(F.max(name).alias(f"sent_{name}") for name in ("count", "service", "place", "node", "stay_no", "lseq", "phase")),
            F.max("before").alias("before"),
            F.min("rank").alias("rank"),
        )
    )
    left, right = runs.alias("runs"), once.alias("sends")
    both = left.join(right, [F.col(f"runs.{name}") == F.col(f"sends.{name}") for name in key], "full")
    shared = [F.coalesce(f"runs.{name}", f"sends.{name}").alias(name) for name in ("run", *key)]
    return both.select(
        *shared,
        *("tpos", "sender", "count", "service", "place", "agreed"),
        *(
            "times",
            "sent_count",
            "sent_service",
            "sent_place",
            "sent_node",
            "sent_stay_no",
            "sent_lseq",
            "sent_phase",
            "before",
            "rank",
        ),
    )


def proven_ends(pairs: DataFrame) -> DataFrame:
    """The first position of each ring at which something is wrong: `good`, and `forked` if stays differ there or later.

    A ring that is not here is good to its end.
    """
    wrong = (
        _unlike_sent(pairs)
        .unionByName(_backwards(pairs))
        .unionByName(_counters_fall(pairs))
        .unionByName(_own_out_of_order(pairs))
    )
    return wrong.groupBy("run", "ring").agg(F.min("tpos").alias("good"), F.max("forked").alias("forked"))


def _wrong(rows: DataFrame, condition: str, forked: str = "false") -> DataFrame:
    return rows.where(condition).select("run", "ring", "tpos", F.expr(forked).alias("forked"))


def _unlike_sent(pairs: DataFrame) -> DataFrame:
    """Stays differ, or the run was not sent so: once, in the regular part of this ring, with this size, service and place, by
    somebody who had seen nothing that stands behind it."""
    sent = "sent_count <=> count and sent_service <=> service and sent_place <=> place"
    right = f"agreed and times <=> 1 and {sent} and sent_phase <=> 0 and before <= tpos"
    return _wrong(pairs, f"tpos is not null and not coalesce({right}, false)", "not agreed")


def _backwards(pairs: DataFrame) -> DataFrame:
    """Positions without a gap, places that grow. The last row of a chunk is copied into the next, so that chunks stand alone."""
    end = F.col("tpos") + F.col("count")
    chunk = F.floor(F.col("tpos") / CHUNK)
    chunks = F.when(F.floor(end / CHUNK) > chunk, F.array(chunk, F.floor(end / CHUNK))).otherwise(F.array(chunk))
    rows = pairs.where("tpos is not null").withColumn("chunk", F.explode(chunks))
    order = Window.partitionBy("ring", "chunk").orderBy("tpos")
    before = {"end_before": F.lag(end).over(order), "place_before": F.lag(F.col("place") + F.col("count") - 1).over(order)}
    unlinked = f"end_before is null and tpos <> 0 and tpos div {CHUNK} = chunk"
    wrong = "end_before is not null and (tpos <> end_before or place <= place_before)"
    return _wrong(rows.withColumns(before), f"({unlinked}) or ({wrong})")


def _counters_fall(pairs: DataFrame) -> DataFrame:
    order = Window.partitionBy("ring", "process").orderBy("tpos")
    rows = pairs.where("tpos is not null").withColumn("used", F.lag(F.col("first") + F.col("count")).over(order))
    return _wrong(rows, "first < used")


def _own_out_of_order(pairs: DataFrame) -> DataFrame:
    """Runs that a node had sent earlier must stand earlier: the one that it sent last before this one is there, and before it."""
    order = Window.partitionBy("sent_node", "sent_stay_no").orderBy("rank")
    earlier = {"is_first": F.row_number().over(order) == 1, "tpos_before": F.lag("tpos").over(order)}
    rows = pairs.where("times is not null").withColumns(earlier)
    return _wrong(rows, "tpos is not null and not is_first and not coalesce(tpos_before < tpos, false)")
