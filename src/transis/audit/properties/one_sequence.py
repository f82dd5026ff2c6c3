"""One sequence: who delivers in a regular configuration delivers what everybody does there, position by position (plan A).

It follows from total order without holes, but needs no whole stay: a prohibition, broken at once. So it is what can be said of a
part of a trace, whose beginning is missing. Below the tail all stays are equal, so only the tail is looked at.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from transis.audit.plans.finding import Found, broken, found, several, words
from transis.audit.plans.tail import OrderedHistory, ordered_total

NAME: Final = "one_sequence"
RING: Final = ["run", "ring", "ring_name", "differs"]


def check(sequence: OrderedHistory) -> Found:
    before = F.when(F.col("before").isNull(), "nothing before it is known").otherwise(
        words("the last that they have in common is {before}")
    )
    rows = broken(
        _differences(sequence),
        NAME,
        words("at position {differs} of {ring_name} ", _told_sides(), "; ", before),
        witness=F.flatten(F.transform("sides", lambda side: F.transform(side["who"], lambda one: _picked(one, "node", "lseq")))),
        messages=F.transform("sides", lambda side: _picked(side, "process", "counter")),
        nodes=F.flatten(F.transform("sides", lambda side: side["who"]["node"])),
        views=["ring"],
        position="differs",
    )
    return found([ordered_total(sequence, NAME)], [rows])


def _differences(sequence: OrderedHistory) -> DataFrame:
    """The first position of a ring at which stays differ: who delivered what there, and what stands before it."""
    message = F.struct("process", "counter")
    regular = sequence.tail.where("phase = 0")
    apart = regular.groupBy("ring", "tpos").agg((F.min(message) != F.max(message)).alias("differ")).where("differ")
    first = apart.groupBy("ring").agg(F.min("tpos").alias("differs"))
    stays = F.broadcast(sequence.stays.select("node", "stay_no", "node_name", "ring_name", "stay_rank"))
    near = regular.join(F.broadcast(first), "ring").where("tpos between differs - 1 and differs").join(stays, ["node", "stay_no"])
    who = F.sort_array(F.collect_list(F.struct("stay_rank", "node_name", "node", "lseq")))
    sides = near.groupBy(*RING, "tpos", "process", "counter", "message").agg(who.alias("who"))
    is_here = F.expr("tpos = differs")
    side = F.struct((-F.size("who")).alias("fewer"), "message", "process", "counter", "who")
    return sides.groupBy(*RING).agg(
        F.sort_array(F.collect_list(F.when(is_here, side))).alias("sides"),
        F.min(F.when(~is_here, F.col("message"))).alias("before"),
        F.sum(F.when(is_here, F.size("who"))).alias("nodes_there"),
    )


def _told_sides() -> Column:
    def told(side: Column) -> Column:
        majority = F.when(F.size(side["who"]) * 2 > F.col("nodes_there"), "the majority, ").otherwise("")
        return F.concat(majority, several(side["who"]["node_name"]), F.lit(" delivered "), side["message"])

    return F.array_join(F.transform("sides", told), "; ")


def _picked(struct: Column, *names: str) -> Column:
    return F.struct(*(struct[name].alias(name) for name in names))
