"""What a group view says has changed is what has: `joined`, `left` and `merged_from` against the views that were in force.

1. A transitional view is the view in force without those whose node is lost; nobody joins in it.
2. A regular view: who does not come from the view in force here has joined; who was in the last regular view and does not come
   from the view in force has left, so that who went away and came back is in both.
3. `merged_from` is true: a process comes from the view that it has in force, a newcomer from none.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from transis.audit.plans.clients import Clients, name_crowds
from transis.audit.plans.finding import Found, Rules, breaking, broken, checked, found, sentence, several, words

NAME: Final = "group_differences"


def check(crowd: Clients) -> Found:
    origins = _seats_before_gaps(crowd)
    looked_at = [checked(crowd.changes, NAME), checked(origins, NAME), checked(crowd.lives, NAME, "0", "int(gapped)")]
    return found(looked_at, [_wrong_views(crowd), _wrong_origins(crowd, origins)])


# -- what a view says, held against the views before it --------------------------------------------------------------


def _wrong_views(crowd: Clients) -> DataFrame:
    rules = _rules()
    wrong = breaking(crowd.changes.withColumns(_expected()), rules)
    named = name_crowds(wrong, crowd.people, "members", "joined", "left", "newcomers", "leavers", "strangers", "stay")
    explanation = words("{node_name}: {label} of {name}: ", sentence(rules))
    return broken(named, NAME, explanation, [("node", "lseq")], nodes=["node"], views=["view"], position="lseq")


def _expected() -> dict[str, Column]:
    """Whom the views before say to have come, gone and stayed; null where there is nothing to compare with."""
    come_along = F.flatten(
        F.transform(F.filter("origins", lambda origin: origin.view == F.col("before.group_view")), lambda origin: origin.members)
    )

    def is_here(_: Column, at: Column) -> Column:
        return F.array_contains("own.members", F.get("before.member_nodes", at))

    return {
        "strangers": F.array_except("joined", "members"),
        "coming": F.flatten(F.transform("origins", lambda origin: origin.members)),
        "newcomers": F.array_except("members", come_along),
        "leavers": F.array_except("regular.members", come_along),
        "stay": F.filter("before.members", is_here),
    }


def _rules() -> Rules:
    return (*_unlike_itself(), *_wrong_regular(), *_wrong_transitional())


def _unlike_itself() -> Rules:
    twice = F.size(F.array_distinct("coming")) < F.size("coming")
    return (
        (~F.col("is_sorted"), F.lit("members, joined, left or merged_from is not sorted, or names somebody twice")),
        (F.size("strangers") > 0, words(several(F.col("strangers_names")), " joined and is no member")),
        (
            twice | (F.size(F.array_except("coming", "members")) > 0),
            F.lit("a member comes from two views, or who is no member from one"),
        ),
        (F.expr("before is null and not blind and not is_regular"), F.lit("a transitional view before any other")),
    )


def _wrong_regular() -> Rules:
    joined, left = several(F.col("joined_names")), several(F.col("left_names"))
    newcomers, leavers = several(F.col("newcomers_names")), several(F.col("leavers_names"))
    return (
        (
            F.expr("is_regular and before is not null and joined <> newcomers"),
            words(joined, " joined, it says, but those who do not come from {before.label} are ", newcomers),
        ),
        (
            F.expr("is_regular and before is not null and regular is not null and left <> leavers"),
            words(left, " left, it says, but ", leavers, " of {regular.label} do not come from {before.label}"),
        ),
    )


def _wrong_transitional() -> Rules:
    comparable = F.expr("not is_regular and before is not null and own is not null")
    missing = F.array_sort(F.array_except("before.members", "members"))
    only = F.get("origins", F.lit(0))
    come_from_it = (only.view == F.col("before.group_view")) & (only.members == F.col("members")) & (F.size("origins") == 1)
    members, stay = several(F.col("members_names")), several(F.col("stay_names"))
    return (
        (
            comparable & F.expr("members <> stay"),
            words("its members are ", members, ", but of {before.label} ", stay, " come along"),
        ),
        (
            comparable & ((F.size("joined") > 0) | (F.array_sort(F.array_distinct("left")) != missing)),
            F.lit("somebody joins in it, or those who left are not those who are missing"),
        ),
        (comparable & ~F.coalesce(come_from_it, F.lit(False)), words("its members do not all come from {before.label}")),
    )


# -- where processes come from ---------------------------------------------------------------------------------------


def _seats_before_gaps(crowd: Clients) -> DataFrame:
    """Seats with the view that the process had in force; behind a gap nobody knows it."""
    gaps = crowd.lives.select("node", F.col("gap_lseq").alias("first_gap"))
    of_process = Window.partitionBy("process", "group").orderBy("lseq")
    had = F.lag(F.struct("group_view", "label", "left_lseq")).over(of_process)
    seats = crowd.seats.withColumn("had", had).join(F.broadcast(gaps), "node").where("first_gap is null or lseq < first_gap")
    return seats.withColumn("had", F.expr("if(had.left_lseq < lseq, null, had)"))


def _wrong_origins(crowd: Clients, seats: DataFrame) -> DataFrame:
    """Somebody who went away and came back may come from nowhere."""
    origins = crowd.changes.select("node", "lseq", F.explode("origins").alias("origin"))
    single = origins.select("node", "lseq", F.col("origin.view").alias("origin"), F.explode("origin.members").alias("process"))
    untrue = seats.join(single, ["node", "lseq", "process"], "left").where("not (origin <=> had.group_view)")
    views = crowd.changes.select("node", "lseq", "joined", "left")
    came_back = F.array_contains("joined", F.col("process")) & F.array_contains("left", F.col("process"))
    wrong = untrue.join(views, ["node", "lseq"]).where(F.col("origin").isNotNull() | ~came_back)
    return _told(crowd, wrong)


def _told(crowd: Clients, wrong: DataFrame) -> DataFrame:
    names = crowd.laid.tables.names("group_view_names").join(crowd.laid.view_names.select("view", "view_name"), "view")
    label = F.concat("view_name", F.lit("+"), "place_seq", F.lit("."), "cause_index").alias("origin_label")
    named = wrong.join(names.select(F.col("group_view").alias("origin"), label), "origin", "left")
    named = named.join(crowd.people.select("process", "process_name"), "process")
    had, origin = F.coalesce("had.label", F.lit("no view")), F.coalesce("origin_label", F.lit("none"))
    explanation = words("{process_name} had ", had, " of {name} in force, but by {label} it comes from ", origin)
    return broken(named, NAME, explanation, [("node", "lseq")], nodes=["node"], views=["view"], position="lseq")
