"""Verdicts out of what the properties found: broken before pending before held; nothing checked is `not exercised` (traces 5)."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from transis.model.guarantees import BROKEN, HELD, NOT_EXERCISED, NOT_PROMISED, PENDING

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
