"""Agreement: a group view's id has the same members, origins, cause and flag wherever it is installed.

What joined and left is not part of it: both are told from the view that a node had before.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from transis.audit.plans.clients import Clients, name_crowds
from transis.audit.plans.finding import Found, Rules, breaking, broken, checked, found, sentence, several, words

NAME: Final = "group_agreement_on_views"


def check(crowd: Clients) -> Found:
    rules = _rules()
    apart = name_crowds(breaking(_beside_the_first(crowd.changes), rules), crowd.people, "members", "first_members")
    explanation = words("{first_node_name} and {node_name} have {label} of {name} with different ", sentence(rules))
    witness = [("first_node", "first_lseq"), ("node", "lseq")]
    rows = broken(apart, NAME, explanation, witness, nodes=["first_node", "node"], views=["view"], position="lseq")
    return found([checked(crowd.changes, NAME)], [rows])


def _beside_the_first(changes: DataFrame) -> DataFrame:
    """Each change beside the first of the same view, in order of nodes."""
    compared = ["node", "node_name", "lseq", "members", "origins", "cause", "cause_what", "cause_process", "cause_conf", "name"]
    of_view = Window.partitionBy("group_view").orderBy("node_order", "lseq")
    first = {f"first_{column}": F.first(column).over(of_view) for column in (*compared, "primary")}
    return changes.withColumns(first)


def _differ(*columns: str) -> Column:
    same = F.lit(True)
    for column in columns:
        same = same & F.col(column).eqNullSafe(F.col(f"first_{column}"))
    return ~same


def _rules() -> Rules:
    members = words("members: ", several(F.col("first_members_names")), " against ", several(F.col("members_names")))
    return (
        (_differ("members"), members),
        (_differ("origins"), F.lit("origins of members")),
        (_differ("cause_what", "cause_process", "cause_conf"), words("causes: {first_cause} against {cause}")),
        (_differ("name"), words("names: {first_name} against {name}")),
        (_differ("primary"), words("flags: primary {first_primary} against {primary}")),
    )
