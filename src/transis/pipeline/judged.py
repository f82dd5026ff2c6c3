"""What was judged before: runs whose inputs did not change keep their verdicts, and nothing of them is read again.

A run is known by the digest of the digests of all its segments, open ones among them, and of what stands beside them, for that is
evidence, too. A late file, one more batch of an open one, a file that nobody can read, another run in the same directory or
another version of this package makes another digest, and the run is judged anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from transis import __version__
from transis.pipeline.audit.quality import files_of_runs, folder
from transis.pipeline.schemas import LONG, TEXT, columns
from transis.pipeline.store import Store
from transis.pipeline.tables import Tables

TABLE: Final = "judged"
JUDGED: Final = columns(run=LONG, inputs=TEXT, made_by=TEXT)
"""Lineage: which inputs the verdicts of a run were made from, and by which version."""


def inputs_of_runs(segments: DataFrame) -> DataFrame:
    """run, inputs: one row a run."""
    placed = segments.where("run is not null").select("run", folder().alias("folder")).distinct()
    beside = placed.groupBy("folder").agg(F.bit_xor("run").alias("beside"))
    files = files_of_runs(segments).withColumn("folder", folder()).join(beside, "folder", "left")
    digests = F.sort_array(F.collect_list(F.concat_ws(" ", "node", "segment", "content_digest", "trouble", "beside")))
    runs = files.groupBy("run").agg(F.sha2(F.concat_ws(",", digests), 256).alias("inputs"))
    return runs.select("run", "inputs", F.lit(__version__).alias("made_by")).to(JUDGED)


class Before:
    """What a store has of earlier audits, and which runs are as they were then."""

    def __init__(self, store: Store, tables: Tables, results: Iterable[str], forgotten: bool = False) -> None:
        """If it is `forgotten`, everything must be judged again."""
        self._store = store
        self._segments = tables["segments"]
        self.now = {row.run: row.asDict() for row in inputs_of_runs(self._segments).collect()}
        wanted = {TABLE, *results}
        known = store.table(TABLE).collect() if wanted <= set(store.tables()) and not forgotten else []
        self.unchanged = sorted(row.run for row in known if self.now.get(row.run) == row.asDict())
        self.changed = sorted(set(self.now) - set(self.unchanged))
        self.is_all = bool(self.unchanged) and not self.changed
        """Nothing must be judged."""

    def of(self, runs: list[int], events: DataFrame) -> DataFrame:
        """Events of some runs, and the files beside them that nobody can read."""
        return events.where(F.col("run").isin(runs) | (F.col("run").isNull() & F.col("file").isin(self._strays(runs))))

    def _strays(self, runs: list[int]) -> list[str]:
        """Files of no run that count for these."""
        files = files_of_runs(self._segments).where(F.col("run").isin(runs) & F.col("node").isNull())
        return [row.file for row in files.select("file").distinct().collect()]

    def completed(self, fresh: Mapping[str, DataFrame]) -> dict[str, DataFrame]:
        """Fresh results beside those of unchanged runs."""
        if not self.unchanged:
            return dict(fresh)
        kept = {name: self._store.table(name).where(F.col("run").isin(self.unchanged)) for name in fresh}
        return {name: kept[name].unionByName(rows, allowMissingColumns=True) for name, rows in fresh.items()}

    def table(self, spark: SparkSession) -> DataFrame:
        rows: list[dict[str, Any]] = [self.now[run] for run in sorted(self.now)]
        return spark.createDataFrame([(row["run"], row["inputs"], row["made_by"]) for row in rows], JUDGED)
