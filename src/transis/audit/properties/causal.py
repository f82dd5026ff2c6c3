"""EVS 5: if sending m precedes sending m' in one configuration, whoever delivers m' delivered m before it.

Direct causes suffice: what the sender had sent itself in this configuration, and what it had delivered there. Causes of
causes follow, because whoever delivers m' must have delivered the direct ones, and so their own before them. Stays that are like
the longest one are right wherever that is; so the longest and the forks are looked at, in the tail only.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from transis.audit.plans.causal_apart import Apart
from transis.audit.plans.finding import Found, broken, checked, found, name_nodes, name_processes, words
from transis.audit.plans.tail import OrderedHistory, reliable_total, told

NAME: Final = "causal_5"

NEVER: Final = (1 << 62) - 1
"""The position of what was not delivered."""


def check(sequence: OrderedHistory) -> Found:
    apart = None if sequence.apart is None else sequence.apart.rings
    stays = sequence.stays if apart is None else sequence.stays.join(F.broadcast(apart), "ring", "left_anti")
    doubtful = stays.where("is_canon or agreed < n")
    judged = doubtful.where("whole").select("ring", "node", "stay_no")
    delivered = _delivered(sequence, judged)
    own, seen = _own_earlier(sequence, judged, delivered), _seen_before(sequence, judged, delivered)
    pending = checked(doubtful.where("not whole"), NAME, "0", "1")
    parts = [_tell(own, sequence, "had sent"), _tell(seen, sequence, "had delivered")]
    amounts = [reliable_total(sequence, NAME), pending]
    if sequence.apart is not None:
        parts.append(_tell_short(sequence, sequence.apart))
        amounts.append(checked(sequence.stays.where("not whole").join(F.broadcast(sequence.apart.rings), "ring"), NAME, "0", "1"))
    return found(amounts, parts)


def _delivered(sequence: OrderedHistory, judged: DataFrame) -> DataFrame:
    """Where each judged stay has each message of the tail; of a duplicate, the first."""
    key = ["ring", "node", "stay_no"]
    once = Window.partitionBy(*key, "process", "counter").orderBy("tpos")
    rows = sequence.tail.join(F.broadcast(judged), key).withColumn("nth", F.row_number().over(once)).where("nth = 1")
    return rows.selectExpr("run", *key, "process", "counter", "message", "tpos", "lseq", "phase")


def _own_earlier(sequence: OrderedHistory, judged: DataFrame, delivered: DataFrame) -> DataFrame:
    """Each message of a sender beside the first delivered one that it sent later: that must not come first."""
    sent = _first_sends(sequence)
    stays = judged.withColumnsRenamed({"node": "at", "stay_no": "at_stay_no"})
    there = delivered.selectExpr("node as at", "stay_no as at_stay_no", "process", "counter", "tpos", "lseq", "phase")
    rows = sent.join(stays, "ring").join(there, ["at", "at_stay_no", "process", "counter"], "left")
    later = Window.partitionBy("at", "at_stay_no", "node", "stay_no").orderBy(F.desc("rank"))
    effect = F.when(F.col("tpos").isNotNull(), F.struct("tpos", "process", "counter", "message", "sent_lseq", "lseq", "phase"))
    found = rows.withColumn("effect", F.min(effect).over(later.rowsBetween(Window.unboundedPreceding, -1)))
    return found.where(f"effect.tpos < coalesce(tpos, {NEVER})").selectExpr(
        *("run", "ring", "at as node", "at_stay_no as stay_no", "node as sender", "effect"),
        *("process as cause_process", "counter as cause_counter", "message as cause", "lseq as cause_lseq"),
        "cast(null as bigint) as seen_lseq",
    )


def _first_sends(sequence: OrderedHistory) -> DataFrame:
    """Messages of the tail by their first SEND, if that was in the ring."""
    once = Window.partitionBy("process", "counter").orderBy("lseq")
    rows = sequence.sent.withColumn("nth", F.row_number().over(once)).where("nth = 1")
    return rows.selectExpr("run", "ring", "node", "stay_no", "process", "counter", "message", "rank", "lseq as sent_lseq")


def _seen_before(sequence: OrderedHistory, judged: DataFrame, delivered: DataFrame) -> DataFrame:
    """Of what a sender had delivered when it sent a message, the one that came last here, or never, must come before it."""
    latest = _latest_of_seen(sequence, judged, delivered)
    origins = sequence.origins.where("nth = 1 and sent_service > 0").selectExpr(
        *("process", "counter", "sent_ring as ring", "sent_node as sender", "sent_stay_no as sender_stay_no", "sent_lseq"),
        "before - 1 as seen_tpos",
    )
    effects = delivered.join(origins, ["process", "counter", "ring"])
    rows = effects.join(latest, ["node", "stay_no", "sender", "sender_stay_no", "seen_tpos"])
    late = rows.where("latest.at >= tpos and not (latest.process = process and latest.counter = counter)")
    effect = F.struct("tpos", "process", "counter", "message", "sent_lseq", "lseq", "phase")
    return late.select(
        *("run", "ring", "node", "stay_no", "sender", effect.alias("effect")),
        F.col("latest.process").alias("cause_process"),
        F.col("latest.counter").alias("cause_counter"),
        F.col("latest.message").alias("cause"),
        F.col("latest.lseq").alias("cause_lseq"),
        F.col("latest.seen_lseq").alias("seen_lseq"),
    )


def _latest_of_seen(sequence: OrderedHistory, judged: DataFrame, delivered: DataFrame) -> DataFrame:
    """By judged stay, sender's stay and position there: of all that the sender had delivered up to it, what came last here."""
    stays = judged.selectExpr("ring", "node as at", "stay_no as at_stay_no")
    seen = sequence.tail.selectExpr("ring", "node as sender", "stay_no as sender_stay_no", "tpos as seen_tpos",
                                    "process", "counter", "message", "lseq as seen_lseq")  # fmt: skip
    there = delivered.selectExpr("node as at", "stay_no as at_stay_no", "process", "counter", "tpos", "lseq")
    rows = seen.join(stays, "ring").join(there, ["at", "at_stay_no", "process", "counter"], "left")
    so_far = Window.partitionBy("at", "at_stay_no", "sender", "sender_stay_no").orderBy("seen_tpos")
    late = F.struct(
        F.coalesce("tpos", F.lit(NEVER)).alias("at"),
        (-F.col("seen_tpos")).alias("back"),
        "process",
        "counter",
        "message",
        "lseq",
        "seen_lseq",
    )
    latest = rows.withColumn("latest", F.max(late).over(so_far.rowsBetween(Window.unboundedPreceding, 0)))
    return latest.selectExpr("at as node", "at_stay_no as stay_no", "sender", "sender_stay_no", "seen_tpos", "latest")


