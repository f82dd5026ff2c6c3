"""Incarnations of one name never overlap (C4): a restart is a new identity, and the old one is gone.

1. No configuration has two members of one name.
2. Two lives of one name never take part at the same time; a life takes part from its first configuration to its end.
   Times are those of one machine's clock. Lives that the harness started from a copied or lost state directory
   are exempt from this: while a partition keeps them from their twin, nobody can tell them.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from transis.audit.plans.finding import Found, broken, checked, found, words
from transis.audit.plans.lay import Laid

NAME: Final = "incarnations_never_overlap"

IMPOSTORS: Final = "what like 'copied%' or what like 'lost%'"
"""Faults that start a life with somebody else's, or nobody's, memory."""


def check(laid: Laid) -> Found:
    pairs = _one_after_the_other(laid)
    return found([checked(laid.confs, NAME), checked(pairs, NAME)], [_namesakes(laid), _overlaps(laid, pairs)])


def _namesakes(laid: Laid) -> DataFrame:
    return broken(
        laid.confs.join(_views_with_namesakes(laid), ["view", "digest"]),
        NAME,
        words("{node_name} installed {view_name} with ", F.array_join("twice", " and "), " in it, lives of one name"),
        witness=[("node", "lseq")],
        nodes=["node"],
        views=["view"],
    )


def _views_with_namesakes(laid: Laid) -> DataFrame:
    """Views, as somebody installed them, and the members that have a namesake there. A member that is listed twice is none."""
    members = laid.confs.select("view", "digest", F.explode("members").alias("node")).distinct()
    named = members.join(laid.node_names.select("node", "name", "incarnation", "boot", "node_name"), "node")
    of_name = named.groupBy("view", "digest", "name").agg(
        F.collect_list(F.struct("name", "incarnation", "boot", "node_name")).alias("lives")
    )
    twice = of_name.where("size(lives) > 1").groupBy("view", "digest").agg(F.flatten(F.collect_list("lives")).alias("lives"))
    return twice.select("view", "digest", F.transform(F.array_sort("lives"), lambda life: life["node_name"]).alias("twice"))


def _one_after_the_other(laid: Laid) -> DataFrame:
    """Lives of one name in order of their first configurations, each with the one before it."""
    starts = laid.confs.where("conf_rank = 1").select("node", "view", "view_name", "lseq", "time_us")
    impostors = laid.tables["faults"].where(IMPOSTORS).select("node").distinct()
    lives = laid.lives.join(starts, "node").join(impostors, "node", "left_anti")
    of_name = Window.partitionBy("run", "name").orderBy("time_us", "incarnation", "boot")
    earlier = {f"earlier_{name}": F.lag(name).over(of_name) for name in ("node", "node_name", "end_lseq", "end_us")}
    return lives.withColumns(earlier).where("earlier_node is not null")


def _overlaps(laid: Laid, pairs: DataFrame) -> DataFrame:
    together = pairs.where("earlier_end_us is null or earlier_end_us > time_us")
    last_events = laid.tables["segments"].groupBy(F.col("node").alias("earlier_node")).agg(F.max("last_lseq").alias("last_event"))
    what = F.when(F.col("earlier_end_us").isNull(), "has not ended").otherwise(words("ended only at {earlier_end_us} us"))
    return broken(
        together.join(last_events, "earlier_node"),
        NAME,
        words("{node_name} installed {view_name} at {time_us} us, while {earlier_node_name} ", what),
        witness=[("earlier_node", F.coalesce("earlier_end_lseq", "last_event")), ("node", "lseq")],
        nodes=["earlier_node", "node"],
        views=["view"],
    )
