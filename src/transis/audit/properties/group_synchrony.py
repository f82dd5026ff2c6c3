"""Virtual synchrony per group: who goes from one view of a group to the next got the same ordered messages of it in between.

What a process got between two views is known by one number: its runs, each hashed with its rank. Only where the numbers of two
processes that went together differ, messages are looked at.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from transis.audit.plans.clients import Clients
from transis.audit.plans.finding import Found, broken, checked, found, words
from transis.audit.plans.lay import latest

NAME: Final = "group_virtual_synchrony"


def check(crowd: Clients) -> Found:
    stretches = _in_company(crowd)
    messages = _between(crowd, stretches)
    pairs = _unequal(stretches, messages)
    return found([checked(stretches.where("nth > 1"), NAME)], [_told(crowd, _apart(pairs, messages))])


def _in_company(crowd: Clients) -> DataFrame:
    """From one view of a group that a process was shown to its next, without a leave or a gap between; only those that another
    one went too, numbered in order of processes."""
    of_process = Window.partitionBy("process", "group").orderBy("lseq")
    following = {"end_lseq": "lseq", "end_view": "group_view", "end_label": "label"}
    seats = crowd.seats.withColumns({new: F.lead(old).over(of_process) for new, old in following.items()})
    whole = seats.where("end_lseq < least(coalesce(left_lseq, end_lseq + 1), coalesce(gap_lseq, end_lseq + 1))")
    named = whole.join(crowd.people.select("process", "process_name", "process_order"), "process")
    way = Window.partitionBy("group_view", "end_view")
    numbered = named.withColumn("company", F.count("*").over(way)).withColumn(
        "nth", F.row_number().over(way.orderBy("process_order", "lseq"))
    )
    return numbered.where("company > 1").select(
        *("run", "node", "process", "process_name", "group", "name", "lseq", "end_lseq"),
        *("group_view", "label", "end_view", "end_label", "view", "nth"),
    )


def _between(crowd: Clients, stretches: DataFrame) -> DataFrame:
    """Ordered runs that came in a stretch, by process, group and `start_lseq`, with their rank in it."""
    runs = crowd.got.where("is_ordered").withColumn("group", F.explode("groups"))
    narrow = runs.select("process", "group", "lseq", "run_lseq", "sender", "first", "count")
    marks = stretches.select("process", "group", "lseq", "end_lseq")
    inside = latest(narrow, marks, ["process", "group"], "stretch").where("lseq < stretch.end_lseq")
    rank = F.row_number().over(Window.partitionBy("process", "group", "stretch.lseq").orderBy("lseq", "run_lseq"))
    return inside.select(
        "process", "group", F.col("stretch.lseq").alias("start_lseq"), "sender", "first", "count", rank.alias("rank")
    )


def _unequal(stretches: DataFrame, messages: DataFrame) -> DataFrame:
    """Stretches whose number is not that of the first who went that way, beside it."""
    of_run = F.xxhash64("rank", "sender", "first", "count")
    digests = messages.groupBy("process", "group", F.col("start_lseq").alias("lseq")).agg(F.bit_xor(of_run).alias("digest"))
    known = stretches.join(digests, ["process", "group", "lseq"], "left").fillna({"digest": 0})
    way = Window.partitionBy("group_view", "end_view").orderBy("nth")
    columns = ("node", "process", "process_name", "lseq", "end_lseq", "digest")
    return known.withColumns({f"first_{column}": F.first(column).over(way) for column in columns}).where("digest <> first_digest")


def _apart(pairs: DataFrame, messages: DataFrame) -> DataFrame:
    """Messages that only one of two got; if there are none, those that they got in different orders."""
    key = ["group_view", "end_view", "nth"]
    of_first = pairs.select(*key, F.col("first_process").alias("process"), "group", F.col("first_lseq").alias("start_lseq"))
    of_other = pairs.select(*key, "process", "group", F.col("lseq").alias("start_lseq"))
    sides = of_first.withColumn("is_first", F.lit(True)).unionByName(of_other.withColumn("is_first", F.lit(False)))
    runs = sides.join(messages, ["process", "group", "start_lseq"])
    before = Window.partitionBy(*key, "is_first").orderBy("rank").rowsBetween(Window.unboundedPreceding, -1)
    placed = runs.withColumn("start", F.coalesce(F.sum("count").over(before), F.lit(0)))
    single = placed.withColumn("i", F.explode(F.expr("sequence(0, count - 1)")))
    places = {"here": F.when(F.col("is_first"), F.expr("start + i")), "there": F.when(~F.col("is_first"), F.expr("start + i"))}
    by_message = single.groupBy(*key, "sender", F.expr("first + i").alias("counter")).agg(
        *(F.sort_array(F.collect_list(place)).alias(name) for name, place in places.items())
    )
    one_sided = F.expr("size(here) = 0 or size(there) = 0")
    way = Window.partitionBy(*key)
    judged = by_message.withColumn("one_sided", one_sided).withColumns(
        {"any_one_sided": F.max("one_sided").over(way), "unequal": F.max(F.expr("here <> there")).over(way)}
    )
    return judged.where("unequal and one_sided = any_one_sided").join(pairs, key)


def _told(crowd: Clients, apart: DataFrame) -> DataFrame:
    """A violation a message."""
    senders = crowd.people.select(F.col("process").alias("sender"), F.col("process_name").alias("sender_name"))
    is_first = F.size("here") > 0
    got = F.when(is_first, F.col("first_process_name")).otherwise(F.col("process_name"))
    missed = F.when(is_first, F.col("process_name")).otherwise(F.col("first_process_name"))
    explanation = words(
        "{first_process_name} and {process_name} went together from {label} to {end_label} of {name}, but in between ",
        *(got, " got {sender_name}:{counter} and ", missed, " did not, or not in this order"),
    )
    witness = [("first_node", "first_end_lseq"), ("node", "end_lseq")]
    return broken(
        apart.join(senders, "sender", "left"), NAME, explanation, witness, [("sender", "counter")],
        nodes=["first_node", "node"], views=["view"], position="end_lseq",
    )  # fmt: skip
