"""No duplicates: a process gets a message once, however many of its groups it is for, and a group view once.

Runs are laid side by side by their counters; only where two overlap, messages are looked at.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from transis.audit.plans.clients import Clients
from transis.audit.plans.finding import Found, broken, checked, found, words

NAME: Final = "group_no_duplicates"


def check(crowd: Clients) -> Found:
    looked_at = [checked(crowd.got, NAME, "count"), checked(crowd.seats, NAME)]
    return found(looked_at, [_messages_twice(crowd), _views_twice(crowd)])


def _messages_twice(crowd: Clients) -> DataFrame:
    """A run overlaps an earlier one, by first counter, if that one's end, the furthest so far, is not before its start."""
    runs = crowd.got.withColumn("last", F.expr("first + count - 1"))
    of_sender = Window.partitionBy("process", "sender").orderBy("first", "lseq", "run_lseq")
    earlier = of_sender.rowsBetween(Window.unboundedPreceding, -1)
    reach = {"reached": F.max("last").over(earlier), "other_lseq": F.max_by("lseq", "last").over(earlier)}
    overlaps = runs.withColumns(reach).where("first <= reached")
    single = overlaps.withColumn("counter", F.explode(F.expr("sequence(first, least(last, reached))")))
    senders = crowd.people.select(F.col("process").alias("sender"), F.col("process_name").alias("sender_name"))
    named = single.join(crowd.people.select("process", "process_name"), "process").join(senders, "sender", "left")
    witness = [("node", F.least("other_lseq", "lseq")), ("node", F.greatest("other_lseq", "lseq"))]
    explanation = words("{process_name} got {sender_name}:{counter} twice")
    return broken(named, NAME, explanation, witness, [("sender", "counter")], nodes=["node"], position="lseq")


def _views_twice(crowd: Clients) -> DataFrame:
    shown = Window.partitionBy("process", "group_view").orderBy("lseq")
    again = crowd.seats.withColumn("first_lseq", F.first("lseq").over(shown)).where("lseq > first_lseq")
    named = again.join(crowd.people.select("process", "process_name"), "process")
    witness = [("node", "first_lseq"), ("node", "lseq")]
    explanation = words("{process_name} was shown {label} of {name} twice")
    return broken(named, NAME, explanation, witness, nodes=["node"], views=["view"], position="lseq")
