"""A primary component is one: two configurations whose group views say `primary` share a name, and all views of one agree.

A majority of the configured names cannot be in two places, so if two primary configurations had no name in common, there were two
majorities. Without a configured set no view says anything, and nothing is checked.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from transis.audit.plans.clients import Clients
from transis.audit.plans.finding import Found, broken, checked, found, words

NAME: Final = "group_primary"


def check(crowd: Clients) -> Found:
    flagged = _beside_the_first(crowd.changes.where("primary is not null and own is not null"))
    return found([checked(flagged, NAME)], [_in_doubt(flagged), _two_majorities(crowd, flagged)])


def _beside_the_first(flagged: DataFrame) -> DataFrame:
    """Each view beside the first that stands in the same configuration."""
    of_configuration = Window.partitionBy("view").orderBy("node_order", "lseq")
    columns = ("node", "lseq", "label", "name", "primary")
    firsts = {f"first_{column}": F.first(column).over(of_configuration) for column in columns}
    return flagged.withColumns(firsts).withColumn("nth", F.row_number().over(of_configuration))


def _in_doubt(flagged: DataFrame) -> DataFrame:
    explanation = words(
        "{first_label} of {first_name} says primary {first_primary}, and {label} of {name} says {primary}, in one configuration"
    )
    witness = [("first_node", "first_lseq"), ("node", "lseq")]
    apart = flagged.where("primary <> first_primary")
    return broken(apart, NAME, explanation, witness, nodes=["first_node", "node"], views=["view"], position="lseq")


def _two_majorities(crowd: Clients, flagged: DataFrame) -> DataFrame:
    """Sets of names are few, however many configurations have them: they are compared, and the first of each is told."""
    firsts = flagged.where("nth = 1 and primary").select("run", "node", "lseq", "view", F.explode("own.members").alias("member"))
    names = crowd.laid.node_names.select(F.col("node").alias("member"), F.col("name").alias("member_name"))
    whole = firsts.join(names, "member").groupBy("run", "node", "lseq", "view")
    named = whole.agg(F.sort_array(F.collect_set("member_name")).alias("names"))
    order = crowd.laid.view_names.select("view", "view_name", "view_order")
    told = F.min_by(F.struct("node", "lseq", "view", "view_name"), "view_order").alias("one")
    sets = named.join(order, "view").groupBy("run", "names").agg(told)
    other = sets.select("run", F.col("names").alias("other_names"), F.col("one").alias("other"))
    apart = sets.join(other, "run").where("names < other_names and not arrays_overlap(names, other_names)")
    explanation = words("{one.view_name} and {other.view_name} both call themselves primary and share no name")
    witness = [("one.node", "one.lseq"), ("other.node", "other.lseq")]
    nodes, views = ["one.node", "other.node"], ["one.view", "other.view"]
    return broken(apart, NAME, explanation, witness, nodes=nodes, views=views)
