"""One order: what a process is told, views and messages of all its groups, follows the places of one total order.

Places are those of the node's deliveries, which `places` and `total_order_6_1` hold against each other; so it is enough that
no stream ever goes backwards. A transitional view has no place of its own: it stands where its configuration does.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from transis.audit.plans.clients import Clients
from transis.audit.plans.finding import Found, broken, checked, found, words

NAME: Final = "group_order"


def check(crowd: Clients) -> Found:
    stream = _stream(crowd)
    behind = _going_back(stream)
    named = behind.join(crowd.people.select("process", "process_name"), "process")
    what = F.coalesce("view_label", words("messages of place {place_seq}.{place_index} of ring {ring_seq}"))
    sentence = words("{process_name} got ", what, " behind something of a later place")
    rows = broken(named, NAME, sentence, [("node", "lseq_before"), ("node", "lseq")], nodes=["node"], position="lseq")
    return found([checked(stream, NAME, "coalesce(count, 1)")], [rows])


def _stream(crowd: Clients) -> DataFrame:
    """Everything that has a place, by process: ordered runs and regular views, with the places where they start and end."""
    rings = F.broadcast(_ranked_rings(crowd))
    messages = crowd.got.where("is_ordered").withColumnRenamed("regular", "view").join(rings, "view")
    views = (
        crowd.seats.where("is_regular")
        .withColumnRenamed("cause_index", "place_index")
        .join(rings, "view")
        .withColumn("view_label", F.concat_ws(" of ", "label", "name"))
    )
    common = ["run", "node", "process", "lseq", "ring_rank", "ring_seq", "place_seq", "place_index"]
    both = messages.select(*common, "run_lseq", "groups", "count").unionByName(
        views.select(*common, "view_label"), allowMissingColumns=True
    )
    end = F.struct("ring_rank", "place_seq", F.expr("place_index + coalesce(count, 1) - 1").alias("place_index"))
    return both.withColumn("start", F.struct("ring_rank", "place_seq", "place_index")).withColumn("end", end)


def _ranked_rings(crowd: Clients) -> DataFrame:
    """Rings by their rank, so that places are compared as numbers."""
    rank = F.dense_rank().over(Window.partitionBy("run").orderBy("view_order"))
    return crowd.laid.view_names.select("view", rank.alias("ring_rank"), F.col("view_seq").alias("ring_seq"))


def _going_back(stream: DataFrame) -> DataFrame:
    """A view may stand where the view before it does: several groups change at one place."""
    of_process = Window.partitionBy("process").orderBy("lseq", "run_lseq", "groups")
    before = {"end": "end_before", "lseq": "lseq_before", "view_label": "view_before"}
    beside = stream.withColumns({new: F.lag(old).over(of_process) for old, new in before.items()})
    together = F.expr("view_label is not null and view_before is not null and end_before = start")
    return beside.where((F.col("end_before") >= F.col("start")) & ~together)
