"""What a property hands out: how much it checked, and what it found broken, in words and with witnesses.

Rows are never capped here; verdicts.py keeps the shortest few of each property and the true count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from transis.pipeline.schemas import CHECKED, LONG, VIOLATIONS

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
