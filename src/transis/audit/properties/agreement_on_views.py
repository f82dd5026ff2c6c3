"""Agreement on views: one id means one configuration, with the same members, origins and cause wherever it is installed.

Without it every other property speaks about different things under one name.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from transis.audit.plans.finding import Found, broken, checked, found, name_members, name_views, several, words
from transis.audit.plans.lay import Laid

NAME: Final = "agreement_on_views"

COMPARED: Final = ("members", "previous", "regular", "cause", "digest")
KNOWN: Final = ("node", "node_name", "lseq", *COMPARED)


def check(laid: Laid) -> Found:
    different = _beside_the_first(laid).where("digest <> known_digest")
    named = name_members(different, laid.node_names, "members", "known_members")
    told = name_views(named, laid.view_names, "regular", "known_regular")
    violations = broken(
        told,
        NAME,
        words("{known_node_name} and {node_name} installed {view_name} with different ", _difference()),
        witness=[("known_node", "known_lseq"), ("node", "lseq")],
        nodes=["known_node", "node"],
        views=["view"],
    )
    return found([checked(laid.confs, NAME)], [violations])


def _beside_the_first(laid: Laid) -> DataFrame:
    """Every installation beside the first of the same view, in order of node ids."""
    ids = laid.node_names.select("node", "name", "incarnation", "boot")
    confs = laid.confs.select("run", "view", "view_name", *KNOWN).join(ids, "node")
    same_view = Window.partitionBy("view").orderBy("name", "incarnation", "boot", "lseq")
    return confs.withColumns({f"known_{column}": F.first(column).over(same_view) for column in KNOWN})


def _difference() -> Column:
    """Addresses and info of members are compared by the digest only; they are what is left when all else is equal."""
    of_members = F.lit("previous views, addresses or info of members")
    return (
        F.when(
            F.col("known_members") != F.col("members"),
            words("members: ", several(F.col("known_members_names")), " against ", several(F.col("members_names"))),
        )
        .when(~F.col("known_previous").eqNullSafe(F.col("previous")), of_members)
        .when(
            F.col("known_regular") != F.col("regular"),
            words("regular configurations before it: {known_regular_name} against {regular_name}"),
        )
        .when(F.col("known_cause") != F.col("cause"), words("causes: {known_cause} against {cause}"))
        .otherwise(of_members)
    )
