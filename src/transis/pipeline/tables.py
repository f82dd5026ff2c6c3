"""Tables by kind, out of the one wide table of events."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from transis.pipeline.schemas import KINDS


class Tables:
    """`tables["deliveries"]` has the columns of KINDS["deliveries"], nothing else."""

    def __init__(self, events: DataFrame, keep: Callable[[DataFrame], DataFrame] | None = None) -> None:
        """With `keep` each kind is kept when it is first asked for: right for little data, which is read many times."""
        self.events = events
        self._keep = keep
        self._kept: dict[str, DataFrame] = {}
        self._lock = Lock()

    def __getitem__(self, kind: str) -> DataFrame:
        if self._keep is None:
            return self._read(kind)
        with self._lock:
            if kind not in self._kept:
                self._kept[kind] = self._keep(self._read(kind))
            return self._kept[kind]

    def names(self, kind: str) -> DataFrame:
        """Names repeat in every segment; here each is once."""
        return self[kind].distinct() if kind != "addresses" else self[kind].dropDuplicates(["run", "address"])

    def _read(self, kind: str) -> DataFrame:
        return self.events.where(F.col("kind") == kind).select(*KINDS[kind])
