"""Settling what is used again and again: the small tables, the spine, the tail.

A settled table is kept by the executors and its plan is forgotten: thirty properties are planned over a few leaves, not each over
everything that led to them.
"""

from __future__ import annotations

from pyspark.sql import DataFrame


def settled(table: DataFrame) -> DataFrame:
    """Its columns are new ones to Spark, which otherwise takes them for those of the table that they come from, and gives up on
    some joins of the two."""
    kept = table.localCheckpoint()
    return kept.toDF(*kept.columns)


def kept_together(table: DataFrame) -> DataFrame:
    """For little data: in one piece, since every piece is a task of every job."""
    return settled(table.coalesce(1))
