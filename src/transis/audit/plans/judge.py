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

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from difflib import get_close_matches
from functools import reduce
from typing import Final, TypeVar

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from transis.audit.guarantees.property import BROKEN, HELD, NOT_EXERCISED, NOT_PROMISED, PENDING, UNPROMISED
from transis.audit.plans import evidence as quality
from transis.audit.plans.clients import lay_clients
from transis.audit.plans.lay import Laid, Settle
from transis.audit.plans.spine import sequence
from transis.audit.plans.tables import CHECKED, LONG, VIOLATIONS
from transis.audit.properties.properties import OF_EVIDENCE, OF_GROUPS, OF_ORDER, OF_VIEWS, names
from transis.types.errors import UsageError

# --- finding ----------------------------------------------------------------------------------------------------------

Pair = tuple[str | Column, str | Column]


@dataclass(frozen=True)
class Found:
    """`checked` has the columns of CHECKED, several rows a run are added up; `broken` those of VIOLATIONS, a row each."""

    checked: DataFrame
    broken: DataFrame


def found(checked: Sequence[DataFrame], broken: Sequence[DataFrame]) -> Found:
    """Parts of one property put together."""
    return Found(reduce(_added, checked), reduce(_added, broken))


def _added(left: DataFrame, right: DataFrame) -> DataFrame:
    return left.unionByName(right, allowMissingColumns=True)


def checked(rows: DataFrame, name: str, count: str | Column = "1", pending: str | Column = "0") -> DataFrame:
    """How much there was to check, and how much cannot be judged yet: sums of two expressions over the rows of a run."""
    sums = {"checked": _summed(count), "pending": _summed(pending)}
    totals = rows.groupBy("run", _ring(rows)).agg(*(total.alias(column) for column, total in sums.items()))
    return totals.select("run", "ring", F.lit(name).alias("property"), "checked", "pending").to(CHECKED)


def broken(
    rows: DataFrame,
    name: str,
    explanation: Column,
    witness: Sequence[Pair] | Column = (),
    messages: Sequence[Pair] | Column = (),
    nodes: Sequence[str | Column] | Column = (),
    views: Sequence[str | Column] = (),
    position: str | Column | None = None,
) -> DataFrame:
    """A violation a row. Witnesses are (node, lseq), messages (process, counter), or one array of such structs, nodes columns or
    one array; those with a null in them are left out."""
    return rows.select(
        "run",
        _ring(rows),
        F.lit(name).alias("property"),
        explanation.alias("explanation"),
        (nodes if isinstance(nodes, Column) else _keys(nodes)).alias("nodes"),
        _keys(views).alias("views"),
        (messages if isinstance(messages, Column) else _pairs(messages, ("process", "counter"))).alias("messages"),
        (witness if isinstance(witness, Column) else _pairs(witness, ("node", "lseq"))).alias("witness"),
        (F.lit(None) if position is None else F.col(position) if isinstance(position, str) else position)
        .cast("long")
        .alias("position"),
    ).to(VIOLATIONS)


def words(*parts: str | Column) -> Column:
    """A sentence: text and columns, one after the other; `{name}` in a text stands for the column of that name."""
    pieces: list[Column] = []
    for part in parts:
        pieces += _pieces(part) if isinstance(part, str) else [part.cast("string")]
    return F.concat(*(F.coalesce(piece, F.lit("nothing")) for piece in pieces))


def _pieces(text: str) -> list[Column]:
    literal, brace, rest = text.partition("{")
    found = [F.lit(literal)] if literal else []
    if not brace:
        return found
    column, _, rest = rest.partition("}")
    return [*found, F.col(column).cast("string"), *_pieces(rest)]


def _ring(rows: DataFrame) -> Column:
    """The configuration that rows are about, so that what was found in one can be kept while it does not change."""
    about_one = "ring" in rows.columns and rows.schema["ring"].dataType == LONG
    return (F.col("ring") if about_one else F.lit(None).cast("long")).alias("ring")


def _summed(value: str | Column) -> Column:
    column = F.expr(value) if isinstance(value, str) else value
    return F.coalesce(F.sum(column.cast("long")), F.lit(0).cast("long"))


def _column(value: str | Column) -> Column:
    return F.col(value) if isinstance(value, str) else value


def _keys(columns: Sequence[str | Column]) -> Column:
    if not columns:
        return F.array().cast("array<bigint>")
    return F.array_compact(F.array(*(_column(column) for column in columns)))


