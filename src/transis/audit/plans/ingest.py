"""Events of traces into Parquet files, one directory a kind: STORE/events/batch=N/kind=K/part-*.parquet.

The tasks that decode also write, each kind with its own columns. Through Spark every row would have all columns of EVENTS on its
way, which takes several times as long as decoding. Workers must see the directory under the same path.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from transis.spark.inputs import SegmentFile, batches_of_files, sources
from transis.trace.tables import SCHEMAS
from transis.types.errors import PipelineError

ROWS_TOGETHER: Final = 1 << 18
"""Rows of a row group, which a task holds for each kind."""

REPEATING: Final = frozenset(
    {"run", "node", "segment", "conf_no", "conf", "regular", "sender", "process", "count", "service", "address", "view", "size"}
)
"""Columns with few different values, which a dictionary makes small; trying it with the others only costs time."""

_WRITTEN: Final = "path string"


def decode_into(spark: SparkSession, files: Sequence[SegmentFile], directory: Path) -> None:
    """Write the events of these files below a directory that is not there yet."""
    directory.mkdir()
    written: set[str] = set()
    for source in sources(spark, files):
        written |= {row.path for row in source.mapInArrow(partial(write_files, str(directory)), _WRITTEN).collect()}
    require_shared(directory, written)
    for path in directory.glob("kind=*/*"):
        if str(path.relative_to(directory)) not in written:
            path.unlink()  # Of a task that was started twice or failed once.


def require_shared(directory: Path, written: Iterable[str]) -> None:
    """Raises PipelineError if what the workers wrote is not here: then they wrote it on disks of their own."""
    missing = sum(not (directory / path).exists() for path in written)
    if missing:
        raise PipelineError(
            f"the workers of the cluster wrote {missing} files below {directory} that are not there on this machine; name a "
            "directory that all of them share, by --store"
        )


def write_files(directory: str, sources: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What a task does: files come in, and the names of the files that it wrote go out."""
    parts = Parts(Path(directory))
    try:
        for kind, batch in batches_of_files(sources):
            parts.add(kind, batch)
    finally:
        parts.close()
    yield pa.record_batch({"path": pa.array(parts.names, pa.string())})


class Parts:
    """The files of one task, one a kind, with names that no other task has."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._name = f"part-{uuid4().hex}.parquet"
        self._waiting: dict[str, list[pa.RecordBatch]] = {}
        self._writers: dict[str, Any] = {}

    @property
    def names(self) -> list[str]:
        return [f"kind={kind}/{self._name}" for kind in self._writers]

    def add(self, kind: str, batch: pa.RecordBatch) -> None:
        waiting = self._waiting.setdefault(kind, [])
        waiting.append(batch)
        if sum(map(len, waiting)) >= ROWS_TOGETHER:
            self._write(kind)

    def close(self) -> None:
        for kind in self._waiting:
            self._write(kind)
        for writer in self._writers.values():
            writer.close()

    def _write(self, kind: str) -> None:
        batches = self._waiting[kind]
        if batches:
            self._writer(kind).write_table(pa.Table.from_batches(batches))
            batches.clear()

    def _writer(self, kind: str) -> Any:
        if kind not in self._writers:
            folder = self._directory / f"kind={kind}"
            folder.mkdir(parents=True, exist_ok=True)
            schema = SCHEMAS[kind]
            repeating = [name for name in schema.names if name in REPEATING]
            self._writers[kind] = pq.ParquetWriter(folder / self._name, schema, use_dictionary=repeating)
        return self._writers[kind]
