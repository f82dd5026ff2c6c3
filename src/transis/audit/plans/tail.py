"""The tail: what the spine does not prove, message by message; and the ordered history that properties are judged on.

A ring's tail starts with the run below its first doubt, or below the first position that not every stay delivered in the
regular configuration, whichever is lower. Below it all stays that owe anything are equal and right; in a healthy history it
is as small as the flow window.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from transis.audit.plans.causal_apart import Apart, set_apart
from transis.audit.plans.lay import HistoryTables, Settle, absent_members, as_it_is
from transis.audit.plans.spine import matched, ordered, proven_ends, ranked_sends, spine

TAIL_BLOCK: Final = 256
"""Counters of one block: runs are found by the block of a message, not by comparing with every run of its process."""


@dataclass(frozen=True)
class OrderedHistory:
    """The ordered messages of a history, laid out for the properties about them."""

    laid: HistoryTables
    pairs: DataFrame
    """The spine beside the sends of its ring (spine.matched)."""
    rings: DataFrame
    """run, ring, ring_name, members, good, forked, bound (where the tail starts), canon_node, canon_stay_no: one row a ring."""
    stays: DataFrame
    """The stays with `bound`, `is_canon`, and `agreed`: positions up to which they are like the canon."""
    tail: DataFrame
    """A row per message and stay: run, ring, node, stay_no, phase, tpos, process, counter, message (its name), sender, service,
    place, lseq."""
    stretches: DataFrame
    """By life and process, in order of (stay_no, tpos): the good part of each stay as one stretch, then each message of the tail:
    run, ring, node, stay_no, process, first, last, tpos, first_lseq, last_lseq, phase."""
    sent: DataFrame
    """A row per message that was sent in a ring and is not good there: run, ring, node, stay_no, process, counter, message, rank,
    before, place, lseq, phase, is_ordered."""
    absent: DataFrame
    """Members of a ring that never installed it (lay.absent_members)."""
    origins: DataFrame
    """Every SEND, anywhere, of a message of the tail or apart: run, process, counter, sent_ring, sent_node, sent_stay_no,
    sent_lseq, sent_phase, sent_place, sent_service, sent_is_ordered, sent_timestamp, before, rank, nth (1 for the first)."""
    apart: Apart | None = None
    """Causal messages that are not in the order; None if there are none, as on the ring."""

    @property
    def everything(self) -> DataFrame:
        """The tail with the causal messages that are not in the order, for what is promised of both."""
        return self.tail if self.apart is None else self.tail.unionByName(self.apart.rows.select(*self.tail.columns))


def sequence(laid: HistoryTables, settle: Settle = as_it_is) -> OrderedHistory:
    """`settle` as in lay.py: the spine, and everything behind it, is used many times."""
    deliveries, sends = ordered(laid), ranked_sends(laid)
    apart = set_apart(laid, settle)
    pairs = settle(matched(spine(deliveries), sends))
    ends = proven_ends(pairs) if apart is None else apart.prove_nothing(proven_ends(pairs))
    rings = settle(bounded_rings(laid.stays, ends))
    tail = settle(named(tail_rows(deliveries, rings), laid))
    sent = settle(named(sent_rows(sends, pairs, rings), laid))
    stretches = stretches_of(deliveries, rings, tail)
    stretches = settle(stretches if apart is None else apart.in_local_order(stretches, laid))
    origins = settle(origins_of(tail if apart is None else tail.unionByName(apart.rows, allowMissingColumns=True), sends))
    stays = settle(agreeing_stays(laid.stays, rings, tail))
    absent = settle(absent_members(laid, rings))
    return OrderedHistory(laid, pairs, rings, stays, tail, stretches, sent, absent, origins, apart)


def bounded_rings(stays: DataFrame, ends: DataFrame) -> DataFrame:
    """A stay that is open, cut or full of gaps owes nothing yet, so a silent node does not make the tail long."""
    owes = F.expr("whole and (duty = 'due' or trans is not null or following is not null)")
    rings = stays.groupBy("run", "ring", "ring_name").agg(
        F.min_by("members", "stay_rank").alias("members"),
        F.min(F.when(owes, F.col("cut"))).alias("common"),
        F.max("n").alias("n"),
        F.max_by(F.struct("node", "stay_no"), F.struct("ordered", -F.col("stay_rank"))).alias("canon"),
    )
    bound = F.greatest(F.least("good", "common", "n") - 1, F.lit(0))
    return rings.join(ends, ["run", "ring"], "left").select(
        *("run", "ring", "ring_name", "members", "good", F.coalesce("forked", F.lit(False)).alias("forked")),
        *(bound.alias("bound"), F.col("canon.node").alias("canon_node"), F.col("canon.stay_no").alias("canon_stay_no")),
    )


def tail_rows(deliveries: DataFrame, rings: DataFrame) -> DataFrame:
    doubtful = deliveries.join(F.broadcast(rings.select("ring", "bound")), "ring").where("tpos + count > bound")
    single = doubtful.withColumn("i", F.explode(F.expr("sequence(0, count - 1)")))
    return single.selectExpr(
        *("run", "ring", "node", "stay_no", "phase", "tpos + i as tpos", "process", "first + i as counter", "sender", "service"),
        *("place + i as place", "lseq"),
    )


def stretches_of(deliveries: DataFrame, rings: DataFrame, tail: DataFrame) -> DataFrame:
    """In the good part the counters of a process grow, so the first and the last tell of it."""
    bounds = F.broadcast(rings.select("ring", "bound"))
    good = deliveries.join(bounds, "ring").where("tpos + count <= bound")
    summed = good.groupBy("run", "ring", "node", "stay_no", "process").agg(
        F.min("first").alias("first"),
        F.max(F.col("first") + F.col("count") - 1).alias("last"),
        F.lit(-1).cast("long").alias("tpos"),
        F.min("lseq").alias("first_lseq"),
        F.max("lseq").alias("last_lseq"),
        F.lit(0).cast("tinyint").alias("phase"),
    )
    single = tail.selectExpr(
        *("run", "ring", "node", "stay_no", "process", "counter as first", "counter as last", "tpos"),
        *("lseq as first_lseq", "lseq as last_lseq", "phase"),
    )
    return summed.unionByName(single)


def sent_rows(sends: DataFrame, pairs: DataFrame, rings: DataFrame) -> DataFrame:
    """What was sent in a ring, without what is good below the bound."""
    key = ["ring", "process", "first"]
    bounds = F.broadcast(rings.select("ring", "bound"))
    good = pairs.where("tpos is not null and times is not null").join(bounds, "ring").where("tpos + count <= bound").select(*key)
    doubtful = sends.where("stay_no > 0 and service > 0").join(good, key, "left_anti")
    single = doubtful.withColumn("i", F.explode(F.expr("sequence(0, count - 1)")))
    return single.selectExpr(
        *("run", "ring", "node", "stay_no", "process", "first + i as counter", "rank + i as rank", "before"),
        *("place + i as place", "lseq", "phase", "is_ordered"),
    )


def named(rows: DataFrame, laid: HistoryTables) -> DataFrame:
    """With the message in words."""
    names = laid.process_names.select("process", "process_name")
    message = F.concat("process_name", F.lit(":"), F.col("counter"))
    return rows.join(F.broadcast(names), "process", "left").withColumn("message", message).drop("process_name")


def covering(runs: DataFrame, messages: DataFrame) -> DataFrame:
    """Runs beside each message of theirs that is wanted; `messages` has process and counter, runs process, first and count."""
    blocks = F.explode(F.expr(f"sequence(first div {TAIL_BLOCK}, (first + count - 1) div {TAIL_BLOCK})"))
    wanted = messages.withColumn("block", F.expr(f"counter div {TAIL_BLOCK}"))
    both = runs.withColumn("block", blocks).join(wanted, ["process", "block"])
    return both.where("counter >= first and counter < first + count").drop("block")


def origins_of(tail: DataFrame, sends: DataFrame) -> DataFrame:
    messages = tail.select("process", "counter").distinct()
    once = Window.partitionBy("process", "counter").orderBy("lseq")
    found = covering(sends, messages).withColumn("offset", F.expr("counter - first"))
    return found.select(
        *("run", "process", "counter"),
        *(
            F.col(name).alias(f"sent_{name}")
            for name in ("ring", "node", "stay_no", "lseq", "phase", "service", "is_ordered", "timestamp")
        ),
        (F.col("place") + F.col("offset")).alias("sent_place"),
        "before",
        (F.col("rank") + F.col("offset")).alias("rank"),
        F.row_number().over(once).alias("nth"),
    )


def agreeing_stays(stays: DataFrame, rings: DataFrame, tail: DataFrame) -> DataFrame:
    """How far each stay is like the longest one of its ring."""
    canons = rings.select("ring", "bound", "canon_node", "canon_stay_no")
    placed = tail.join(F.broadcast(canons), "ring")
    of_canon = placed.where("node = canon_node and stay_no = canon_stay_no")
    of_canon = of_canon.selectExpr("ring", "tpos", "process as canon_process", "counter as canon_counter")
    compared = tail.join(of_canon, ["ring", "tpos"], "left")
    differs = compared.where("not (process <=> canon_process and counter <=> canon_counter)")
    first = differs.groupBy("node", "stay_no").agg(F.min("tpos").alias("differs"))
    found = stays.join(canons, "ring").join(first, ["node", "stay_no"], "left")
    is_canon = F.expr("node = canon_node and stay_no = canon_stay_no")
    return (
        found.withColumn("agreed", F.coalesce("differs", "n"))
        .withColumn("is_canon", is_canon)
        .drop("differs", "canon_node", "canon_stay_no")
    )
