"""Places are true: one place per message at every node, one message per place, and delivery follows places.

A place is the engine's own claim about its order (traces 2), which other tools sort by; this holds it against what happened.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from transis.audit.plans.finding import Found, broken, found, words
from transis.audit.plans.spine import INDEX_BITS, ranked_sends
from transis.audit.plans.tail import OrderedHistory, ordered_total, told

NAME: Final = "places"


def check(sequence: OrderedHistory) -> Found:
    claims = claimed(sequence)
    elsewhere = claims.where("place <> right_place")
    sentence = words(
        "{node_name} delivered {message} at place ",
        in_words("place"),
        " of {ring_name}, elsewhere it has ",
        in_words("right_place"),
    )
    taken = _taken(claims.where("place = right_place and sent_place is null"), sequence)
    of_another = words(
        "{node_name} delivered {message} at place ", in_words("place"), " of {ring_name}, which belongs to {owner}"
    )
    rows = [
        broken(elsewhere, NAME, sentence, [("node", "lseq")], [("process", "counter")], ["node"], ["conf"], "tpos"),
        broken(
            taken, NAME, of_another, [("node", "lseq")], [("process", "counter"), ("owner_process", "owner_counter")], ["node"]
        ),
        _descents(sequence),
    ]
    return found([ordered_total(sequence, NAME)], rows)


def in_words(name: str) -> Column:
    index = F.col(name).bitwiseAND(F.lit((1 << INDEX_BITS) - 1))
    return F.concat(F.shiftright(name, INDEX_BITS).cast("string"), F.lit("."), index.cast("string"))


def claimed(sequence: OrderedHistory) -> DataFrame:
    """The tail beside the place that each message got when it was sent in the ring; of one that was not, the first stay's"""
    key = ["ring", "process", "counter"]
    first = Window.partitionBy("sent_ring", "process", "counter").orderBy("sent_lseq")
    sent = sequence.origins.where("sent_is_ordered").withColumn("n", F.row_number().over(first)).where("n = 1")
    sent = sent.selectExpr("sent_ring as ring", "process", "counter", "sent_place")
    ranks = F.broadcast(sequence.stays.select("node", "stay_no", "stay_rank"))
    rows = told(sequence.tail, sequence.stays).join(ranks, ["node", "stay_no"]).join(sent, key, "left")
    said = F.first("place").over(Window.partitionBy(*key).orderBy("stay_rank", "tpos"))
    return rows.withColumn("right_place", F.coalesce("sent_place", said))


def _taken(unsent: DataFrame, sequence: OrderedHistory) -> DataFrame:
    """Messages that nobody sent here, at the place of one that somebody did."""
    sends = ranked_sends(sequence.laid).where("stay_no > 0 and is_ordered")
    seqs = sends.selectExpr(
        "ring", "place_seq as seq", "place as sent_from", "count as sent_count", "process as owner_process", "first"
    )
    both = unsent.withColumn("seq", F.shiftright("place", INDEX_BITS)).join(seqs, ["ring", "seq"])
    owned = both.where("place >= sent_from and place < sent_from + sent_count")
    names = sequence.laid.process_names.selectExpr("process as owner_process", "process_name as owner_name")
    counter = F.expr("first + place - sent_from")
    named = owned.withColumn("owner_counter", counter).join(F.broadcast(names), "owner_process")
    return named.withColumn("owner", F.concat("owner_name", F.lit(":"), F.col("owner_counter")))


def _descents(sequence: OrderedHistory) -> DataFrame:
    stay = Window.partitionBy("node", "stay_no").orderBy("tpos")
    before = {f"{name}_before": F.lag(name).over(stay) for name in ("place", "process", "counter", "message", "lseq")}
    rows = told(sequence.tail.withColumns(before).where("place_before > place"), sequence.stays)
    sentence = words(
        "{node_name} delivered {message_before} at place ", in_words("place_before"),
        " before {message} at place ", in_words("place"), " of {ring_name}",
    )  # fmt: skip
    witness = [("node", "lseq_before"), ("node", "lseq")]
    messages = [("process_before", "counter_before"), ("process", "counter")]
    return broken(rows, NAME, sentence, witness, messages, ["node"], ["conf"], "tpos")
