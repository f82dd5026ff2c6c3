"""Runs every property's SQL, two at a time; verdicts and violations as rows.

Everything judged: all properties over a laid history, and one verdict for each (run, property).

Each property is a job for what it checked and one for what it found, since a plan of all of them together takes longer to make
than to run.

What a property hands out: how much it checked, and what it found broken, in words and with witnesses.

Rows are never capped here; verdicts.py keeps the shortest few of each property and the true count.

Names in sentences: keys become names only where something is broken; the tables of names are joined there and not before.

Rules of which the first that a row breaks is told: conditions first, over all rows; sentences only for rows that break one.

A sentence may then use names that were joined in between.

Verdicts out of what the properties found: broken before pending before held; nothing checked is `not exercised` (traces 5).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from difflib import get_close_matches
from functools import reduce
from typing import Final, TypeVar

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from transis.audit.guarantees.property import UNPROMISED
from transis.audit.plans import evidence as quality
from transis.audit.plans.clients import lay_clients
from transis.audit.plans.finding import Found, found, kept, verdicts
from transis.audit.plans.lay import Laid, Settle
from transis.audit.plans.tail import sequence
from transis.audit.properties.properties import OF_EVIDENCE, OF_GROUPS, OF_ORDER, OF_VIEWS, names
from transis.types.errors import UsageError

Told = Callable[[str], AbstractContextManager[None]]
Laying = TypeVar("Laying")
Check = TypeVar("Check")

AT_ONCE: Final = 2
"""Properties that are computed at a time. More took more of both cores' time, and no less of ours."""

OF_CLIENTS = ("group_views", "client_deliveries", "client_leaves", "clients", "checkpoints")
"""Kinds of events that only runs with client processes have."""


@dataclass(frozen=True)
class Judged:
    verdicts: DataFrame
    """run, property, verdict, checked, violations, pending: one row each."""
    violations: DataFrame
    """The shortest few violations of each, with their rank."""
    rings: DataFrame | None
    """How far the order of each ring is proven (tail.Sequence.rings); nothing if no property of the order was wanted."""


def judge(laid: Laid, settle: Settle, told: Told, only: Collection[str] = ()) -> Judged:
    """`told` is asked for a context around each part of the work, for people who wait. If some properties are named only they are
    judged, and the evidence, without which no verdict is worth anything."""
    whole, rings = _audited(laid, settle, told, only)
    wanted = expected(laid) if not only else expected(laid).where(F.col("property").isin(*only, *names({**OF_EVIDENCE})))
    return Judged(settle(verdicts(wanted, whole.checked, whole.broken)), settle(kept(whole.broken)), rings)


def audited(laid: Laid, settle: Settle, told: Told) -> Found:
    """What all properties found, settled."""
    return _audited(laid, settle, told, ())[0]


def _audited(laid: Laid, settle: Settle, told: Told, only: Collection[str]) -> tuple[Found, DataFrame | None]:
    """With the rings, for whoever shortens what is proven."""
    parts: list[Found] = []
    with told("looking at the evidence and the configurations"):
        parts += together({**OF_EVIDENCE, **chosen(OF_VIEWS, only)}, laid, settle)
    rings: DataFrame | None = None
    if of_order := chosen(OF_ORDER, only):
        with told("bringing all deliveries into one sequence"):
            ordered = sequence(laid, settle)
            rings = ordered.rings
        with told("judging the order of messages"):
            parts += together(of_order, ordered, settle)
    if of_groups := chosen(OF_GROUPS, only):
        with told("judging groups"):
            parts += together(of_groups, lay_clients(laid, settle), settle)
    return found([part.checked for part in parts], [part.broken for part in parts]), rings


def chosen(properties: Mapping[tuple[str, ...], Check], only: Collection[str]) -> dict[tuple[str, ...], Check]:
    return {several: check for several, check in properties.items() if not only or not set(only).isdisjoint(several)}


def require_known(only: Collection[str]) -> None:
    """Raises UsageError for a name that no property has."""
    known = names({**OF_EVIDENCE, **OF_VIEWS, **OF_ORDER, **OF_GROUPS})
    for name in only:
        if name not in known:
            near = get_close_matches(name, known, 1)
            raise UsageError(
                f"there is no property {name!r}{f', but {near[0]}' if near else ''}; all of them: {', '.join(known)}"
            )


def together(properties: Mapping[tuple[str, ...], Callable[[Laying], Found]], laid: Laying, settle: Settle) -> list[Found]:
    """Several properties at a time: of a small trace most time is planning, which takes one core each."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(lambda check: _settled(check(laid), settle), properties.values()))


def _settled(found: Found, settle: Settle) -> Found:
    return Found(settle(found.checked), settle(found.broken))


def expected(laid: Laid) -> DataFrame:
    """Every property that a run should have a verdict on, and whether its mode promises it."""
    of_all = names({**OF_EVIDENCE, **OF_VIEWS, **OF_ORDER})
    runs = laid.runs.select("run", "mode", F.explode(F.array(*map(F.lit, of_all))).alias("property"))
    with_clients = laid.tables.events.where(F.col("kind").isin(*OF_CLIENTS)).select("run").distinct()
    of_groups = F.explode(F.array(*map(F.lit, names({**OF_GROUPS})))).alias("property")
    grouped = laid.runs.join(with_clients, "run", "left_semi").select("run", "mode", of_groups)
    judged = runs.unionByName(grouped).unionByName(_unread(laid))
    unpromised = [(F.col("mode") == mode) & F.col("property").isin(*lacking) for mode, lacking in UNPROMISED.items() if lacking]
    promised = ~reduce(lambda left, right: left | right, unpromised)
    return judged.select("run", "property", promised.alias("promised"))


def _unread(laid: Laid) -> DataFrame:
    """Runs of which not one file can be read: that is their verdict, and without it nobody would hear of them."""
    named = laid.tables["segments"].where("run is not null").groupBy("run").agg(F.max("mode").alias("mode"))
    return named.join(laid.runs, "run", "left_anti").select("run", "mode", F.lit(quality.READABLE).alias("property"))
