"""EVS 2.1: nodes of a configuration end in it together. If one stays in its last configuration, all members do.

Due only when the run reached quiescence; before, a change may be on its way.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from transis.audit.plans.finding import Found, broken, checked, found, name_nodes, name_views, words
from transis.audit.plans.lay import Laid

NAME: Final = "end_together_2_1"


def check(laid: Laid) -> Found:
    pairs = _apart(laid)
    told = name_views(name_nodes(pairs.where("due"), laid.node_names, "member"), laid.view_names, "other_view")
    violations = broken(
        told,
        NAME,
        words("{node_name} stayed in {view_name} to the end, but its member {member_name} ", _what()),
        witness=[("node", "lseq"), ("member", "other_end")],
        nodes=["node", "member"],
        views=["view"],
    )
    sizes = checked(_last_confs(laid), NAME, F.size("members"))
    return found([sizes, checked(pairs.where("not due"), NAME, "0", "1")], [violations])


def _last_confs(laid: Laid) -> DataFrame:
    """The last configurations of lives that stayed in them, as far as is known."""
    stayed = laid.lives.where("ended not in ('failed', 'stopped')").select("node", "gapped", F.col("last_lseq").alias("lseq"))
    return laid.confs.select("run", "node", "node_name", "lseq", "view", "view_name", "members").join(stayed, ["node", "lseq"])


def _apart(laid: Laid) -> DataFrame:
    """A node and a member of its last configuration that did not stay there with it; `due` if both traces are complete."""
    pairs = _last_confs(laid).withColumn("member", F.explode("members")).where("member <> node").drop("members")
    others = laid.lives.select(
        F.col("node").alias("member"),
        F.lit(True).alias("other_known"),
        F.col("last_view").alias("other_view"),
        F.col("ended").alias("other_ended"),
        F.col("end_lseq").alias("other_end"),
        F.col("gapped").alias("other_gapped"),
    )
    beside = pairs.join(others, "member", "left").join(laid.runs.select("run", "closed"), "run")
    apart = beside.where("not coalesce(other_view = view and other_ended = '', false)")
    return apart.withColumn("due", F.expr("closed and not gapped and not coalesce(other_gapped, false)"))


def _what() -> Column:
    where = F.coalesce("other_view_name", F.lit("no configuration"))
    return (
        F.when(F.col("other_known").isNull(), "has left no trace")
        .when(F.col("other_end").isNotNull(), words("{other_ended} in ", where))
        .otherwise(words("stayed in ", where))
    )
