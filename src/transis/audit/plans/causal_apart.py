"""Causal messages that are not in the total order (Lansis), message by message, and EVS 5 of them by counting.

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

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from transis.audit.plans.lay import HistoryTables, Settle
from transis.audit.plans.spine import reliable

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