def _tell(rows: DataFrame, sequence: OrderedHistory, how: str) -> DataFrame:
    named = told(rows.withColumn("phase", F.col("effect.phase")), sequence.stays)
    senders = sequence.laid.node_names.selectExpr("node as sender", "node_name as sender_name")
    named = named.join(F.broadcast(senders), "sender").withColumn("late", _how_late())
    sentence = words(
        f"{{sender_name}} {how} {{cause}} before it sent {{effect.message}}, but {{node_name}} {{late}} {{cause}} ",
        "when it delivered {effect.message} in {conf_name}",
    )
    witness = [("sender", "seen_lseq"), ("sender", "effect.sent_lseq"), ("node", "effect.lseq"), ("node", "cause_lseq")]
    messages = [("cause_process", "cause_counter"), ("effect.process", "effect.counter")]
    return broken(named, NAME, sentence, witness, messages, ["node", "sender"], ["conf"], "effect.tpos")


def _tell_short(sequence: OrderedHistory, apart: Apart) -> DataFrame:
    """Where causal messages are not in the order, counts tell (causal_counts.py)."""
    names = sequence.laid.node_names
    named = name_nodes(name_processes(told(apart.short, sequence.stays), sequence.laid.process_names), names, "sender", "other")
    own, seen = words("sent {need} messages of its own"), words("delivered {need} messages of {other_name}")
    what = F.when(F.col("other").isNull(), own).otherwise(seen)
    message = words("{process_name}:{counter}")
    sentence = words(
        "{sender_name} had ", what, " in {ring_name} before it sent ", message,
        ", but {node_name} had delivered fewer of them when it delivered ", message, " in {conf_name}",
    )  # fmt: skip
    witness = [("sender", "sent_lseq"), ("node", "lseq")]
    return broken(named, NAME, sentence, witness, [("process", "counter")], ["node", "sender"], ["conf"])


def _how_late() -> Column:
    return F.when(F.col("cause_lseq").isNull(), "never delivered").otherwise("delivered only later")
