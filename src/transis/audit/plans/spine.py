"""One sequence per ring and how far it is proven; the tail; runs of messages.

The spine: one sequence per ring, and how far it is proven (traces plans A, B and E).

Ordered runs of all stays are brought together by (ring, position). Below the first position at which anything is wrong, the
*good* part, everything is proven at the cost of one shuffle: all stays have the same runs; each was sent once, in this ring, with
this place and service; places grow; a process's counters grow; nobody's message stands before what its sender had seen or sent.
What is not good, and what not everybody delivered in the regular configuration, is looked at message by message (tail.py).

The tail: what the spine does not prove, message by message; in a healthy history as small as the flow window (plan C).

A ring's tail starts with the run below its first doubt, or below the first position that not every stay delivered in the
regular configuration, whichever is lower. Below it all stays that owe anything are equal and right.

Set algebra on runs of messages (process, first, count), without a row per message.

Runs of several kinds are swept in order of their counters: each opens at its first and closes behind its last, and what is open
in between is the same for all messages there. Where a run closes and the next of its kind opens nothing changes, so that
of a good trace hardly anything is left to sort. Runs are cut at blocks of counters: a process that sent all the messages of a
trace is many partitions, not one. Only the stretches that are wrong are ever spelled out, by `spelled_out`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from transis.audit.plans.causal_apart import Apart, set_apart
from transis.audit.plans.judge import checked
from transis.audit.plans.lay import Laid, Settle, absent_members, as_it_is

# --- spine ------------------------------------------------------------------------------------------------------------

INDEX_BITS: Final = 20
"""A place (seq, index) as one number: a datagram has at most 65,000 bytes, so fewer messages than this."""

CHUNK: Final = 1 << 20
"""Positions of one unit of work: a view may last for weeks, and no task should have all of it."""

RUN: Final = ["process", "first", "count", "service", "place"]


def place() -> Column:
    return F.shiftleft("place_seq", INDEX_BITS) + F.col("place_index")


def ordered(laid: Laid) -> DataFrame:
    """Ordered deliveries that stand in a stay, with their place as one number."""
    return reliable(laid).where("is_ordered")


def reliable(laid: Laid) -> DataFrame:
    """The same with causal deliveries, whether they are in the order or not."""
    return laid.deliveries.where("service > 0 and stay_no > 0").withColumn("place", place())


def ranked_sends(laid: Laid) -> DataFrame:
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
    """What a node had sent before stands before: the run that it sent last is there, and earlier."""
    order = Window.partitionBy("sent_node", "sent_stay_no").orderBy("rank")
    earlier = {"is_first": F.row_number().over(order) == 1, "tpos_before": F.lag("tpos").over(order)}
    rows = pairs.where("times is not null").withColumns(earlier)
    return _wrong(rows, "tpos is not null and not is_first and not coalesce(tpos_before < tpos, false)")


# --- tail -------------------------------------------------------------------------------------------------------------

TAIL_BLOCK: Final = 256
"""Counters of one block: runs are found by the block of a message, not by comparing with every run of its process."""


@dataclass(frozen=True)
class OrderedHistory:
    """The ordered messages of a history, laid out for the properties about them."""

    laid: Laid
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


def sequence(laid: Laid, settle: Settle = as_it_is) -> OrderedHistory:
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


def named(rows: DataFrame, laid: Laid) -> DataFrame:
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


def told(rows: DataFrame, stays: DataFrame) -> DataFrame:
    """With the names of node and configuration: what an explanation needs."""
    names = stays.select("node", "stay_no", "node_name", "ring_name", "trans", "trans_name")
    in_trans = F.expr("phase = 1 and trans is not null")
    placed = rows.join(F.broadcast(names), ["node", "stay_no"])
    return placed.withColumn("conf", F.when(in_trans, F.col("trans")).otherwise(F.col("ring"))).withColumn(
        "conf_name", F.when(in_trans, F.col("trans_name")).otherwise(F.col("ring_name"))
    )


def ordered_total(sequence: OrderedHistory, name: str) -> DataFrame:
    """Ordered deliveries of all stays: what most properties look at."""
    return checked(sequence.stays, name, "ordered")


def reliable_total(sequence: OrderedHistory, name: str) -> DataFrame:
    """The same with causal deliveries that are not in the order."""
    total = ordered_total(sequence, name)
    return total if sequence.apart is None else total.unionByName(checked(sequence.apart.rows, name))


# --- runs -------------------------------------------------------------------------------------------------------------

BLOCK: Final = 1 << 16
"""Counters in a block: so many that few runs are cut, so few that a block is sorted in memory."""


def runs_of(kind: str, rows: DataFrame) -> DataFrame:
    """Rows of one kind as runs; several kinds are swept as their union."""
    return rows.where("count > 0").select("run", "node", "process", "first", "count", "lseq", F.lit(kind).alias("kind"))


def stretches(runs: DataFrame, by: Sequence[str], kinds: Sequence[str]) -> DataFrame:
    """Stretches of counters [start, stop) and, in a column named after each kind, how many of its runs have them.

    `by` are the columns within which runs are compared, `process` among them.
    """
    changes = _bounds(runs, by).groupBy(*by, "block", "at").agg(*(_change(kind) for kind in kinds))
    changes = changes.where(reduce(or_, (F.col(kind) != 0 for kind in kinds)))
    in_order = Window.partitionBy(*by, "block").orderBy("at")
    swept = changes.select(
        *by,
        "block",
        F.col("at").alias("start"),
        F.lead("at").over(in_order).alias("stop"),
        *(F.sum(kind).over(in_order).alias(kind) for kind in kinds),
    )
    return swept.where("stop is not null")


def spelled_out(wrong: DataFrame, runs: DataFrame, by: Sequence[str]) -> DataFrame:
    """Every message of the wrong stretches once for each run that has it: by, node, counter, kind, lseq.

    Runs in other blocks are left out first: the list of bad blocks is short, however many stretches they have.
    """
    place = [*by, "block"]
    near = _pieces(runs).join(F.broadcast(wrong.select(*place).distinct()), place, "left_semi")
    limits = wrong.select(*place, F.col("start").alias("wrong_start"), F.col("stop").alias("wrong_stop"))
    both = near.join(limits, place).where("start < wrong_stop and wrong_start < stop")
    counters = F.expr("sequence(greatest(start, wrong_start), least(stop, wrong_stop) - 1)")
    return both.select(*dict.fromkeys((*by, "node")), "kind", "lseq", F.explode(counters).alias("counter"))


def repeated(runs: DataFrame, by: Sequence[str]) -> DataFrame:
    """Every message that several runs of one kind have, once for each run but the first: by, counter, first_lseq, lseq."""
    wrong = stretches(runs.withColumn("kind", F.lit("times")), by, ["times"]).where("times > 1")
    in_order = Window.partitionBy(*by, "counter").orderBy("lseq")
    all_of_them = spelled_out(wrong, runs, by).withColumn("first_lseq", F.first("lseq").over(in_order))
    return all_of_them.where("lseq <> first_lseq")


def _pieces(runs: DataFrame) -> DataFrame:
    """Runs cut at blocks, as [start, stop)."""
    blocks = F.expr(f"sequence(first div {BLOCK}, (first + count - 1) div {BLOCK})")
    return (
        runs.withColumn("block", F.explode(blocks))
        .withColumn("start", F.expr(f"greatest(first, block * {BLOCK})"))
        .withColumn("stop", F.expr(f"least(first + count, (block + 1) * {BLOCK})"))
    )


def _bounds(runs: DataFrame, by: Sequence[str]) -> DataFrame:
    opens = F.struct(F.col("start").alias("at"), F.lit(1).alias("step"))
    closes = F.struct(F.col("stop").alias("at"), F.lit(-1).alias("step"))
    bounds = _pieces(runs).select(*by, "block", "kind", F.explode(F.array(opens, closes)).alias("bound"))
    return bounds.select(*by, "block", "kind", "bound.at", "bound.step")


def _change(kind: str) -> Column:
    return F.sum(F.when(F.col("kind") == kind, F.col("step")).otherwise(0)).alias(kind)
