"""Members only (traces plan G): a client's stream is its node's stream, filtered by address and by the group views in force.

1. An ordered run goes, right behind its delivery, to the connected processes that are in the view in force of one of its groups
   or that it names, through exactly those of its groups that they are in; and to nobody else (group_handing.py).
2. A view goes to its members that are connected here, and nobody stops being one without a word.
3. Where a trace does not say who connects and who goes, a process is there from the first thing it gets; silence then means
   that it is gone, and a word after the silence that it missed something.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from transis.audit.plans.clients import Clients, before_gaps, heard_of, name_crowds, or_never
from transis.audit.plans.finding import Found, broken, checked, found, several, words
from transis.audit.plans.lay import latest
from transis.audit.properties import group_handing
from transis.audit.properties.group_handing import NAME


def check(crowd: Clients) -> Found:
    messages = group_handing.check(crowd)
    seats, leaves = before_gaps(crowd, crowd.seats), before_gaps(crowd, crowd.laid.tables["client_leaves"])
    looked_at = [checked(seats, NAME), checked(crowd.lives, NAME, "0", "int(gapped)"), messages.checked]
    views = [_shown_to_others(crowd), _dropped(crowd, seats)]
    last_words = [_told_when_gone(crowd, seats, leaves), _left_from_outside(crowd, leaves)]
    return found(looked_at, [*views, *last_words, messages.broken])


def _shown_to_others(crowd: Clients) -> DataFrame:
    views = before_gaps(crowd, crowd.changes).join(F.broadcast(crowd.lives.select("node", "told")), "node")
    local = F.filter("members", lambda _, at: F.get("member_nodes", at) == F.col("node"))
    placed = views.withColumn("local", local).join(_connected_members(crowd), ["node", "lseq"], "left")
    connected = F.coalesce("connected", F.array().cast("array<bigint>"))
    expected = F.when(F.col("told"), connected).otherwise(F.array_intersect("local", "processes"))
    wrong = placed.withColumn("expected", expected).where("processes <> expected")
    named = name_crowds(wrong, crowd.people, "processes", "expected")
    shown, instead = several(F.col("processes_names")), several(F.col("expected_names"))
    return _told(named, words("{node_name} showed {label} of {name} to ", shown, " instead of ", instead))


def _connected_members(crowd: Clients) -> DataFrame:
    """By view: its members on the node that shows it, as far as they are connected, in order."""
    single = crowd.changes.select(
        "node", "lseq", F.posexplode(F.arrays_zip(F.col("members"), F.col("member_nodes").alias("home"))).alias("at", "member")
    )
    local = single.where("member.home = node").select("node", "lseq", "at", F.col("member.members").alias("process"))
    life = crowd.laid.tables["clients"].select("node", "process", "lseq", "connected")
    there = latest(local, life, ["node", "process"], "life").where("life.connected")
    in_order = F.sort_array(F.collect_list(F.struct("at", "process")))["process"]
    return there.groupBy("node", "lseq").agg(in_order.alias("connected"))


def _dropped(crowd: Clients, seats: DataFrame) -> DataFrame:
    """Who was in the group until its next view, is not shown that, and is there or comes to word again."""
    views = before_gaps(crowd, crowd.changes).select("node", "group", "lseq", "label", "name", "view")
    ended = seats.where(or_never("until") > F.col("next_lseq")).select(
        "run", "node", "group", "process", F.col("next_lseq").alias("lseq")
    )
    shown = seats.select("node", "group", "process", "lseq")
    missing = ended.join(shown, ["node", "group", "process", "lseq"], "left_anti").join(views, ["node", "group", "lseq"])
    there = missing.join(heard_of(crowd), "process").where("lseq < heard")
    named = there.join(crowd.people.select("process", "process_name"), "process")
    return _told(named, words("{process_name} is not in {label} of {name} and was not told that it left"))


def _told_when_gone(crowd: Clients, seats: DataFrame, leaves: DataFrame) -> DataFrame:
    gone = crowd.laid.tables["clients"].where("not connected").groupBy("process").agg(F.min("lseq").alias("gone_lseq"))
    heard = seats.select("run", "node", "process", "lseq").unionByName(leaves.select("run", "node", "process", "lseq"))
    late = heard.join(gone, "process").where("lseq > gone_lseq")
    named = late.join(crowd.people.select("process", "process_name"), "process")
    return _told(named, words("{process_name} was told something after it had gone"))


def _left_from_outside(crowd: Clients, leaves: DataFrame) -> DataFrame:
    """A seat that this very leave ends was there."""
    marks = crowd.seats.select("node", "process", "group", "lseq", "next_lseq", "until")
    placed = latest(leaves.where("not refused"), marks, ["node", "process", "group"], "seat")
    inside = F.col("seat.until").eqNullSafe(F.col("lseq")) & (or_never("seat.next_lseq") > F.col("lseq"))
    named = placed.where(~inside).join(crowd.people.select("process", "process_name"), "process")
    return _told(named, words("{process_name} was told that it left {name}, in which it was not"))


def _told(wrong: DataFrame, explanation: Column) -> DataFrame:
    return broken(wrong, NAME, explanation, [("node", "lseq")], nodes=["node"], position="lseq")
