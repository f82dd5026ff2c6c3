"""FIFO and no duplicates: at every node the counters of a process only grow, over its whole life.

Below the tail a stay is known by the first and last counter of each process, since the spine proved that they grow there; from
the tail on, message by message. What is not above everything before it is looked up.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window, WindowSpec
from pyspark.sql import functions as F

from transis.audit.plans.finding import Found, broken, found, words
from transis.audit.plans.spine import reliable
from transis.audit.plans.tail import OrderedHistory, covering, reliable_total, told

FIFO: Final = "fifo"
DUPLICATES: Final = "no_duplicates"


def check_fifo(sequence: OrderedHistory) -> Found:
    """A message that comes right after itself is a duplicate, not a question of order."""
    before = {"last_before": F.lag("last").over(_life()), "lseq_before": F.lag("last_lseq").over(_life())}
    overtaken = sequence.stretches.withColumns(before).where("last_before > first")
    names = sequence.laid.process_names.select("process", "process_name")
    named = told(overtaken.join(F.broadcast(names), "process"), sequence.stays)
    sentence = words(
        "{node_name} delivered {process_name}:{last_before} before {process_name}:{first}, ",
        "although the same process sent it later",
    )
    witness = [("node", "lseq_before"), ("node", "first_lseq")]
    messages = [("process", "first"), ("process", "last_before")]
    rows = broken(named, FIFO, sentence, witness, messages, ["node"], ["conf"], "tpos")
    return found([reliable_total(sequence, FIFO)], [rows])


def check_duplicates(sequence: OrderedHistory) -> Found:
    twice = _occurrences(sequence).where("nth > 1")
    names = sequence.laid.process_names.select("process", "process_name")
    named = told(twice.join(F.broadcast(names), "process"), sequence.stays)
    sentence = words("{node_name} delivered {process_name}:{counter} twice, in {conf_before} and {conf_name}")
    witness = [("node", "lseq_before"), ("node", "lseq")]
    rows = broken(named, DUPLICATES, sentence, witness, [("process", "counter")], ["node"], ["conf"], "tpos")
    return found([reliable_total(sequence, DUPLICATES)], [rows])


def _life() -> WindowSpec:
    return Window.partitionBy("node", "process").orderBy("stay_no", "tpos")


def _occurrences(sequence: OrderedHistory) -> DataFrame:
    """Every delivery of messages that may have been delivered twice, numbered."""
    so_far = _life().rowsBetween(Window.unboundedPreceding, -1)
    doubtful = sequence.stretches.withColumn("used", F.max("last").over(so_far)).where("first <= used")
    counters = F.explode(F.expr("sequence(first, least(last, used))"))
    messages = doubtful.select("node", "process", counters.alias("counter")).distinct()
    runs = covering(reliable(sequence.laid), messages.withColumnRenamed("node", "wanted_node")).where("node = wanted_node")
    single = runs.withColumn("tpos", F.expr("tpos + counter - first"))
    order = Window.partitionBy("node", "process", "counter").orderBy("stay_no", "lseq")
    numbered = told(single, sequence.stays).withColumns(
        {
            "nth": F.row_number().over(order),
            "lseq_before": F.first("lseq").over(order),
            "conf_before": F.first("conf_name").over(order),
        }
    )
    return numbered.drop("node_name", "ring_name", "trans", "trans_name", "conf", "conf_name")
