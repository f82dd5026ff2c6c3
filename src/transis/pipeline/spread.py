"""Work that is no data: numbered pieces of it spread over the executors, and what each of them says collected here."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark.sql import SparkSession

Work = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""Runs on an executor: numbers of pieces come in, one in a batch; rows go out."""


class Executors:
    """Those of a session, for rooms that have no other business with Spark."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    @property
    def cores(self) -> int:
        """How many tasks run at a time, as far as Spark knows by now: executors of a cluster may still be starting."""
        return self._spark.sparkContext.defaultParallelism

    def run(self, work: Work, pieces: int, columns: str) -> pa.Table:
        """One task for every piece, numbered from 0; the rows of all. Several threads may ask at once: what one of them leaves
        idle, tasks of the others use."""
        return self._spark.range(0, pieces, 1, pieces).mapInArrow(work, columns).toArrow()
