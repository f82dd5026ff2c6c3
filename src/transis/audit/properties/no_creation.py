"""No creation, and EVS 1.3: what is delivered was sent by the node that its id names, in the configuration it is delivered in.

Pending while the sender's trace is missing, open or has a gap (traces 5): the SEND may still turn up there.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from transis.audit.plans.finding import Found, broken, checked, found, words
from transis.audit.plans.lay import Laid
from transis.audit.plans.tail import OrderedHistory, reliable_total, told

CREATION: Final = "no_creation"
WHERE_SENT: Final = "delivered_where_sent_1_3"


def check(sequence: OrderedHistory) -> Found:
    unsent = sequence.everything.join(
        sequence.origins.select("process", "counter").distinct(), ["process", "counter"], "left_anti"
    )
    judged = with_sender(told(unsent, sequence.stays), sequence.laid)
    sentence = words("{node_name} delivered {message} in {conf_name}, but {sender_name} never sent it")
    return found(
        [reliable_total(sequence, CREATION), checked(judged.where("may_still_be_sent"), CREATION, "0", "1")],
        [_broken(judged.where("not may_still_be_sent"), CREATION, sentence)],
    )


def check_where_sent(sequence: OrderedHistory) -> Found:
    """Sent in this ring, whatever else was wrong with it; basic sends do not count."""
    here = sequence.origins.where("sent_service > 0").selectExpr("process", "counter", "sent_ring as ring").distinct()
    strangers = sequence.everything.join(here, ["process", "counter", "ring"], "left_anti")
    judged = with_sender(told(_with_origin(strangers, sequence), sequence.stays), sequence.laid)
    pending = F.expr("sent_lseq is null and may_still_be_sent")
    elsewhere = F.coalesce("sent_ring_name", F.lit("no configuration at all"))
    sentence = words("{node_name} delivered {message} in {conf_name} of ring {ring_name}, but it was sent in ", elsewhere)
    homeless = sequence.laid.deliveries.where("service > 0 and stay_no = 0")
    return found(
        [
            reliable_total(sequence, WHERE_SENT),
            checked(homeless, WHERE_SENT, "count"),
            checked(judged.where(pending), WHERE_SENT, "0", "1"),
        ],
        [_broken(judged.where(~pending), WHERE_SENT, sentence), _before_any(homeless, sequence.laid)],
    )


def with_sender(rows: DataFrame, laid: Laid) -> DataFrame:
    """With the sender's name, and whether its trace is too incomplete to say that it did not send."""
    lives = laid.lives.select(F.col("node").alias("sender"), "ended", "gapped")
    names = laid.node_names.select(F.col("node").alias("sender"), F.col("node_name").alias("sender_name"))
    judged = rows.join(F.broadcast(names), "sender").join(F.broadcast(lives), "sender", "left")
    return judged.join(F.broadcast(laid.runs.select("run", "closed")), "run").withColumn(
        "may_still_be_sent", _may_still_be_sent()
    )


def _may_still_be_sent() -> Column:
    return F.expr("""case when gapped is null then not closed
                          when gapped or ended = 'unknown' then true
                          else not (closed or ended <> '') end""")


def _with_origin(rows: DataFrame, sequence: OrderedHistory) -> DataFrame:
    """Where it was sent instead, if anywhere."""
    names = sequence.laid.view_names.selectExpr("view as sent_ring", "view_name as sent_ring_name")
    origins = sequence.origins.where("nth = 1").select("process", "counter", "sent_ring", "sent_node", "sent_lseq")
    return rows.join(origins, ["process", "counter"], "left").join(F.broadcast(names), "sent_ring", "left")


def _broken(rows: DataFrame, name: str, sentence: Column) -> DataFrame:
    sent = [("sent_node", "sent_lseq")] if "sent_lseq" in rows.columns else []
    return broken(rows, name, sentence, [*sent, ("node", "lseq")], [("process", "counter")], ["node", "sender"], ["conf"], "tpos")


def _before_any(homeless: DataFrame, laid: Laid) -> DataFrame:
    named = homeless.join(F.broadcast(laid.node_names.select("node", "node_name")), "node")
    sentence = words("{node_name} delivered messages before any configuration")
    return broken(named, WHERE_SENT, sentence, [("node", "lseq")], nodes=["node"])
