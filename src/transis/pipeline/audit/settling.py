"""Settling what is used again and again: the small tables, the spine, the tail.

A settled table is kept by the executors and its plan is forgotten: thirty properties are planned over a few leaves, not each over
everything that led to them.
"""

from __future__ import annotations

from pyspark.sql import DataFrame


def settled(table: DataFrame) -> DataFrame:
    return table.localCheckpoint()
