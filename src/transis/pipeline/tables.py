"""Tables by kind, out of the one wide table of events."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from transis.pipeline.schemas import KINDS


class Tables:
    """`tables["deliveries"]` has the columns of KINDS["deliveries"], nothing else."""

    def __init__(self, events: DataFrame) -> None:
        self.events = events

    def __getitem__(self, kind: str) -> DataFrame:
        return self.events.where(F.col("kind") == kind).select(*KINDS[kind])

    def names(self, kind: str) -> DataFrame:
        """Names repeat in every segment; here each is once."""
        return self[kind].distinct() if kind != "addresses" else self[kind].dropDuplicates(["run", "address"])
