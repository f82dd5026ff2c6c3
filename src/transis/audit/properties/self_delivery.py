"""EVS 3: a node delivers its own messages, basic ones apart, in the view it sent them in or the transitional one after it."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from transis.audit.plans.finding import Found, broken, checked, found, words
from transis.audit.plans.spine import reliable
from transis.audit.plans.tail import OrderedHistory

NAME: Final = "self_delivery_3"


def check(sequence: OrderedHistory) -> Found:
    sent = sequence.laid.sends.where("stay_no > 0 and service > 0")
    missing = _missing(sequence).join(F.broadcast(sequence.stays.drop("run", "ring")), ["node", "stay_no"])
    left = F.expr("case when following is null then 'the run ended' else concat('it installed ', following_name) end")
    sentence = words("{node_name} sent {message} in {ring_name} and had not delivered it when ", left)
    witness = [("node", "lseq"), ("node", "following_lseq")]
    rows = broken(missing.where("duty = 'due'"), NAME, sentence, witness, [("process", "counter")], ["node"], ["ring"])
    pending = checked(missing.where("duty = 'pending'"), NAME, "0", "1")
    return found([checked(sent, NAME, "count"), pending, _behind_gaps(sequence, sent)], [rows])


def _missing(sequence: OrderedHistory) -> DataFrame:
    """Own messages that the stay does not have: those of the tail, and good ones above its end."""
    own = ["node", "stay_no", "process", "counter"]
    columns = ["run", "ring", *own, "message", "lseq"]
    tail = sequence.sent.join(sequence.everything.select(*own), own, "left_anti").select(*columns)
    short = F.broadcast(sequence.stays.where("n < bound").select("node", "stay_no", "n", "bound"))
    above = sequence.pairs.selectExpr("sent_node as node", "sent_stay_no as stay_no", "*").join(short, ["node", "stay_no"])
    above = above.where("tpos >= n and tpos + count <= bound")
    single = above.withColumn("counter", F.explode(F.expr("sequence(first, first + count - 1)")))
    names = sequence.laid.process_names.select("process", "process_name")
    named = single.join(F.broadcast(names), "process").withColumn(
        "message", F.concat("process_name", F.lit(":"), F.col("counter"))
    )
    return tail.unionByName(named.withColumnRenamed("sent_lseq", "lseq").select(*columns))


def _behind_gaps(sequence: OrderedHistory, sent: DataFrame) -> DataFrame:
    """Where something was dropped, own deliveries may be among it: they are counted, not looked for."""
    key = ["run", "node", "stay_no"]
    holey = F.broadcast(sequence.stays.where("not whole").select("node", "stay_no"))
    delivered = reliable(sequence.laid).where("sender = node").join(holey, ["node", "stay_no"])
    counts = delivered.groupBy(*key).agg(F.sum("count").alias("delivered"))
    wanted = sent.join(holey, ["node", "stay_no"]).groupBy(*key).agg(F.sum("count").alias("wanted"))
    short = wanted.join(counts, key, "left").fillna(0, ["delivered"]).where("delivered < wanted")
    return checked(short, NAME, "0", "wanted - delivered")
