"""Everything judged: all properties over a laid history, two at a time, and one verdict for each (run, property).

Each property is two queries: what it checked and what it found. A plan of all of them together takes longer to make than to run.
`explain()` one of `violations` to see its joins: the SQL of the property is the whole plan above the tables of views.py.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial, reduce
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from transis.audit.guarantees import (
    EVIDENCE_MEANINGS,
    GROUP_PROPERTIES,
    NODE_PROPERTIES,
    PROPERTIES,
    REPLICA_PROPERTIES,
    UNPROMISED,
)
from transis.audit.guarantees.property import Property, Reads
from transis.audit.plans import evidence as quality
from transis.audit.plans.clients import lay_clients
from transis.audit.plans.finding import Result, counts_of, kept, merge, verdicts, violations_of
from transis.audit.plans.lay import HistoryTables, Settle
from transis.audit.plans.spine import sequence
from transis.audit.plans.views import Views, views_of, views_of_clients, views_of_order, views_of_replicas
from transis.types.errors import UsageError

Progress = Callable[[str], AbstractContextManager[None]]
Job = Callable[[], Result]

AT_ONCE: Final = 2
"""Properties that are computed at a time. More took more of both cores' time, and no less of ours."""

OF_CLIENTS = ("group_views", "client_deliveries", "client_leaves", "clients", "checkpoints")
"""Kinds of events that only runs with client processes have."""

OF_REPLICAS = "replica_steps"
"""The kind of events that only runs with replicas have."""


@dataclass(frozen=True)
class Verdicts:
    verdicts: DataFrame
    """run, property, verdict, checked, violations, pending: one row each."""
    violations: DataFrame
    """The shortest few violations of each, with their rank."""
    rings: DataFrame | None
    """How far the order of each ring is proven (OrderedHistory.rings); nothing if no property of the order was wanted."""


def judge(laid: HistoryTables, settle: Settle, progress: Progress, only: Collection[str] = ()) -> Verdicts:
    """`progress` is asked for a context around each part of the work, for people who wait. If some properties are named only they
    are judged, and the evidence, without which no verdict is worth anything."""
    whole, rings = _audited(laid, settle, progress, only)
    wanted = expected(laid) if not only else expected(laid).where(F.col("property").isin(*only, *EVIDENCE_MEANINGS))
    return Verdicts(settle(verdicts(wanted, whole.checked, whole.broken)), settle(kept(whole.broken)), rings)


def audited(laid: HistoryTables, settle: Settle, progress: Progress) -> Result:
    """What all properties found, settled."""
    return _audited(laid, settle, progress, ())[0]


def _audited(laid: HistoryTables, settle: Settle, progress: Progress, only: Collection[str]) -> tuple[Result, DataFrame | None]:
    """With the rings, for whoever shortens what is proven."""
    parts: list[Result] = []
    with progress("looking at the evidence and the configurations"):
        of_views = by_query(chosen(Reads.VIEWS, only), views_of(laid, settle), settle)
        parts += together([partial(of_evidence, laid, settle), *of_views])
    rings: DataFrame | None = None
    if of_order := chosen(Reads.ORDER, only):
        with progress("bringing all deliveries into one sequence"):
            ordered = sequence(laid, settle)
            rings = ordered.rings
        with progress("judging the order of messages"):
            parts += together(by_query(of_order, views_of_order(ordered, settle), settle))
    if of_groups := chosen(Reads.GROUPS, only):
        with progress("judging groups"):
            views = views_of_clients(lay_clients(laid, settle), settle)
            parts += together(by_query(of_groups, views, settle))
    if (of_replicas := chosen(Reads.REPLICAS, only)) and not laid.tables[OF_REPLICAS].isEmpty():
        with progress("judging replicas"):
            parts += together(by_query(of_replicas, views_of_replicas(laid, settle), settle))
    return merge([part.checked for part in parts], [part.broken for part in parts]), rings


def chosen(reads: Reads, only: Collection[str]) -> list[Property[Any]]:
    return [one for one in PROPERTIES.values() if one.reads is reads and (not only or one.name in only)]


def require_known(only: Collection[str]) -> None:
    """Raises UsageError for a name that no property has."""
    known = [*EVIDENCE_MEANINGS, *PROPERTIES]
    for name in only:
        if name not in known:
            near = get_close_matches(name, known, 1)
            raise UsageError(
                f"there is no property {name!r}{f', but {near[0]}' if near else ''}; all of them: {', '.join(known)}"
            )


def together(jobs: Sequence[Job]) -> list[Result]:
    """Several properties at a time: of a small trace most time is planning, which takes one core each."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(lambda job: job(), jobs))


def of_evidence(laid: HistoryTables, settle: Settle) -> Result:
    found = quality.check(laid)
    return Result(settle(found.checked), settle(found.broken))


# -- one property ----------------------------------------------------------------------------------------------------


def by_query(properties: Sequence[Property[Any]], views: Views, settle: Settle) -> list[Job]:
    return [partial(result, one, views, settle) for one in properties]


def result(one: Property[Any], views: Views, settle: Settle) -> Result:
    """What a property found, and how much it checked."""
    found = views.queries(one.sql)
    rows = settle(union([violations_of(some, one) for some in found]))
    amounts = views.queries(one.counts)
    if any("is_pending" in some.columns for some in found):
        amounts.append(rows.where("is_pending").select("run", "ring", F.lit(1).alias("pending")))
    return Result(settle(counts_of(amounts, one.name)), rows.where("not is_pending").drop("is_pending"))


def union(tables: Sequence[DataFrame]) -> DataFrame:
    return reduce(DataFrame.unionByName, tables)


# -- all runs --------------------------------------------------------------------------------------------------------


def expected(laid: HistoryTables) -> DataFrame:
    """Every property that a run should have a verdict on, and whether its mode promises it."""
    of_all = _each([*EVIDENCE_MEANINGS, *NODE_PROPERTIES])
    runs = laid.runs.select("run", "mode", of_all)
    with_clients = laid.tables.events.where(F.col("kind").isin(*OF_CLIENTS)).select("run").distinct()
    grouped = laid.runs.join(with_clients, "run", "left_semi").select("run", "mode", _each(GROUP_PROPERTIES))
    with_replicas = laid.tables[OF_REPLICAS].select("run").distinct()
    replicated = laid.runs.join(with_replicas, "run", "left_semi").select("run", "mode", _each(REPLICA_PROPERTIES))
    judged = runs.unionByName(grouped).unionByName(replicated).unionByName(_unread(laid))
    unpromised = F.lit(False)
    for mode, lacking in UNPROMISED.items():
        unpromised |= (F.col("mode") == mode) & F.col("property").isin(*lacking)
    return judged.select("run", "property", (~unpromised).alias("promised"))


def _each(names: Sequence[str]) -> Column:
    return F.explode(F.array(*map(F.lit, names))).alias("property")


def _unread(laid: HistoryTables) -> DataFrame:
    """Runs without a single readable file: that is their verdict, and without it nobody would hear of them."""
    named = laid.tables["segments"].where("run is not null").groupBy("run").agg(F.max("mode").alias("mode"))
    return named.join(laid.runs, "run", "left_anti").select("run", "mode", F.lit(quality.READABLE).alias("property"))
