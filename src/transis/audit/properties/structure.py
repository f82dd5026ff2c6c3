"""The structure of configurations at each node: regular, then (transitional, regular) again and again (protocols 2.2).

1. The first configuration of a life is regular and says that its node comes from nowhere.
2. A transitional configuration names the regular one it follows; all its members come from there.
3. Its members are those of the next regular configuration whose previous regular one was the same (W13).
4. Ring sequences grow; the representative is a member; members are sorted, each once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from transis.audit.plans.finding import (
    Found,
    Pair,
    Rules,
    breaking,
    broken,
    checked,
    found,
    name_members,
    name_views,
    sentence,
    several,
    words,
)
from transis.audit.plans.lay import Laid

NAME: Final = "structure"

BEFORE: Final = ("lseq", "view", "view_name", "view_kind", "regular", "members")
"""What is asked of the configuration before."""


def check(laid: Laid) -> Found:
    linked = _linked(laid)
    here, before = ("node", "lseq"), ("node", "before_lseq")
    parts = [
        _violations(laid, linked, _of_itself(), [here]),
        _violations(laid, linked.where("not blind"), _after_the_one_before(), [before, here]),
    ]
    return found([checked(laid.confs, NAME, pending="int(blind)")], parts)


def _linked(laid: Laid) -> DataFrame:
    """Every configuration with the one before it, the regular one before it (`ring`), and where its node says it came from."""
    orders = laid.view_names.select("view", "view_order")
    life = Window.partitionBy("node").orderBy("lseq")
    earlier = life.rowsBetween(Window.unboundedPreceding, -1)
    before = {f"before_{column}": F.lag(column).over(life) for column in BEFORE}
    regular = F.when(F.col("view_kind") == 0, F.struct("view", "view_name", "view_order"))
    ring = F.last(regular, ignorenulls=True).over(earlier)
    linked = laid.confs.join(orders, "view").withColumns(before).withColumn("ring", ring)
    return linked.withColumns(
        {"claimed": _own_previous(), "strangers": _not_from("regular"), "together": _from("before_regular")}
    )


def _violations(laid: Laid, linked: DataFrame, rules: Rules, witness: Sequence[Pair]) -> DataFrame:
    named = name_views(breaking(linked, rules), laid.view_names, "regular", "claimed", "before_regular")
    told = name_members(named, laid.node_names, "strangers", "together", "before_members")
    return broken(
        told,
        NAME,
        words("{node_name} installed {view_name}: ", sentence(rules)),
        witness=witness,
        nodes=["node"],
        views=["view"],
    )


def _of_itself() -> Rules:
    """What is wrong with a view whatever came before it."""
    regular = F.col("view_kind") == 0
    return [
        (~F.col("is_sorted"), words("its members are not sorted, or one is there twice")),
        (~F.array_contains("members", F.col("view_rep")), words("its representative is no member")),
        (
            regular & (F.col("regular") != F.col("view")),
            words("a regular configuration is its own regular one, not {regular_name}"),
        ),
        (
            ~regular & (F.size("strangers") > 0),
            words(several(F.col("strangers_names")), " did not come from {regular_name}"),
        ),
    ]


def _after_the_one_before() -> Rules:
    """What is wrong between one configuration and the next."""
    regular, first = F.col("view_kind") == 0, F.col("before_view").isNull()
    after_regular, after_transitional = F.col("before_view_kind") == 0, F.col("before_view_kind") == 1
    return [
        (first & ~regular, words("the first configuration of a life cannot be transitional")),
        (~regular & after_transitional, words("it follows another transitional configuration, {before_view_name}")),
        (
            ~regular & (F.col("regular") != F.col("before_view")),
            words("it says it follows {regular_name}, but {before_view_name} was in force"),
        ),
        (regular & after_regular, words("no transitional configuration stands between it and {before_view_name}")),
        (
            regular & (F.col("view_order") <= F.col("ring.view_order")),
            words("its ring sequence does not exceed that of ", F.col("ring.view_name")),
        ),
        (
            regular & (F.col("together") != F.col("before_members")),
            words(
                several(F.col("together_names")),
                " came from {before_regular_name}, but the transitional configuration had ",
                several(F.col("before_members_names")),
            ),
        ),
        (
            regular & F.array_contains("members", F.col("node")) & ~F.col("claimed").eqNullSafe(F.col("ring.view")),
            words(
                "it says that {node_name} came from ",
                _or_nowhere("claimed_name"),
                ", but it came from ",
                _or_nowhere("ring.view_name"),
            ),
        ),
    ]


def _own_previous() -> Column:
    return F.get("previous", F.array_position("members", F.col("node")).cast("int") - 1)


def _from(view: str) -> Column:
    """Members who say that they come from this view, in order."""
    came = F.filter(F.arrays_zip("members", "previous"), lambda member: member["previous"] == F.col(view))
    return F.transform(came, lambda member: member["members"])


def _not_from(view: str) -> Column:
    others = F.filter(F.arrays_zip("members", "previous"), lambda member: ~member["previous"].eqNullSafe(F.col(view)))
    return F.transform(others, lambda member: member["members"])


def _or_nowhere(name: str) -> Column:
    return F.coalesce(F.col(name), F.lit("nowhere"))
