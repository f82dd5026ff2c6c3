"""What a property hands out: how much it checked and what it found broken, in words and with witnesses; verdicts of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from string import Formatter
from typing import Any, Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BooleanType, StructField, StructType

from transis.audit.guarantees.property import BROKEN, HELD, NOT_EXERCISED, NOT_PROMISED, PENDING, Property, fields_of
from transis.spark.schema import LONG, LONGS, TEXT, columns

# --- tables -----------------------------------------------------------------------------------------------------------

CHECKED: Final = columns(run=LONG, ring=LONG, property=TEXT, checked=LONG, pending=LONG)
"""What a property had to look at, summed: several rows a run are added up. `ring` is null where it is not about one."""

MESSAGE: Final = columns(process=LONG, counter=LONG)
WITNESS: Final = columns(node=LONG, lseq=LONG)

VIOLATIONS: Final = columns(
    run=LONG,
    ring=LONG,
    property=TEXT,
    explanation=TEXT,
    nodes=LONGS,
    views=LONGS,
    messages=ArrayType(MESSAGE),
    witness=ArrayType(WITNESS),
    position=LONG,
)
"""One broken promise: in words, with the events that show it."""

# --- finding ----------------------------------------------------------------------------------------------------------

Pair = tuple[str | Column, str | Column]


@dataclass(frozen=True)
class Result:
    """`checked` has the columns of CHECKED, several rows a run are added up; `broken` those of VIOLATIONS, a row each."""

    checked: DataFrame
    broken: DataFrame


def merge(checked: Sequence[DataFrame], broken: Sequence[DataFrame]) -> Result:
    """Parts of one property put together."""
    return Result(reduce(_added, checked), reduce(_added, broken))


def _added(left: DataFrame, right: DataFrame) -> DataFrame:
    return left.unionByName(right, allowMissingColumns=True)


def counts(rows: DataFrame, name: str, count: str | Column = "1", pending: str | Column = "0") -> DataFrame:
    """How much there was to check, and how much cannot be judged yet: sums of two expressions over the rows of a run."""
    sums = {"checked": _summed(count), "pending": _summed(pending)}
    totals = rows.groupBy("run", _ring(rows)).agg(*(total.alias(column) for column, total in sums.items()))
    return totals.select("run", "ring", F.lit(name).alias("property"), "checked", "pending").to(CHECKED)


def violations(
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


# --- naming -----------------------------------------------------------------------------------------------------------

NAMED_MAX: Final = 5
"""Things named one by one in a sentence; the rest are counted."""


def several(names: Column) -> Column:
    """`x`, or `x, y and 3 more`, of an array of names."""
    few = F.array_join(F.slice(names, 1, NAMED_MAX), ", ", "unknown")
    rest = F.size(names) - NAMED_MAX
    return F.when(F.size(names) == 0, "nothing").when(rest <= 0, few).otherwise(words(few, " and ", rest, " more"))


def name_nodes(rows: DataFrame, node_names: DataFrame, *columns: str) -> DataFrame:
    """`x_name` beside each column `x` of nodes."""
    for column in columns:
        names = node_names.select(F.col("node").alias(column), F.col("node_name").alias(f"{column}_name"))
        rows = rows.join(names, column, "left")
    return rows


# --- rows of SQL ------------------------------------------------------------------------------------------------------

KEYS: Final = "array<bigint>"
PAIRS: Final = {"messages": ("process", "counter"), "witness": ("node", "lseq")}


def violations_of(rows: DataFrame, one: Property[Any]) -> DataFrame:
    """Rows of a property's SQL as VIOLATIONS with `is_pending`: the sentence made of their columns."""
    missing = {"ring": "bigint", "position": "bigint", "is_pending": "boolean", **dict.fromkeys(("nodes", "views"), KEYS)}
    missing |= dict.fromkeys(PAIRS, "array<array<bigint>>")
    rows = rows.withColumns({name: F.lit(None).cast(kind) for name, kind in missing.items() if name not in rows.columns})
    explanation = _of_kind(rows, one.broken).alias("explanation")
    keys = [F.coalesce(F.array_compact(name), F.array().cast(KEYS)).alias(name) for name in ("nodes", "views")]
    pairs = [_structs(name, *fields).alias(name) for name, fields in PAIRS.items()]
    is_pending = F.coalesce("is_pending", F.lit(False)).alias("is_pending")
    named = F.lit(one.name).alias("property")
    found = rows.select("run", "ring", named, explanation, *keys, *pairs, F.col("position").cast("long"), is_pending)
    return found.to(StructType([*VIOLATIONS.fields, StructField("is_pending", BooleanType())]))


def counts_of(rows: DataFrame, name: str) -> DataFrame:
    """Rows of run, ring, checked and pending, as far as they have them, added up as CHECKED."""
    missing = {column: F.lit(None).cast("long") for column in ("ring", "checked", "pending") if column not in rows.columns}
    return counts(rows.withColumns(missing), name, "checked", "pending")


def _of_kind(rows: DataFrame, sentences: Mapping[str, str]) -> Column:
    """Of several sentences the column `kind` says which; a query need not have the columns of those that it never says."""
    if "kind" not in rows.columns:
        (text,) = sentences.values()
        return _filled(rows, text)
    said = {kind: text for kind, text in sentences.items() if set(fields_of(text)) <= set(rows.columns)}
    return F.coalesce(*(F.when(F.col("kind") == kind, _filled(rows, text)) for kind, text in said.items()))


def _filled(rows: DataFrame, text: str) -> Column:
    lists = {field.name for field in rows.schema.fields if isinstance(field.dataType, ArrayType)}
    parts: list[str | Column] = []
    for literal, name, _, _ in Formatter().parse(text):
        parts.append(F.lit(literal))
        if name:
            parts.append(several(F.col(name)) if name in lists else F.col(name))
    return words(*parts)


def _structs(name: str, first: str, second: str) -> Column:
    pairs = F.filter(
        F.coalesce(name, F.array().cast("array<array<bigint>>")), lambda pair: pair[0].isNotNull() & pair[1].isNotNull()
    )
    return F.transform(pairs, lambda pair: F.struct(pair[0].alias(first), pair[1].alias(second)))
