"""One view per change: groups that something happened to are told once, the others see nothing.

1. A configuration that loses daemons gives a transitional view to each group that lost members here, at once, and to no other.
2. A join, leave or disconnection gives one regular view, which tells of that process and nobody else. Several that came in one
   datagram give one view together.
3. A regular configuration gives at most one regular view to a group, and none if nothing changed for it.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from transis.audit.plans.clients import Clients, name_crowds, or_never
from transis.audit.plans.finding import Found, Rules, breaking, broken, checked, found, sentence, several, words
from transis.audit.plans.lay import latest

NAME: Final = "group_one_view_per_change"


def check(crowd: Clients) -> Found:
    losses = _losses(crowd)
    return found([checked(crowd.changes, NAME), checked(losses, NAME)], [_wrong_views(crowd), _untold(losses)])


# -- views that are there --------------------------------------------------------------------------------------------


def _wrong_views(crowd: Clients) -> DataFrame:
    rules = _rules()
    wrong = name_crowds(breaking(_numbered(crowd.changes), rules), crowd.people, "joined", "left")
    explanation = words("{node_name}: {label} of {name}: ", sentence(rules))
    return broken(wrong, NAME, explanation, [("node", "lseq")], nodes=["node"], views=["view"], position="lseq")


def _numbered(changes: DataFrame) -> DataFrame:
    """`of`: what the view tells of; `first_label`: the first view that the same configuration gave the group here."""
    of = F.expr("""case when not is_regular then 'loss' when cause_process is not null then 'process'
                        when cause_conf is null then 'processes' else 'configuration' end""")
    given = Window.partitionBy("node", "group", "view", "of").orderBy("lseq")
    return (
        changes.withColumn("of", of)
        .withColumn("first_label", F.first("label").over(given))
        .withColumn("nth", F.row_number().over(given))
    )


def _rules() -> Rules:
    silent = F.expr("size(joined) = 0 and size(left) = 0")
    other_cause = F.col("own").isNotNull() & ~F.col("cause_conf").eqNullSafe(F.col("own.cause"))
    its_cause = words("its cause is {cause}, but that of its configuration is {own.cause}")
    return (
        (_tells_of_others(), words("for the {cause} it tells that ", _names("joined"), " joined and ", _names("left"), " left")),
        ((F.col("of") == "processes") & silent, F.lit("it tells of nobody")),
        (
            F.expr("of in ('process', 'processes') and not before.is_regular"),
            words("it follows the transitional {before.label}, which only a configuration ends"),
        ),
        ((F.col("of") == "configuration") & other_cause, its_cause),
        (F.expr("of = 'configuration' and before.is_regular") & silent, words("nothing changed since {before.label}")),
        (F.expr("of = 'configuration' and nth > 1"), words("its configuration had given {first_label} already")),
        (F.expr("of = 'loss' and before is not null") & other_cause, its_cause),
        (
            F.expr("of = 'loss' and own is not null and before is not null") & ~_lost("before.member_nodes", "own.members"),
            words("nobody of {before.label} was lost"),
        ),
    )


def _tells_of_others() -> Column:
    """A view for one process comes at its place of a settled regular configuration, so no other change can wait to be told."""
    one, nobody = F.array("cause_process"), F.array().cast("array<bigint>")
    as_join = (F.col("joined") == one) & (F.col("left") == nobody)
    as_leave = (F.col("joined") == nobody) & (F.col("left") == one)
    return (F.col("of") == "process") & ~F.when(F.col("cause_what") == "join", as_join).otherwise(as_leave)


def _names(column: str) -> Column:
    return several(F.col(f"{column}_names"))


def _lost(member_nodes: str, nodes: str) -> Column:
    return F.size(F.array_except(member_nodes, nodes)) > 0


# -- views that are missing ------------------------------------------------------------------------------------------


def _losses(crowd: Clients) -> DataFrame:
    """Groups beside the transitional configurations that lost members of the view in force, while somebody here was in it."""
    counted = _counted_losses(crowd)
    views = _with_losses_between(crowd.changes, counted)
    found = views.join(counted, ["node", "loss_no"]).where(F.col("last_until") > F.col("loss_lseq"))
    return found.where(_lost("member_nodes", "loss_members"))


def _counted_losses(crowd: Clients) -> DataFrame:
    """Transitional configurations of lives that say who goes, numbered; with the event by which groups must have been told: the
    order goes on there. At the end of a trace they must have been told only if the run came to rest."""
    lives = crowd.lives.where("told").select("node", F.expr("closed and ended = ''").alias("at_rest"))
    confs = crowd.laid.confs.select("node", "lseq", "view", "view_name", "view_kind", "members")
    marks = confs.unionByName(_goings_on(crowd), allowMissingColumns=True)
    following = marks.withColumn("due_lseq", F.lead("lseq").over(Window.partitionBy("node").orderBy("lseq")))
    number = F.row_number().over(Window.partitionBy("node").orderBy("lseq"))
    return (
        following.where("view_kind = 1")
        .join(F.broadcast(lives), "node")
        .select(
            *("node", F.col("lseq").alias("loss_lseq"), "due_lseq", "at_rest", number.alias("loss_no")),
            *(F.col("view").alias("loss"), F.col("view_name").alias("loss_name"), F.col("members").alias("loss_members")),
        )
    )


def _goings_on(crowd: Clients) -> DataFrame:
    """The first delivery, to the node and to clients, in each stretch between configurations."""
    tables = crowd.laid.tables
    both = (tables[kind].select("node", "segment", "conf_no", "lseq") for kind in ("deliveries", "client_deliveries"))
    firsts = [rows.groupBy("node", "segment", "conf_no").agg(F.min("lseq").alias("lseq")) for rows in both]
    return firsts[0].unionByName(firsts[1]).select("node", "lseq")


def _with_losses_between(changes: DataFrame, counted: DataFrame) -> DataFrame:
    """Views of groups, once for each loss that came while they were in force."""
    views = changes.select(
        "run", "node", "node_name", "group", "lseq", "next_lseq", "label", "name", "member_nodes", "last_until"
    )
    marks = counted.select("node", F.col("loss_lseq").alias("lseq"), "loss_no")
    so_far = F.coalesce("past.loss_no", F.lit(0))
    before = latest(views, marks, ["node"], "past").withColumn("losses_before", so_far).drop("past")
    totals = counted.groupBy("node").agg(F.max("loss_no").alias("losses"))
    of_group = Window.partitionBy("node", "group").orderBy("lseq")
    until = F.coalesce(F.lead("losses_before").over(of_group), F.col("losses"))
    between = before.join(F.broadcast(totals), "node").withColumn("losses_until", until)
    numbers = F.explode(F.expr("sequence(losses_before + 1, losses_until)"))
    return between.where("losses_until > losses_before").withColumn("loss_no", numbers)


def _untold(losses: DataFrame) -> DataFrame:
    in_time = or_never("next_lseq") < or_never("due_lseq")
    somebody_waits = F.col("last_until") >= or_never("due_lseq")
    judged = F.col("due_lseq").isNotNull() | F.col("at_rest")
    missing = losses.where(judged & ~in_time & somebody_waits)
    explanation = words(
        "{node_name}: {loss_name} lost members of {label} of {name}, but gave the group no transitional view",
    )
    return broken(missing, NAME, explanation, [("node", "loss_lseq")], nodes=["node"], views=["loss"], position="loss_lseq")
