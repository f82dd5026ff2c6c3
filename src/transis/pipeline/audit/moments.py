"""What stood at a moment of a life: each row beside the last mark before it, or the first one behind it.

A join by ranges would compare every row with every mark of its life; here both are sorted together, once.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F


def latest(rows: DataFrame, marks: DataFrame, keys: Sequence[str], found: str) -> DataFrame:
    """`found`: the columns of the last mark at or before a row's `lseq`, with equal keys, as a struct; null if there is none."""
    said = F.struct(*(name for name in marks.columns if name not in keys))
    return _beside(rows, marks.select(*keys, "lseq", said.alias(found)), keys, found, F.asc("lseq"), F.asc("is_row"))


def next_lseq(rows: DataFrame, marks: DataFrame, keys: Sequence[str], found: str) -> DataFrame:
    """`found`: the `lseq` of the first mark behind a row, with equal keys; null if there is none."""
    return _beside(rows, marks.select(*keys, "lseq", F.col("lseq").alias(found)), keys, found, F.desc("lseq"), F.desc("is_row"))


def _beside(rows: DataFrame, marks: DataFrame, keys: Sequence[str], found: str, *order: Column) -> DataFrame:
    both = rows.withColumn("is_row", F.lit(True)).unionByName(marks.withColumn("is_row", F.lit(False)), allowMissingColumns=True)
    so_far = Window.partitionBy(*keys).orderBy(*order).rowsBetween(Window.unboundedPreceding, Window.currentRow)
    return both.withColumn(found, F.last(found, ignorenulls=True).over(so_far)).where("is_row").drop("is_row")
