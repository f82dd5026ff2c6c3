"""No ghosts: members live on nodes of the view's configuration, are there by their own node's word, and at rest are all there.

A view stands in a configuration that is in force at the node, or in the regular one before it: an exchange may end when somebody
is lost already. At rest the members of a group are exactly the processes that were told so last and are not gone.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from transis.audit.plans.clients import Clients, name_crowds
from transis.audit.plans.finding import Found, Rules, breaking, broken, checked, found, sentence, several, words

NAME: Final = "group_no_ghosts"


def check(crowd: Clients) -> Found:
    placed = crowd.changes.where("conf_lseq is not null")
    resting = _resting_runs(crowd)
    views = _at_rest(crowd, resting.where("not gapped and told"))
    looked_at = [
        checked(placed, NAME, F.size("members"), "int(own is null and adrift)"),
        checked(views, NAME),
        checked(resting, NAME, "0", "int(gapped)"),
    ]
    return found(looked_at, [_elsewhere(crowd, placed), _never_there(crowd, placed), _not_all_there(crowd, views)])


# -- at all times ----------------------------------------------------------------------------------------------------


def _elsewhere(crowd: Clients, placed: DataFrame) -> DataFrame:
    def is_elsewhere(_: Column, at: Column) -> Column:
        return ~F.array_contains("own.members", F.get("member_nodes", at))

    rules: Rules = (
        (F.expr("own is null and not adrift"), F.lit(" in another configuration")),
        (
            F.size(F.array_except("member_nodes", "own.members")) > 0,
            words(" with ", several(F.col("ghosts_names")), ", on no node of the configuration"),
        ),
    )
    wrong = breaking(placed, rules).withColumn("ghosts", F.filter("members", is_elsewhere))
    explanation = words("{node_name} installed {label} of {name}", sentence(rules))
    return _told(name_crowds(wrong, crowd.people, "ghosts"), explanation)


def _never_there(crowd: Clients, placed: DataFrame) -> DataFrame:
    """Members that never connected, by traces that tell who did and dropped nothing."""
    connected = crowd.laid.tables["clients"].where("connected").select("node", "process").distinct()
    whole = crowd.lives.where("not gapped").select("node").join(connected.select("node").distinct(), "node")
    homes = whole.withColumnRenamed("node", "home").join(
        crowd.laid.node_names.selectExpr("node as home", "node_name as home_name"), "home"
    )
    people = crowd.people.select("process", F.col("node").alias("home"), "process_name").join(F.broadcast(homes), "home")
    strangers = people.join(connected.select("process"), "process", "left_anti")
    members = placed.select("run", "node", "lseq", "label", "name", "view", F.explode("members").alias("process"))
    explanation = words("{label} of {name} has {process_name}, which never was a process of {home_name}")
    return _told(members.join(strangers, "process"), explanation)


def _told(wrong: DataFrame, explanation: Column) -> DataFrame:
    return broken(wrong, NAME, explanation, [("node", "lseq")], nodes=["node"], views=["view"], position="lseq")


# -- at rest ---------------------------------------------------------------------------------------------------------


def _resting_runs(crowd: Clients) -> DataFrame:
    """Runs that came to rest; of a living node that dropped something nothing is known, without a word of life neither."""
    living = crowd.lives.where("closed and ended = ''")
    return living.groupBy("run").agg(F.max("gapped").alias("gapped"), F.min("told").alias("told"))


def _at_rest(crowd: Clients, runs: DataFrame) -> DataFrame:
    """The last view of each group at each living node, with who is in the group by everybody's last word."""
    of_process = Window.partitionBy("process", "group").orderBy("lseq")
    last = crowd.seats.withColumn("later", F.lead("lseq").over(of_process)).where("later is null and left_lseq is null")
    gone = crowd.laid.tables["clients"].where("not connected").select("process").distinct()
    living = crowd.lives.where("ended = ''").select("node")
    there = last.join(runs.select("run"), "run").join(living, "node").join(gone, "process", "left_anti")
    named = there.join(crowd.people.select("process", "process_name", "process_order"), "process")
    in_order = F.sort_array(F.collect_list(F.struct("process_order", "process")))["process"]
    members = named.groupBy("run", "group").agg(in_order.alias("present"))
    views = named.groupBy("run", "node", "group", "lseq").agg(F.min_by("process_name", "process_order").alias("process_name"))
    said = crowd.changes.select("node", "group", "lseq", "label", "name", "view", "members")
    return views.join(said, ["node", "group", "lseq"]).join(members, ["run", "group"])


def _not_all_there(crowd: Clients, views: DataFrame) -> DataFrame:
    wrong = name_crowds(views.where("members <> present"), crowd.people, "members", "present")
    explanation = words(
        *("at rest {process_name} is in {label} of {name} with ", several(F.col("members_names"))),
        *(", but those who are in the group are ", several(F.col("present_names"))),
    )
    return _told(wrong, explanation)