def _pairs(pairs: Sequence[Pair], names: tuple[str, str]) -> Column:
    kind = f"array<struct<{names[0]}: bigint, {names[1]}: bigint>>"
    if not pairs:
        return F.array().cast(kind)
    structs = [F.struct(_column(left).alias(names[0]), _column(right).alias(names[1])) for left, right in pairs]
    whole = [F.when(struct[names[0]].isNotNull() & struct[names[1]].isNotNull(), struct) for struct in structs]
    return F.array_compact(F.array(*whole)).cast(kind)


# --- verdicts ---------------------------------------------------------------------------------------------------------

KEPT: Final = 10
"""Violations kept per run and property, the shortest first: the first few explain, the rest only count."""


def verdicts(expected: DataFrame, checked: DataFrame, broken: DataFrame) -> DataFrame:
    """One row per expected (run, property, promised): the verdict, how much was checked, how much is broken or pending."""
    key = ["run", "property"]
    sums = checked.groupBy(*key).agg(F.sum("checked").alias("checked"), F.sum("pending").alias("pending"))
    counts = broken.groupBy(*key).agg(F.count("*").alias("violations"))
    all_of_them = expected.join(sums, key, "left").join(counts, key, "left").fillna(0, ["checked", "pending", "violations"])
    word = F.expr(f"""case when not promised then '{NOT_PROMISED}' when violations > 0 then '{BROKEN}'
        when pending > 0 then '{PENDING}' when checked > 0 then '{HELD}' else '{NOT_EXERCISED}' end""")
    return all_of_them.select("run", "property", word.alias("verdict"), "checked", "violations", "pending")


def kept(broken: DataFrame, keep: int = KEPT) -> DataFrame:
    """The shortest few violations of each property of a run."""
    shortest = Window.partitionBy("run", "property").orderBy(F.size("witness"), F.size("messages"), "position", "explanation")
    return broken.withColumn("rank", F.row_number().over(shortest)).where(F.col("rank") <= keep)


# --- judging ----------------------------------------------------------------------------------------------------------

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


# --- naming -----------------------------------------------------------------------------------------------------------

NAMED_MAX: Final = 5
"""Things named one by one in a sentence; the rest are counted."""


def several(names: Column) -> Column:
    """`x`, or `x, y and 3 more`, of an array of names."""
    few = F.array_join(F.slice(names, 1, NAMED_MAX), ", ", "unknown")
    rest = F.size(names) - NAMED_MAX
    return F.when(F.size(names) == 0, "nothing").when(rest <= 0, few).otherwise(words(few, " and ", rest, " more"))


def name_views(rows: DataFrame, view_names: DataFrame, *columns: str) -> DataFrame:
    """`x_name` beside each column `x` of views; null stays null."""
    for column in columns:
        names = view_names.select(F.col("view").alias(column), F.col("view_name").alias(f"{column}_name"))
        rows = rows.join(names, column, "left")
    return rows


def name_nodes(rows: DataFrame, node_names: DataFrame, *columns: str) -> DataFrame:
    """`x_name` beside each column `x` of nodes."""
    for column in columns:
        names = node_names.select(F.col("node").alias(column), F.col("node_name").alias(f"{column}_name"))
        rows = rows.join(names, column, "left")
    return rows


def name_members(rows: DataFrame, node_names: DataFrame, *columns: str) -> DataFrame:
    """`x_names` beside each column `x` that is an array of nodes, in the same order."""
    of_run = node_names.groupBy("run").agg(F.map_from_entries(F.collect_list(F.struct("node", "node_name"))).alias("by_node"))
    named = {f"{column}_names": F.transform(column, lambda node: F.try_element_at("by_node", node)) for column in columns}
    return rows.join(of_run, "run", "left").withColumns(named).drop("by_node")


def name_processes(rows: DataFrame, process_names: DataFrame) -> DataFrame:
    """`process_name` beside `process`."""
    return rows.join(process_names.select("process", "process_name"), "process", "left")


# --- rules ------------------------------------------------------------------------------------------------------------

Rules = Sequence[tuple[Column, Column]]
"""What must not be, and the sentence about it."""


def breaking(rows: DataFrame, rules: Rules) -> DataFrame:
    """The rows that break a rule, with the number of the first of them as `rule`."""
    first = F.coalesce(*(F.when(condition, F.lit(number)) for number, (condition, _) in enumerate(rules)))
    return rows.withColumn("rule", first).where("rule is not null")


def sentence(rules: Rules) -> Column:
    """What to say of a row of `breaking`."""
    return F.coalesce(*(F.when(F.col("rule") == number, told) for number, (_, told) in enumerate(rules)))
