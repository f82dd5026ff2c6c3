"""Incidents: every change of the configuration as a row, with what led to it and what it cost.

1. A change is a new regular configuration some of whose members had another one before; those are its old ones. A node that was
   in an old one and is not in the new is lost; one that was not in the largest old one has joined.
2. It begins when the first member stops passing the token (a note says that it left Operational), or, where no note says so,
   with the first transitional configuration; it ends when the last member has installed the new one.
3. Detection is known if somebody was lost: from the failure of the first of them (its END, or the last event of a trace that
   stops there), else from the last fault that a member suffered, to the first transitional configuration.
4. Blackout of a node: from its last ordered delivery in the old regular configuration to its first in the new one. It includes
   ordinary silence, so it is an upper bound where little was sent. That of a group is the longest of the nodes with members of
   it.
5. The tail counts ordered messages that a member delivered in the transitional configuration and that not all members of the
   old one delivered: those of one component only.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType

from transis.audit.measure.clocks import Clocks, Keep, in_reference_time, not_kept
from transis.audit.plans.lay import HistoryTables, in_their_stays
from transis.spark.inputs import LONG, LONGS, REAL, TEXT, TEXTS, columns

# --- tables -----------------------------------------------------------------------------------------------------------

BLACKOUT: Final = columns(node=LONG, node_name=TEXT, last_before_us=LONG, first_after_us=LONG, blackout_us=LONG)

GROUP_BLACKOUT: Final = columns(group=LONG, group_name=TEXT, blackout_us=LONG)

INCIDENTS: Final = columns(
    run=LONG,
    view=LONG,
    view_name=TEXT,
    old_views=LONGS,
    old_names=TEXTS,
    transitional_names=TEXTS,
    cause=TEXT,
    members=TEXTS,
    lost=TEXTS,
    joined=TEXTS,
    began_us=LONG,
    installed_us=LONG,
    duration_us=LONG,
    detection_us=LONG,
    detected_from=TEXT,
    blackout_us=LONG,
    blackouts=ArrayType(BLACKOUT),
    group_blackouts=ArrayType(GROUP_BLACKOUT),
    tail_messages=LONG,
    uncertainty_us=REAL,
)
"""A change of the configuration: a new regular one, and what it took to get there."""

# --- incidents --------------------------------------------------------------------------------------------------------

CHANGE: Final = ["run", "view"]

STAY: Final = ["node", "stay_no"]

SEPARATES: Final = "split(what, ' ')[0] in ('crash', 'cut', 'leave', 'partition', 'pause')"
"""Faults that part nodes at once; others, such as weather, only make it likely."""


def incidents(laid: HistoryTables, known: Clocks, keep: Keep = not_kept) -> DataFrame:
    """INCIDENTS of all runs."""
    moves = keep("moves", changes_of_nodes(laid, known))
    changes = keep("changes", _what_happened(laid, moves))
    silent = _silences(laid, known, moves)
    parts = [_detections(laid, known, changes), _blackouts(silent), _group_blackouts(laid, silent), _tails(laid, moves)]
    for part in parts:
        changes = changes.join(part, CHANGE, "left")
    lists = {name: F.coalesce(name, F.array()) for name in ("blackouts", "group_blackouts")}
    whole = changes.fillna(0, ["tail_messages"]).withColumns({"duration_us": F.expr("installed_us - began_us"), **lists})
    return whole.select(*INCIDENTS.names)


def changes_of_nodes(laid: HistoryTables, known: Clocks) -> DataFrame:
    """A row for each node that came from another regular configuration; all times are those of the run.

    run, view, view_name, members, cause, node, node_name, stay_no (of the new stay), conf_us, conf_us_uncertainty, old, old_name,
    old_members, trans_name, trans_us, left_us (null where no note says so).
    """
    confs = in_reference_time(laid.confs, known, "time_us", "conf_us")
    about = ("view_name", "members", "cause", "node_name", "conf_us", "conf_us_uncertainty")
    new = confs.where("view_kind = 0").select(*CHANGE, *STAY, *about)
    trans = confs.where("view_kind = 1").groupBy("node", _next_stay()).agg(F.min("conf_us").alias("trans_us"))
    old = {"ring": "old", "ring_name": "old_name", "members": "old_members", "trans_name": "trans_name"}
    before = laid.stays.select("node", _next_stay(), *(F.col(name).alias(alias) for name, alias in old.items()))
    moved = new.join(before, STAY).join(trans, STAY, "left")
    return moved.join(_leavings(laid, known), STAY, "left")


def _next_stay() -> Column:
    return (F.col("stay_no") + 1).alias("stay_no")


def _leavings(laid: HistoryTables, known: Clocks) -> DataFrame:
    """When a node stopped passing the token of a stay."""
    left = laid.tables["notes"].where("what = 'state' and exists(detail, one -> one.key = 'from' and one.value = 'Operational')")
    converted = in_reference_time(_placed(left, laid), known, "time_us", "left_us")
    return converted.groupBy("node", _next_stay()).agg(F.min("left_us").alias("left_us"))


def _placed(events: DataFrame, laid: HistoryTables) -> DataFrame:
    return in_their_stays(events, laid.stretches)


def _what_happened(laid: HistoryTables, moves: DataFrame) -> DataFrame:
    """The change as a whole: what was before, when, why, who is lost and who has joined."""
    largest = F.max_by("old_members", F.struct(F.size("old_members"), "old_name"))
    changes = moves.groupBy(*CHANGE, "view_name", "members").agg(
        F.min("cause").alias("cause"),
        F.sort_array(F.collect_set(F.struct("old_name", "old"))).alias("olds"),
        F.sort_array(F.collect_set("trans_name")).alias("transitional_names"),
        F.flatten(F.collect_set("old_members")).alias("were"),
        largest.alias("largest"),
        F.min(F.coalesce("left_us", "trans_us", "conf_us")).alias("began_us"),
        F.min(F.coalesce("trans_us", "conf_us")).alias("trans_us"),
        F.max("conf_us").alias("installed_us"),
        F.max("conf_us_uncertainty").alias("uncertainty_us"),
    )
    entries = F.map_from_entries(F.collect_set(F.struct("node", "node_name"))).alias("names")
    named = changes.join(F.broadcast(laid.node_names.groupBy("run").agg(entries)), "run")
    lost, joined = F.array_except("were", "members"), F.array_except("members", "largest")
    return named.withColumns(
        {
            "old_views": F.col("olds.old"), "old_names": F.col("olds.old_name"), "lost_nodes": lost,
            "lost": _in_words(lost), "joined": _in_words(joined), "members": _in_words(F.col("members")),
        }
    ).drop("olds", "were", "largest", "names")  # fmt: skip


def _in_words(nodes: Column) -> Column:
    return F.sort_array(F.transform(nodes, lambda node: F.element_at("names", node)))


# -- detection -------------------------------------------------------------------------------------------------------


def _detections(laid: HistoryTables, known: Clocks, changes: DataFrame) -> DataFrame:
    """The time from what happened until the nodes acted on it."""
    olds = changes.where(F.size("lost_nodes") > 0).withColumn("old", F.explode("old_views"))
    lost = olds.withColumn("node", F.explode("lost_nodes")).join(_deaths(laid, known), ["node", "old"])
    deaths = (
        lost.where("died_us <= trans_us")
        .groupBy(*CHANGE)
        .agg(F.min("died_us").alias("died_us"), F.min_by("how", "died_us").alias("how"))
    )
    faults = _placed(laid.tables["faults"].where(SEPARATES), laid).withColumnRenamed("ring", "old")
    struck = in_reference_time(faults, known, "time_us", "struck_us").drop("run")
    hits = olds.join(struck, "old").where("struck_us <= began_us")
    blows = hits.groupBy(*CHANGE).agg(F.max("struck_us").alias("struck_us"), F.max_by("what", "struck_us").alias("what"))
    rows = olds.select(*CHANGE, "trans_us").distinct().join(deaths, CHANGE, "left").join(blows, CHANGE, "left")
    detection = (F.col("trans_us") - F.coalesce("died_us", "struck_us")).alias("detection_us")
    return rows.select(*CHANGE, detection, F.coalesce("how", "what").alias("detected_from"))


def _deaths(laid: HistoryTables, known: Clocks) -> DataFrame:
    """node, old, died_us, how: lives that ended, or whose trace stops, in a configuration."""
    last = laid.stays.where("following is null").select("node", F.col("ring").alias("old"), "node_name")
    ends = laid.lives.select("run", "node", "ended", "end_us").join(known.spans.select("node", "last_us"), "node")
    converted = in_reference_time(ends.withColumn("died_us", F.coalesce("end_us", "last_us")), known, "died_us", "died_us")
    unseen = F.when(F.col("ended") == "", F.concat(F.lit("the last event of "), "node_name"))
    how = F.coalesce(unseen, F.concat_ws(" ", "node_name", "ended")).alias("how")
    return converted.join(last, "node").select("node", "old", "died_us", how)


# -- blackouts -------------------------------------------------------------------------------------------------------


def _silences(laid: HistoryTables, known: Clocks, moves: DataFrame) -> DataFrame:
    """The blackout of each node that moved: run, view, node, node_name, last_before_us, first_after_us, blackout_us."""
    ordered = laid.deliveries.where("phase = 0 and tpos >= 0")
    ends = ordered.groupBy("run", *STAY).agg(F.min("time_us").alias("first_us"), F.max("time_us").alias("last_us"))
    first = in_reference_time(ends.select("run", *STAY, "first_us"), known, "first_us", "first_after_us")
    last = in_reference_time(ends.select("run", "node", _next_stay(), "last_us"), known, "last_us", "last_before_us")
    rows = moves.select(*CHANGE, *STAY, "node_name").join(last.drop("run"), STAY, "left").join(first.drop("run"), STAY, "left")
    return rows.withColumn("blackout_us", F.expr("first_after_us - last_before_us"))


def _blackouts(silent: DataFrame) -> DataFrame:
    known = silent.where("blackout_us is not null")
    each = F.struct("node", "node_name", "last_before_us", "first_after_us", "blackout_us")
    longest = F.max("blackout_us").alias("blackout_us")
    return known.groupBy(*CHANGE).agg(longest, F.sort_array(F.collect_list(each)).alias("blackouts"))


def _group_blackouts(laid: HistoryTables, silent: DataFrame) -> DataFrame:
    """For each group with members in the new configuration, the longest blackout of their nodes."""
    members = laid.tables["group_views"].select("view", "group", "name", F.explode("members").alias("process"))
    homes = members.join(laid.process_names.select("process", "node"), "process").drop("process").distinct()
    longest = homes.join(silent, ["view", "node"]).groupBy(*CHANGE, "group").agg(
        F.min("name").alias("group_name"), F.max("blackout_us").alias("blackout_us")
    )  # fmt: skip
    each = F.struct("group", "group_name", "blackout_us")
    return (
        longest.where("blackout_us is not null").groupBy(*CHANGE).agg(F.sort_array(F.collect_list(each)).alias("group_blackouts"))
    )


# -- messages of one component only ----------------------------------------------------------------------------------


def _tails(laid: HistoryTables, moves: DataFrame) -> DataFrame:
    """Ordered messages of the transitional parts that some member of the old configuration did not deliver."""
    message = ["ring", "process", "first"]
    late = laid.deliveries.where("phase = 1 and tpos >= 0").select("node", _next_stay(), *message, "count")
    tail = late.join(moves.select(*CHANGE, *STAY, F.size("old_members").alias("required")), STAY)
    tail = tail.select(*CHANGE, *message, "count", "required").distinct()
    keys = tail.select(*message).distinct()
    holders = laid.deliveries.select("node", *message).join(F.broadcast(keys), message)
    counted = tail.join(holders.groupBy(*message).agg(F.countDistinct("node").alias("holders")), message)
    return counted.where("holders < required").groupBy(*CHANGE).agg(F.sum("count").alias("tail_messages"))
