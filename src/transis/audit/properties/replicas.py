"""Replicas agree: processes of a group that say in which state they are behind the same messages of a view say the same.

A digest is the application's own word (`group.checkpoint`). Compared are those of one group, one view and one count of ordered
messages since it; told is where two first differ, and the last position before it at which processes of both sides said the same.
Of several words of a process behind one count the last counts: it may speak before and after it was given its state.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from transis.audit.plans.clients import Clients
from transis.audit.plans.finding import Found, broken, checked, found, several, words

NAME: Final = "replicas_agree"
VIEW: Final = ["run", "group", "group_view", "name"]
WHERE: Final = ["last_process", "last_counter", "place_seq", "place_index"]
"""The message behind which a state was told."""


def check(crowd: Clients) -> Found:
    told = crowd.laid.tables["checkpoints"]
    rows = broken(
        _named(_differences(_last_words(told), crowd), crowd),
        NAME,
        words("{name} in {label}: ", _beginning(), ", different ", _behind("differs"), ": ", _sides(), "; ", _between()),
        witness=F.transform("who", lambda one: F.struct(one["node"].alias("node"), one["lseq"].alias("lseq"))),
        messages=_messages(),
        nodes=F.array_distinct(F.col("who.node")),
        position="differs.position",
    )
    return found([checked(told, NAME)], [rows])


def _last_words(told: DataFrame) -> DataFrame:
    by_process = [*VIEW, "position", "process"]
    rest = F.struct(*(name for name in told.columns if name not in by_process))
    return told.groupBy(*by_process).agg(F.max_by(rest, "lseq").alias("said")).select(*by_process, "said.*")


def _differences(told: DataFrame, crowd: Clients) -> DataFrame:
    """One row a group view whose replicas differ: the first position at which they do, who said what there, and the last one
    before it at which processes of both sides spoke."""
    by_position = told.groupBy(*VIEW, "position").agg(
        (F.min("state") != F.max("state")).alias("differ"), F.first(F.struct(*WHERE)).alias("where")
    )
    first = by_position.groupBy(*VIEW).agg(F.min(F.when(F.col("differ"), F.col("position"))).alias("at")).where("at is not null")
    upto = told.join(F.broadcast(first), VIEW).where("position <= at")
    there = upto.where("position = at")
    placed = by_position.join(F.broadcast(first), VIEW).where("position <= at")
    stand = F.struct("position", "where.*")
    parted = (
        placed.join(_shared(upto, there), [*VIEW, "position"], "left")
        .groupBy(*VIEW, "at")
        .agg(F.max_by(stand, "position").alias("differs"), F.max(F.when(F.col("shared"), stand)).alias("equal"))
    )
    people = crowd.people.select("process", "process_name", "process_order")
    ids = crowd.laid.node_names.select("node", F.struct("name", "incarnation", "boot").alias("node_order"))
    entry = F.struct("node_order", "lseq", "state", "process_order", "process_name", "node")
    who = there.join(people, "process").join(ids, "node").groupBy(*VIEW).agg(F.sort_array(F.collect_list(entry)).alias("who"))
    return parted.join(who, VIEW)


def _shared(upto: DataFrame, there: DataFrame) -> DataFrame:
    """Positions before the difference, and whether processes of two of its sides spoke at them."""
    sides = there.select(*VIEW, "process", F.col("state").alias("side")).distinct()
    before = upto.where("position < at").join(F.broadcast(sides), [*VIEW, "process"])
    return before.groupBy(*VIEW, "position").agg((F.min("side") != F.max("side")).alias("shared"))


def _named(rows: DataFrame, crowd: Clients) -> DataFrame:
    """With the view in words, and the senders of both messages."""
    views = crowd.laid.tables.names("group_view_names").join(crowd.laid.view_names.select("view", "view_name"), "view")
    label = F.concat("view_name", F.lit("+"), "place_seq", F.lit("."), "cause_index")
    rows = rows.join(F.broadcast(views.select("group_view", label.alias("label"))), "group_view")
    for name in ("equal", "differs"):
        senders = crowd.people.select(F.col("process").alias(f"{name}_process"), F.col("process_name").alias(f"{name}_sender"))
        rows = rows.withColumn(f"{name}_process", F.col(f"{name}.last_process")).join(senders, f"{name}_process", "left")
    return rows


def _beginning() -> Column:
    return F.when(F.col("equal").isNull(), "never compared before").otherwise(F.concat(F.lit("equal "), _behind("equal")))


def _behind(name: str) -> Column:
    message = words(f"behind {{{name}_sender}}:{{{name}.last_counter}}")
    return F.when(F.col(f"{name}.last_process").isNull(), "at the view itself").otherwise(message)


def _sides() -> Column:
    """Processes by what they said: most first."""

    def of_state(state: Column) -> Column:
        said = F.filter("who", lambda one: one["state"] == state)
        people = F.array_sort(F.array_distinct(F.transform(said, _person)))
        return F.struct((-F.size(people)).alias("fewer"), people.alias("people"))

    sides = F.array_sort(F.transform(F.array_distinct(F.col("who.state")), of_state))
    return F.array_join(F.transform(sides, lambda side: several(side["people"]["process_name"])), " against ")


def _person(one: Column) -> Column:
    return F.struct(one["process_order"].alias("process_order"), one["process_name"].alias("process_name"))


def _between() -> Column:
    count = F.col("differs.position") - F.coalesce("equal.position", F.lit(0))
    place = words("place {equal.place_seq}.{equal.place_index}")
    start = F.when(F.col("equal.last_process").isNull(), "the view").otherwise(place)
    end = words("place {differs.place_seq}.{differs.place_index}")
    told = words("it is one of ", count, " messages after ", start, ", up to ", end)
    return F.when(count == 0, "before any message").otherwise(told)


def _messages() -> Column:
    def message(name: str) -> Column:
        pair = F.struct(F.col(f"{name}.last_process").alias("process"), F.col(f"{name}.last_counter").alias("counter"))
        return F.when(F.col(f"{name}.last_process").isNotNull(), pair)

    return F.array_compact(F.array(message("equal"), message("differs")))
