"""What a property hands out: how much it checked and what it found broken, in words and with witnesses; verdicts of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from string import Formatter
from typing import Any, Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType

from transis.audit.guarantees.property import BROKEN, HELD, NOT_EXERCISED, NOT_PROMISED, PENDING, Property, fields_of
from transis.spark.inputs import LONG, LONGS, TEXT, columns

# --- tables -----------------------------------------------------------------------------------------------------------

CHECKED: Final = columns(run=LONG, ring=LONG, property=TEXT, checked=LONG, pending=LONG)
"""What a property had to look at, summed: several rows a run are added up. `ring` is null where it is not about one."""

AMOUNTS: Final = ("ring", "checked", "pending")

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


def name_nodes(rows: DataFrame, node_names: DataFrame, *columns: str) -> DataFrame:
    """`x_name` beside each column `x` of nodes."""
    for column in columns:
        names = node_names.select(F.col("node").alias(column), F.col("node_name").alias(f"{column}_name"))
        rows = rows.join(names, column, "left")
    return rows


# --- rows of SQL ------------------------------------------------------------------------------------------------------

KEYS: Final = "array<bigint>"
NAMED_MAX: Final = 5
"""Things named one by one in a sentence; the rest are counted."""
PAIRS: Final = {"messages": ("process", "counter"), "witness": ("node", "lseq")}


def violations_of(rows: DataFrame, one: Property[Any]) -> DataFrame:
    """Rows of a property's SQL as VIOLATIONS with `is_pending`: the sentence made of their columns. All in one step, for at each
    step Spark analyses the whole query anew."""
    types = {field.name: field.dataType for field in rows.schema.fields}
    known = {name: name if name in types else "null" for name in ("ring", "position", "is_pending", "nodes", "views", *PAIRS)}
    return rows.selectExpr(
        "run",
        f"cast({known['ring']} as bigint) as ring",
        f"'{one.name}' as property",
        f"{_sentence(types, one.broken)} as explanation",
        *(f"coalesce(array_compact(cast({known[name]} as {KEYS})), array()) as {name}" for name in ("nodes", "views")),
        *(f"{_pairs_of(known[name], *fields)} as {name}" for name, fields in PAIRS.items()),
        f"cast({known['position']} as bigint) as position",
        f"coalesce(cast({known['is_pending']} as boolean), false) as is_pending",
    )


def counts_of(amounts: Sequence[DataFrame], name: str) -> DataFrame:
    """Rows of run, ring, checked and pending, as far as they have them, added up as CHECKED."""
    rows = reduce(DataFrame.unionByName, map(_amount, amounts))
    totals = (F.coalesce(F.sum(what), F.lit(0).cast("long")).alias(what) for what in ("checked", "pending"))
    return rows.groupBy("run", "ring", F.lit(name).alias("property")).agg(*totals)


def _amount(rows: DataFrame) -> DataFrame:
    known = rows.columns
    return rows.selectExpr("run", *(f"cast({name if name in known else 'null'} as bigint) as {name}" for name in AMOUNTS))


def _sentence(types: Mapping[str, DataType], sentences: Mapping[str, str]) -> str:
    """Of several sentences the column `kind` says which; a query need not have the columns of those that it never says."""
    if "kind" not in types:
        (text,) = sentences.values()
        return _filled(types, text)
    said = {kind: text for kind, text in sentences.items() if set(fields_of(text)) <= types.keys()}
    return " ".join(("case kind", *(f"when '{kind}' then {_filled(types, text)}" for kind, text in said.items()), "end"))


def _filled(types: Mapping[str, DataType], text: str) -> str:
    """`concat` of a sentence's pieces; null becomes "nothing"."""
    pieces: list[str] = []
    for literal, name, _, _ in Formatter().parse(text):
        pieces.append("'" + literal.replace("'", "\\'") + "'")
        if name:
            word = _list(f"`{name}`") if isinstance(types[name], ArrayType) else f"string(`{name}`)"
            pieces.append(f"coalesce({word}, 'nothing')")
    return f"concat({', '.join(pieces)})"


def _list(names: str) -> str:
    """`x`, or `x, y and 3 more`, of an array of names; null if it is empty."""
    few = f"nullif(array_join(slice({names}, 1, {NAMED_MAX}), ', ', 'unknown'), '')"
    return f"concat({few}, if(size({names}) > {NAMED_MAX}, concat(' and ', size({names}) - {NAMED_MAX}, ' more'), ''))"


def _pairs_of(rows: str, first: str, second: str) -> str:
    """Pairs of keys as structs, without those in which one is null."""
    whole = f"filter(cast({rows} as array<array<bigint>>), one -> one[0] is not null and one[1] is not null)"
    structs = f"transform({whole}, one -> struct(one[0] as {first}, one[1] as {second}))"
    return f"coalesce({structs}, cast(array() as array<struct<{first}: bigint, {second}: bigint>>))"
