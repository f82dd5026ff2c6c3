"""Client processes laid out for the audit: what each was shown and handed, and every group view with what stood before it.

1. All processes of a node that are in a group have the same view of it in force, because it is shown to them together: a *change*
   is a GVIEW at a node, with the view and the regular view that were in force there, if one of its processes goes on from it.
2. A *seat* is a process that was shown a view. It is over when the group has its next view there, when the process leaves or a
   word comes about its life, and at a gap, behind which nothing is known of views in force.
3. What a process *got* are runs of its node's deliveries; only basic ones that waited are known by their messages alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from transis.audit.plans.lay import HistoryTables, Settle, Tables, as_it_is, latest, next_lseq
from transis.types.ids import Service

NEVER: Final = 2**62
"""An lseq behind all others."""


@dataclass(frozen=True)
class ClientTables:
    """What the properties of groups read. Small, and used by all: lives, people, changes, seats. As large as the trace: handed,
    got."""

    laid: HistoryTables
    lives: DataFrame
    """run, node, node_name, ended, gapped, closed, told (says who connects and goes), gap_lseq (of the first gap): one row a
    trace that has client processes."""
    people: DataFrame
    """run, process, node, number, private, process_name, process_order (a struct): one row a process."""
    changes: DataFrame
    """GVIEW events with node_name, node_order, label (the view's id in words), is_regular, member_nodes (beside `members`),
    next_lseq (of the group's next view at the node), conf_lseq (null before any configuration), own (view, members and cause of
    the configuration it stands in, if that is in force), before and regular (group_view, label, is_regular, members,
    member_nodes), blind (a gap since the group's last view may hide what stood before), adrift (one since the last configuration
    may hide that in force), last_until (when its last seat is over, but for the next view; null if it never had one)."""
    seats: DataFrame
    """run, node, group, group_view, label, name, view, is_regular, place_seq, cause_index, lseq, next_lseq, process, left_lseq,
    life_lseq, gap_lseq (each the first of its kind behind `lseq`), until (the first of the three): one row a process shown."""
    handed: DataFrame
    """run, node, lseq, groups, processes, run_lseq: a row per run and entry of a CDELIVER."""
    got: DataFrame
    """run, node, lseq, process, groups, run_lseq (null if it had waited), sender, first, count, is_ordered, is_basic, regular,
    place_seq, place_index: one row per run and process."""
    keep: Settle


def lay_clients(laid: HistoryTables, keep: Settle = as_it_is) -> ClientTables:
    """Everything that the properties of groups share; unless it is kept, nothing is computed before somebody asks for it."""
    tables = laid.tables
    gaps = laid.gaps.select("node", "lseq")
    people = keep(ordered_processes(laid))
    views = keep(placed_views(laid, people, gaps))
    seats = keep(all_seats(views, tables))
    handed = handed_runs(tables["client_deliveries"])
    got = keep(handed_to_processes(handed, tables).unionByName(waited_for(tables), allowMissingColumns=True))
    lives, changes = keep(lives_with_clients(laid, gaps)), keep(all_changes(views, seats, gaps))
    return ClientTables(laid, lives, people, changes, seats, handed, got, keep)


# -- lives and names -------------------------------------------------------------------------------------------------


def lives_with_clients(laid: HistoryTables, gaps: DataFrame) -> DataFrame:
    tables = laid.tables
    life = tables["clients"].select("node").distinct().withColumn("told", F.lit(True))
    kinds = ("group_views", "client_deliveries", "client_leaves", "checkpoints")
    crowd = reduce(DataFrame.union, [tables[kind].select("node") for kind in kinds], life.select("node")).distinct()
    first_gaps = gaps.groupBy("node").agg(F.min("lseq").alias("gap_lseq"))
    known = laid.lives.select("run", "node", "node_name", "ended", "gapped").join(laid.runs.select("run", "closed"), "run")
    found = known.join(crowd, "node").join(life, "node", "left").join(first_gaps, "node", "left")
    return found.fillna({"told": False})


def ordered_processes(laid: HistoryTables) -> DataFrame:
    """Keys have no order; sentences and "the first who said so" need that of ids."""
    nodes = laid.node_names.select("node", "name", "incarnation", "boot")
    order = F.struct("name", "incarnation", "boot", "number")
    named = laid.process_names.join(nodes, "node").withColumn("process_order", order)
    return named.select("run", "process", "node", "number", "private", "process_name", "process_order")


# -- views -----------------------------------------------------------------------------------------------------------


def placed_views(laid: HistoryTables, people: DataFrame, gaps: DataFrame) -> DataFrame:
    """GVIEW events with names, the nodes of members, what comes next, and the configurations in force."""
    views = laid.tables["group_views"].drop("segment", "conf_no", "time_us")
    names = laid.view_names.select("view", "view_name", (F.col("view_kind") == 0).alias("is_regular"))
    order = F.struct("name", "incarnation", "boot").alias("node_order")
    nodes = laid.node_names.select("node", "node_name", order)
    label = F.concat("view_name", F.lit("+"), "place_seq", F.lit("."), "cause_index")
    named = views.join(F.broadcast(names), "view").join(F.broadcast(nodes), "node").withColumn("label", label).drop("view_name")
    of_group = Window.partitionBy("node", "group").orderBy("lseq")
    followed = named.withColumn("next_lseq", F.lead("lseq").over(of_group))
    return _in_configurations(next_lseq(_with_member_nodes(followed, people), gaps, ["node"], "gap_lseq"), laid.confs)


def _with_member_nodes(views: DataFrame, people: DataFrame) -> DataFrame:
    """`member_nodes` beside `members`: the node of each."""
    single = views.select("node", "lseq", F.posexplode("members").alias("at", "process"))
    placed = single.join(people.select("process", F.col("node").alias("member_node")), "process")
    in_order = F.sort_array(F.collect_list(F.struct("at", "member_node")))["member_node"]
    nodes = placed.groupBy("node", "lseq").agg(in_order.alias("member_nodes"))
    found = views.join(nodes, ["node", "lseq"], "left")
    return found.withColumn("member_nodes", F.coalesce("member_nodes", F.array().cast("array<bigint>")))


def _in_configurations(views: DataFrame, confs: DataFrame) -> DataFrame:
    """A view stands in the configuration in force, or in the last regular one: an exchange may end when somebody is lost."""
    said = confs.select("node", "lseq", "view", "members", "cause", "view_kind")
    placed = latest(views, said.drop("view_kind"), ["node"], "conf")
    placed = latest(placed, said.where("view_kind = 0").drop("view_kind"), ["node"], "base")
    own = F.when(F.col("conf.view") == F.col("view"), F.col("conf")).when(F.col("base.view") == F.col("view"), F.col("base"))
    return placed.withColumn("own", own).withColumn("conf_lseq", F.col("conf.lseq")).drop("conf", "base")


def all_seats(views: DataFrame, tables: Tables) -> DataFrame:
    shown = views.select(
        *("run", "node", "group", "group_view", "label", "name", "view", "is_regular", "place_seq", "cause_index"),
        *("lseq", "next_lseq", "gap_lseq", F.explode("processes").alias("process")),
    )
    leaves = tables["client_leaves"].where("not refused").select("node", "process", "group", "lseq")
    words_of_life = tables["clients"].select("node", "process", "lseq")
    left = next_lseq(shown, leaves, ["node", "process", "group"], "left_lseq")
    found = next_lseq(left, words_of_life, ["node", "process"], "life_lseq")
    return found.withColumn("until", F.least("left_lseq", "life_lseq", "gap_lseq"))


def all_changes(views: DataFrame, seats: DataFrame, gaps: DataFrame) -> DataFrame:
    """What stood before counts only where a process goes on from it: where a seat lasts to the next view and is taken again."""
    of_process = Window.partitionBy("node", "group", "process").orderBy("lseq")
    goes_on = (F.lag("next_lseq").over(of_process) == F.col("lseq")) & (
        F.coalesce(F.lag("until").over(of_process), F.col("lseq")) >= F.col("lseq")
    )
    by_view = seats.withColumn("goes_on", F.coalesce(goes_on, F.lit(False))).groupBy("node", "group", "lseq")
    facts = by_view.agg(F.max("goes_on").alias("goes_on"), F.max(or_never("until")).alias("last_until"))
    views = latest(views, gaps, ["node"], "gap").join(facts, ["node", "group", "lseq"], "left")
    said = F.struct("group_view", "label", "is_regular", "members", "member_nodes")
    of_group = Window.partitionBy("node", "group").orderBy("lseq")
    earlier = of_group.rowsBetween(Window.unboundedPreceding, -1)
    stood = {
        "before": F.lag(said).over(of_group),
        "regular": F.last(F.when(F.col("is_regular"), said), ignorenulls=True).over(earlier),
    }
    blind = F.coalesce(F.col("gap.lseq") > F.lag("lseq", 1, 0).over(of_group), F.lit(False))
    adrift = F.coalesce(F.col("gap.lseq") > F.col("conf_lseq"), F.lit(False))
    stood = {name: F.when(F.col("goes_on"), value) for name, value in stood.items()}
    placed = views.withColumns({**stood, "blind": blind, "adrift": adrift})
    return placed.drop("goes_on", "gap_lseq", "gap")


def or_never(lseq: str) -> Column:
    """What has no end yet ends behind everything."""
    return F.coalesce(lseq, F.lit(NEVER))


# -- messages --------------------------------------------------------------------------------------------------------


def handed_runs(events: DataFrame) -> DataFrame:
    """Of CDELIVER events, a row per run and entry."""
    entries = events.select("run", "node", "lseq", F.explode("handed").alias("one"))
    return entries.select("run", "node", "lseq", "one.groups", "one.processes", F.explode("one.runs").alias("run_lseq"))


def handed_to_processes(handed: DataFrame, tables: Tables) -> DataFrame:
    """Runs that are not there are reported by `group_members_only`. What has a position is in the total order, as group views
    are."""
    runs = tables["deliveries"].select(
        *("node", F.col("lseq").alias("run_lseq"), F.col("process").alias("sender"), "first", "count"),
        *((F.col("tpos") >= 0).alias("is_ordered"), (F.col("service") == Service.BASIC).alias("is_basic")),
        *("regular", "place_seq", "place_index"),
    )
    found = handed.join(runs, ["node", "run_lseq"]).where("run_lseq < lseq")
    return found.withColumn("process", F.explode("processes")).drop("processes")


def waited_for(tables: Tables) -> DataFrame:
    single = tables["client_deliveries"].select("run", "node", "lseq", F.explode("waited").alias("one"))
    found = single.select("run", "node", "lseq", "one.*")
    each = found.withColumn("process", F.explode("processes")).drop("processes")
    return each.withColumns({"is_ordered": F.lit(False), "is_basic": F.lit(True)})
