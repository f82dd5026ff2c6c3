"""EVS 7.2: whoever delivers a safe message in a regular configuration knows that all its members installed it."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from transis.audit.plans.finding import Found, broken, checked, found, name_nodes, name_processes, words
from transis.audit.plans.lay import Laid, absent_members
from transis.types.ids import Service

NAME: Final = "safe_7_2"


def check(laid: Laid) -> Found:
    rings = _rings_with_safe(laid)
    absent = _absent(laid, rings)
    named = name_processes(name_nodes(absent.where("duty = 'due'"), laid.node_names, "member"), laid.process_names)
    violations = broken(
        named,
        NAME,
        words(
            "{node_name} delivered the safe {process_name}:{first} in {ring_name}, "
            "but its member {member_name} never installed {ring_name}"
        ),
        witness=[("node", "lseq")],
        messages=[("process", "first")],
        nodes=["node", "member"],
        views=["ring"],
    )
    amounts = [checked(rings, NAME, F.size("members")), checked(absent.where("duty = 'pending'"), NAME, "0", "1")]
    return found(amounts, [violations])


def _rings_with_safe(laid: Laid) -> DataFrame:
    """Rings in which somebody delivered a safe message: the first stay, in order of node ids, that did, and its first one.
    Members are those that the first stay of the ring names."""
    safe = laid.deliveries.where((F.col("service") == Service.SAFE.value) & F.expr("stay_no > 0 and phase = 0"))
    firsts = safe.groupBy("node", "stay_no").agg(
        F.min_by("process", "lseq").alias("process"), F.min_by("first", "lseq").alias("first"), F.min("lseq").alias("lseq")
    )
    in_ring = Window.partitionBy("ring").orderBy("stay_rank")
    stays = laid.stays.withColumn("members", F.first("members").over(in_ring))
    by = stays.join(firsts, ["node", "stay_no"]).withColumn("by_rank", F.row_number().over(in_ring)).where("by_rank = 1")
    return by.select("run", "node", "node_name", "ring", "ring_name", "members", "process", "first", "lseq")


def _absent(laid: Laid, rings: DataFrame) -> DataFrame:
    """Members of those rings that never installed them, each beside the stay that delivered, and what to think of it."""
    members = absent_members(laid, rings.select("run", "ring", "members", F.lit(0).alias("bound")))
    return rings.join(members.select("ring", F.col("node").alias("member"), "duty"), "ring")
