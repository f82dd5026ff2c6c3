"""Rules of which the first that a row breaks is told: conditions first, over all rows; sentences only for rows that break one.

A sentence may then use names that were joined in between.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

Rules = Sequence[tuple[Column, Column]]
"""What must not be, and the sentence about it."""


def breaking(rows: DataFrame, rules: Rules) -> DataFrame:
    """The rows that break a rule, with the number of the first of them as `rule`."""
    first = F.coalesce(*(F.when(condition, F.lit(number)) for number, (condition, _) in enumerate(rules)))
    return rows.withColumn("rule", first).where("rule is not null")


def sentence(rules: Rules) -> Column:
    """What to say of a row of `breaking`."""
    return F.coalesce(*(F.when(F.col("rule") == number, told) for number, (_, told) in enumerate(rules)))
