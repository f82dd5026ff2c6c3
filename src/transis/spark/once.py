"""Every message, view and configuration of an archive once, whoever archived it; contradictions; the view of each message.

1. Values are not shuffled. A life has every ordered message of its interval, so of several lives the lowest that covers a place
   owns it: a join with the few intervals decides, row by row. Only what has no place on that line is compared one by one:
   messages of transitional configurations, and those that are not ordered.
2. A view stays in force through configurations that change nothing in its group, so `conf` does not say which view it is. The
   stream of a life does: the last view before the message, unless rows are missing in between. Rows of a life are numbered, so
   a view is an interval of them, and messages are joined with these. Intervals are cut at blocks of rows, so that a message is
   compared with those of its block only.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from transis.spark.archive import (
    CONFIGURATION,
    LIFE,
    MESSAGE_ID,
    MESSAGES,
    PLACE,
    RING,
    VIEW,
    VIEWS,
    history_order,
    is_message,
    is_regular_line,
    place,
    ring_in,
)

# --- once -------------------------------------------------------------------------------------------------------------

ON_ONE_LINE = ("group", *RING)


def messages(stream: DataFrame, spans: DataFrame) -> DataFrame:
    """Every message once, with the configuration in which it was delivered. Of an unordered message the first copy in the order
    of the history counts."""
    recorded = stream.where(is_message()).select(*MESSAGES)
    covering = _covering(spans)
    is_lower = F.struct("other", "other_life") < F.struct("archiver", "life")
    owned = recorded.where(is_regular_line()).join(covering, [*_on_line(covering), is_lower], "left_anti")
    others = recorded.where(~is_regular_line()).join(covering, [*_on_line(covering), F.col("ordered")], "left_anti")
    return owned.unionByName(_first_of(others, MESSAGE_ID))


def _covering(spans: DataFrame) -> DataFrame:
    """The intervals, with column names of their own."""
    line = spans.where("lo is not null")
    own = [F.col(name).alias(f"line_{name}") for name in ON_ONE_LINE]
    return F.broadcast(line.select(*own, F.col("archiver").alias("other"), F.col("life").alias("other_life"), "lo", "hi"))


def _on_line(covering: DataFrame) -> list[Column]:
    """The row lies on that interval."""
    same = [F.col(name) == F.col(f"line_{name}") for name in ON_ONE_LINE]
    return [*same, place() >= F.col("lo"), place() <= F.col("hi")]


def _first_of(rows: DataFrame, key: tuple[str, ...]) -> DataFrame:
    rank = F.row_number().over(Window.partitionBy(*key).orderBy(*history_order()))
    return rows.withColumn("rank", rank).where("rank = 1").drop("rank")


def views(stream: DataFrame) -> DataFrame:
    """Every group view once. Equal ids have equal members, causes and origins wherever they were seen."""
    return _first_of(stream.where(F.col("kind") == VIEW).select(*VIEWS), ("group", "view"))


def configurations(stream: DataFrame) -> DataFrame:
    """Every configuration once, regular and transitional: its ring, its nodes, where each comes from, why it came about, when it
    was first seen by an archiver's clock, whether a group view in it says that it is primary, which nodes had members of the
    group (`hosts`, null if nobody knows), and which brought some out of another view to a merge (`brought`)."""
    recorded = stream.where(F.col("kind").isin(CONFIGURATION, VIEW))
    is_itself = F.col("kind") == CONFIGURATION
    members = F.last(F.when(~is_itself, F.col("members")), ignorenulls=True).over(Window.partitionBy(*LIFE).orderBy("row"))
    merging = F.when(F.size("merged_from") > 1, F.flatten("merged_from.members"))
    recorded = recorded.withColumns({"hosts": _nodes_of(members), "brought": _nodes_of(merging)})
    own = {"members": "nodes", "previous": "previous", "cause": "cause"}
    found = recorded.groupBy("conf", "transitional").agg(
        *(F.max(F.when(is_itself, F.col(name))).alias(alias) for name, alias in own.items()),
        F.max("primary").alias("primary"),
        F.min("received_at").alias("seen_at"),
        F.max(is_itself).alias("is_recorded"),
        *(F.array_distinct(F.flatten(F.collect_set(name))).alias(name) for name in ("hosts", "brought")),
    )
    found = found.withColumn("hosts", F.when(F.size("hosts") > 0, F.col("hosts")))
    # A transitional configuration follows its ring; all of its nodes come from there.
    ring = F.when(F.col("transitional"), F.element_at("previous", 1)).otherwise(F.col("conf"))
    return found.where("is_recorded").drop("is_recorded").withColumns(ring_in(ring))


def _nodes_of(processes: Column) -> Column:
    return F.array_distinct(F.transform(processes, lambda one: F.regexp_extract(one, "(.*)#", 1)))


def delivered_in(messages: DataFrame, configurations: DataFrame) -> DataFrame:
    """Messages with the nodes of the configuration in which each was delivered, where those came from, and why it came about."""
    wanted = configurations.select("conf", "nodes", "previous", F.col("cause").alias("configuration_cause"))
    return messages.join(F.broadcast(wanted), "conf", "left")


def conflicting_keys(stream: DataFrame) -> DataFrame:
    """What cannot be: two messages or two values at one place, one message at two places, one row twice in one life. That is a
    broken guarantee or a broken file, and is always reported."""
    recorded = stream.where(is_message())
    placed = recorded.where("ordered")
    value = F.xxhash64("value")
    at_place = placed.groupBy("group", *RING, *PLACE).agg(
        *_ends(F.struct("process", "counter")), (F.min(value) != F.max(value)).alias("values_differ")
    )
    of_message = placed.groupBy(*MESSAGE_ID).agg(*_ends(F.struct(*RING, *PLACE)))
    in_life = recorded.groupBy(*MESSAGE_ID, "archiver", "life").agg(*_ends(F.col("row")), F.count("*").alias("times"))
    differ = F.col("first") != F.col("last")
    at_place = at_place.where(differ | F.col("values_differ"))
    what = F.when(differ, "two messages at one place").otherwise("two values of one message")
    return (
        at_place.select(*_contradiction(what))
        .unionByName(of_message.where(differ).select(*_contradiction(F.lit("one message at two places"))))
        .unionByName(in_life.where("times > 1").select(*_contradiction(F.lit("one message twice in one life"))))
    )


def _ends(witness: Column) -> list[Column]:
    return [F.min(witness).alias("first"), F.max(witness).alias("last")]


def _contradiction(what: Column) -> list[Column]:
    """Two witnesses as text, because each kind has them in a different shape."""
    words = (F.to_json(F.struct(F.col(name).alias("is"))).alias(name) for name in ("first", "last"))
    return [F.col("group"), what.alias("what"), *words]


# --- in force ---------------------------------------------------------------------------------------------------------

BLOCK: Final = 1 << 12
"""Rows of a life that are searched for the view of one message."""


def in_views(messages: DataFrame, stream: DataFrame, spans: DataFrame) -> DataFrame:
    """Messages with the group view (`view`) in which each was delivered, as seen by the archiver that wrote the copy. It is null
    behind lost rows, up to the next view: the lost rows may have held another view."""
    same = {name: f"of_{name}" for name in (*LIFE, "block")}
    stays = F.broadcast(_stays(stream, spans).withColumnsRenamed(same))
    recorded = messages.withColumn("block", F.floor(F.col("row") / BLOCK))
    is_there = F.col("row").between(F.col("since"), F.col("until"))
    found = recorded.join(stays, [*(F.col(name) == F.col(other) for name, other in same.items()), is_there], "left")
    return found.select(*messages.columns, "view")


def _stays(stream: DataFrame, spans: DataFrame) -> DataFrame:
    """A row for each life, view and block of rows: the view was in force from row `since` to row `until`."""
    shown = stream.where(F.col("kind") == VIEW).select(*LIFE, F.col("row").alias("since"), "view")
    torn = spans.where("lost > 0").select(*LIFE, F.col("first_row").alias("since"), F.lit(None).cast("string").alias("view"))
    last = spans.groupBy(*LIFE).agg(F.max("last_row").alias("last_row"))
    onward = Window.partitionBy(*LIFE).orderBy("since", F.col("view").asc_nulls_first())
    until = F.coalesce(F.lead("since").over(onward) - 1, F.col("last_row"))
    found = shown.unionByName(torn).join(F.broadcast(last), list(LIFE)).withColumn("until", until)
    found = found.where("view is not null and since <= until")
    blocks = F.explode(F.sequence(F.floor(F.col("since") / BLOCK), F.floor(F.col("until") / BLOCK)))
    return found.select(*LIFE, "view", "since", "until", blocks.alias("block"))
