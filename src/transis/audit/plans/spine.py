"""One sequence per ring: the spine and how far it is proven, the tail behind it, and causal messages outside the order.

The spine: ordered runs of all stays are brought together by (ring, position). Below the first position at which anything is
wrong, the *good* part, everything is proven at the cost of one shuffle: all stays have the same runs; each was sent once, in this
ring, with this place and service; places grow; a process's counters grow; nobody's message stands before what its sender had seen
or sent.

The tail, message by message: what is not good, and what not everybody delivered in the regular configuration. It starts with the
run below its ring's first doubt, or below the first position that not every stay delivered there, whichever is lower. Below it
all stays that owe anything are equal and right; in a healthy history it is as small as the flow window.

Causal messages that are not in the total order (Lansis), message by message, and EVS 5 of them by counting:

1. A ring in which anybody delivered one is *mixed*: the spine, which has ordered messages only, proves nothing of it.
2. Of each sender of a mixed ring, a node's messages are counted. Whoever delivers m must have as many of everybody as the sender
   of m had when it sent m, and of the sender as many as it had sent. If no count falls short, deliveries of a sender are
   its messages in the order in which it sent them, so that equal counts are equal sets (audit/guarantees/causal.py).
3. Only what a sender delivered since it last sent is asked for: the rest was asked of its message before, which must be there. So
   the work is, at most, deliveries times nodes.
4. A message counts where it was first sent, and at each node once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from transis.audit.plans.lay import HistoryTables, Settle, absent_members, as_it_is

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


# --- causal messages outside the order --------------------------------------------------------------------------------

STAY: Final = ["node", "stay_no"]
SENDER: Final = ["sender", "sender_stay_no"]


@dataclass(frozen=True)
class Apart:
    rows: DataFrame
    """The columns of the tail, a row per message and stay, without a position; and timestamp."""
    rings: DataFrame
    """ring: the mixed ones."""
    short: DataFrame
    """Where a count falls short in a stay that is whole: run, ring, node, stay_no, phase, process, counter, lseq, sender,
    sent_lseq, need, other (whose messages; null for the sender's own)."""

    def prove_nothing(self, ends: DataFrame) -> DataFrame:
        """The ends of what is proven of each ring: of a mixed one, nothing."""
        runs = self.rows.select("run", "ring").distinct()
        none = runs.select("run", "ring", F.lit(0).cast("long").alias("good"), F.lit(False).alias("forked"))
        return ends.unionByName(none).groupBy("run", "ring").agg(F.min("good").alias("good"), F.max("forked").alias("forked"))

    def in_local_order(self, stretches: DataFrame, laid: HistoryTables) -> DataFrame:
        """The stretches of each life and process (OrderedHistory): in mixed rings each run is one, at the place where it was
        recorded."""
        mixed = F.broadcast(self.rings)
        runs = reliable(laid).join(mixed, "ring").selectExpr(
            *("run", "ring", "node", "stay_no", "process", "first", "first + count - 1 as last", "lseq as tpos"),
            *("lseq as first_lseq", "lseq as last_lseq", "phase"),
        )  # fmt: skip
        return stretches.join(mixed, "ring", "left_anti").unionByName(runs)

    def doubts(self, origins: DataFrame, laid: HistoryTables) -> list[DataFrame]:
        """Runs in which these messages are not proven to fit between the ordered ones. If no count falls short, nobody's frontier
        is behind that of a sender; then timestamps number what happens between two ordered deliveries, if they grow."""
        key = ["ring", "process", "counter"]
        sent = origins.where("nth = 1 and sent_phase = 0").selectExpr("sent_ring as ring", "process", "counter", "sent_timestamp")
        placed = self.rows.join(sent, key, "left").where("not (sent_timestamp <=> timestamp)")
        return [self.short.select("run"), placed.select("run"), self._clocks_fall(laid)]

    def _clocks_fall(self, laid: HistoryTables) -> DataFrame:
        """A sender's timestamp is above all causal messages that it delivered; times are doubled, so that a delivery fits between
        a SEND and the next timestamp."""
        mixed = F.broadcast(self.rings)
        sends = laid.sends.where("stay_no > 0").join(mixed, "ring")
        said = sends.selectExpr("run", *STAY, "lseq", "true as is_send", "phase", "2 * timestamp as time")
        heard = self.rows.selectExpr("run", *STAY, "lseq", "false as is_send", "phase", "2 * timestamp + 1 as time").distinct()
        before = Window.partitionBy(*STAY).orderBy("lseq").rowsBetween(Window.unboundedPreceding, -1)
        events = said.unionByName(heard).withColumn("latest", F.max("time").over(before))
        return events.where("is_send and (time < latest or phase = 1)").select("run")


def set_apart(laid: HistoryTables, settle: Settle) -> Apart | None:
    """Looks whether there are any, since nearly always there are none."""
    if not laid.causal_apart:
        return None
    rows = settle(_rows(laid))
    if rows.isEmpty():
        return None
    rings = settle(rows.select("ring").distinct())
    return Apart(rows, rings, settle(_short(laid, rings)))


def no_apart(tail: DataFrame) -> Apart:
    """None of these messages, as on the ring. Spark sees that these tables are empty, and leaves out what is made of them."""
    none = tail.where("false")
    unknown = (f"cast(null as bigint) as {name}" for name in ("sent_lseq", "need", "other"))
    short = none.select("run", "ring", *STAY, "phase", "process", "counter", "lseq", "sender")
    return Apart(none, none.select("ring"), short.selectExpr("*", *unknown))


def _rows(laid: HistoryTables) -> DataFrame:
    single = reliable(laid).where("not is_ordered").withColumn("i", F.explode(F.expr("sequence(0, count - 1)")))
    names = laid.process_names.select("process", "process_name")
    found = single.selectExpr(
        *("run", "ring", "node", "stay_no", "phase", "cast(null as bigint) as tpos", "process", "first + i as counter"),
        *("sender", "service", "place + i as place", "lseq", "timestamp"),
    )
    message = F.concat("process_name", F.lit(":"), F.col("counter"))
    return found.join(F.broadcast(names), "process", "left").withColumn("message", message).drop("process_name")


def _short(laid: HistoryTables, rings: DataFrame) -> DataFrame:
    firsts = _first_sends(laid, rings)
    arrivals = _arrivals(laid, rings, firsts)
    whole = F.broadcast(laid.stays.where("whole").select(*STAY))
    columns = ["run", "ring", *STAY, "phase", "process", "counter", "lseq", "sender", "sent_lseq"]
    own = arrivals.where("nth - 1 < rank").selectExpr(*columns, "rank as need", "cast(null as bigint) as other")
    return own.unionByName(_unseen(arrivals, _needs(firsts, arrivals), columns)).join(whole, STAY, "left_semi")


def _first_sends(laid: HistoryTables, rings: DataFrame) -> DataFrame:
    """Each message where it was first sent, if that was in a ring and not as a basic one, and its rank there among the others."""
    single = laid.sends.withColumn("counter", F.explode(F.expr("sequence(first, first + count - 1)")))
    once = Window.partitionBy("process", "counter").orderBy("lseq")
    firsts = single.withColumn("nth", F.row_number().over(once)).where("nth = 1 and service > 0 and stay_no > 0")
    firsts = firsts.join(F.broadcast(rings), "ring")
    order = Window.partitionBy(*STAY).orderBy("lseq", "counter")
    return firsts.withColumn("rank", F.row_number().over(order) - 1).selectExpr(
        "ring", "process", "counter", "node as sender", "stay_no as sender_stay_no", "lseq as sent_lseq", "rank"
    )


def _arrivals(laid: HistoryTables, rings: DataFrame, firsts: DataFrame) -> DataFrame:
    """Each message at each node of a mixed ring, the first time, with its rank there among the messages of its sender."""
    runs = reliable(laid).join(F.broadcast(rings), "ring").drop("sender", "place")
    single = runs.withColumn("counter", F.explode(F.expr("sequence(first, first + count - 1)")))
    once = Window.partitionBy(*STAY, "process", "counter").orderBy("lseq")
    found = single.withColumn("time", F.row_number().over(once)).where("time = 1").join(firsts, ["ring", "process", "counter"])
    order = Window.partitionBy(*STAY, *SENDER).orderBy("lseq", "counter")
    return found.withColumn("nth", F.row_number().over(order)).select(
        *("run", "ring", *STAY, "phase", "process", "counter", "lseq", *SENDER, "sent_lseq", "rank", "nth")
    )


def _needs(firsts: DataFrame, arrivals: DataFrame) -> DataFrame:
    """process, counter, other, other_stay_no, need: what a message asks of whoever delivers it."""
    sent = firsts.selectExpr(
        *("sender as node", "sender_stay_no as stay_no", "sent_lseq as at", "counter as tie"),
        "struct(process, counter) as message", "cast(null as struct<other: bigint, other_stay_no: bigint, nth: int>) as seen",
    )  # fmt: skip
    got = arrivals.where("not (sender = node and sender_stay_no = stay_no)").selectExpr(
        *("node", "stay_no", "lseq as at", "counter as tie", "cast(null as struct<process: bigint, counter: bigint>) as message"),
        "struct(sender as other, sender_stay_no as other_stay_no, nth) as seen",
    )
    following = Window.partitionBy(*STAY).orderBy("at", "tie").rowsBetween(1, Window.unboundedFollowing)
    events = sent.unionByName(got).withColumn("next", F.first("message", ignorenulls=True).over(following))
    asked = events.where("seen is not null and next is not null").groupBy("next", "seen.other", "seen.other_stay_no")
    return asked.agg(F.max("seen.nth").alias("need")).select("next.*", "other", "other_stay_no", "need")


def _unseen(arrivals: DataFrame, needs: DataFrame, columns: list[str]) -> DataFrame:
    """Messages at nodes where the last of what they ask for is not, or comes later."""
    asked = arrivals.join(needs, ["process", "counter"])
    there = arrivals.selectExpr(
        *STAY, "sender as other", "sender_stay_no as other_stay_no", "nth as need", "lseq as seen_lseq", "counter as seen_counter"
    )
    found = asked.join(there, [*STAY, "other", "other_stay_no", "need"], "left")
    late = "seen_lseq is null or seen_lseq > lseq or (seen_lseq = lseq and seen_counter > counter)"
    return found.where(late).selectExpr(*columns, "cast(need as bigint) as need", "other")


# --- the tail ---------------------------------------------------------------------------------------------------------

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
