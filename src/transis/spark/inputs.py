"""Files of traces below some directories, local or Hadoop, as one table of events; settled tables; and the types of Spark.

1. Paths without a scheme are local; a local file is opened by the task that decodes it, so that a node's name may be anything
   (Spark passes over names that begin with `_` or `.`). Everything else comes through Spark's reader of whole files.
2. A file that cannot be read is a row of kind `segments` that says why, never a failed job. It is all or nothing: a file with a
   damaged batch gives no events.
3. One file is decoded by one task, which holds its bytes and its columns: about three times the size of a segment.

Settling is for what is used again and again: the small tables, the spine, the tail.

A settled table is kept by the executors and its plan is forgotten: thirty properties are planned over a few leaves, not each over
everything that led to them.
"""

from __future__ import annotations

import gc
import os
import posixpath
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from heapq import heapify, heapreplace
from math import ceil
from pathlib import Path
from stat import S_ISREG
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from msgspec import MsgspecError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    ByteType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from transis.spark.progress import plain_failures
from transis.trace.columns import columns_of, trouble_batch
from transis.trace.reader import FOOTER_BYTES_MAX, Buffer, read_frames, read_seal
from transis.trace.segment import SUFFIX, Header
from transis.trace.tables import COLUMNS
from transis.types.errors import PipelineError, TraceError

# --- schema -----------------------------------------------------------------------------------------------------------

LONG: Final = LongType()
INT: Final = IntegerType()
BYTE: Final = ByteType()
REAL: Final = DoubleType()
TEXT: Final = StringType()
FLAG: Final = BooleanType()
LONGS: Final = ArrayType(LONG)
TEXTS: Final = ArrayType(TEXT)


def columns(**types: DataType) -> StructType:
    """A schema; all columns may be null, as the Parquet and Arrow readers want it."""
    return StructType([StructField(name, kind) for name, kind in types.items()])


EVENTS: Final = from_arrow_schema(pa.schema({"kind": pa.string()} | COLUMNS))
"""All kinds of a trace as one wide table: `kind` says which columns a row has, the others are null. Files are partitioned by it,
so a reader of one kind never sees the others."""


# --- ingest -----------------------------------------------------------------------------------------------------------

TASK_BYTES: Final = 64 << 20
"""What one task decodes when there is much: tasks of a few seconds, and few files in the store."""
SMALL_TASK_BYTES: Final = 4 << 20
SMALL_TASKS: Final = 8
"""When there is little: enough tasks for the cores of a machine."""


class SegmentFile(NamedTuple):
    """A file of a trace as it was when it was found."""

    path: str
    length: int
    modified_us: int


def find_segments(spark: SparkSession, inputs: Iterable[str | Path]) -> list[SegmentFile]:
    """All segments below these directories, each once. A directory that is missing or has none is a TraceError."""
    wanted = [str(one) for one in inputs]
    if not wanted:
        raise TraceError("no directory of traces was given: name at least one")
    found = [file for one in wanted for file in (find_local(one) if is_local(one) else _find_remote(spark, one))]
    return sorted(set(found))


def find_local(directory: str) -> list[SegmentFile]:
    """Segments below a local directory, or one file; needs no Spark."""
    path = local_path(directory)
    if not os.path.lexists(path):
        raise TraceError(f"{directory}: there is no such file or directory")
    names = _below(directory, path) if os.path.isdir(path) else [path]
    found = [file for name in names if (file := _described(name)) is not None]
    if not found:
        raise TraceError(f"{directory}: holds no trace segment (*{SUFFIX})")
    return sorted(found)


def is_local(path: str) -> bool:
    return "://" not in path or path.startswith("file:")


def local_path(path: str) -> str:
    """Absolute, without `.` and `..`."""
    return os.path.abspath(unquote(urlsplit(path).path) if path.startswith("file:") else path)


def seal_of(file: SegmentFile) -> str | None:
    """The digest in the seal of a file; None while it is open. Only local files are looked at, for files elsewhere were put
    there when they were whole: theirs is empty."""
    if not is_local(file.path):
        return ""
    try:
        with open(file.path, "rb") as opened:
            opened.seek(max(0, file.length - FOOTER_BYTES_MAX))
            footer = read_seal(opened.read(file.length - opened.tell()))
    except (OSError, MsgspecError):
        return None
    return None if footer is None else footer.digest


def sources(spark: SparkSession, files: Sequence[SegmentFile]) -> list[DataFrame]:
    """Files for tasks to decode: path, length and content, which is null where the task shall open the file."""
    local = [file for file in files if is_local(file.path)]
    remote = [file.path for file in files if not is_local(file.path)]
    return ([_dealt(spark, local)] if local else []) + ([_whole_files(spark, remote)] if remote else [])


def batches_of_files(sources: Iterator[pa.RecordBatch]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """What a task does: files in, events out by kind, in batches of bounded size."""
    with _collector_at_rest():
        for source in sources:
            for path, length, content in zip(*(source.column(name) for name in ("path", "length", "content")), strict=True):
                yield from file_batches(path.as_py(), length.as_py(), content.as_buffer() if content.is_valid else None)


def file_batches(path: str, length: int, given: Any = None) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The events of one file by kind, or one row that says why there are none."""
    name = posixpath.basename(path)
    header: Header | None = None
    try:
        content = _content(path, length) if given is None else memoryview(given)
        length = len(content)
        frames = read_frames(name, content)
        header = frames.header
        columns = columns_of(name, frames)
    except TraceError as error:
        yield "segments", trouble_batch(error, path, length, header)
        return
    columns.finish(frames, path, length)
    yield from columns.batches()


def _content(path: str, length: int) -> Buffer:
    """As much as was there when the file was found, so that all files of a live cluster are of about the same moment."""
    name = posixpath.basename(path)
    try:
        with open(path, "rb") as opened:
            return opened.read(length)
    except OSError as error:
        raise TraceError(f"{name}: it cannot be read ({error.strerror})") from error


@contextmanager
def _collector_at_rest() -> Iterator[None]:
    """Millions of tuples that are all needed for a moment: looking for garbage among them doubles the time of decoding."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


# -- finding and dealing out ---------------------------------------------------------------------------------------------


def _below(directory: str, path: str) -> list[str]:
    def refuse(error: OSError) -> None:
        raise TraceError(f"{directory}: it cannot be read ({error.strerror})") from error

    return [
        os.path.join(folder, name)
        for folder, _, names in os.walk(path, onerror=refuse)
        for name in names
        if name.endswith(SUFFIX)
    ]


def _described(path: str) -> SegmentFile | None:
    """None for what is no file, or was removed since: a live node keeps only its latest segments."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return SegmentFile(path, status.st_size, status.st_mtime_ns // 1000) if S_ISREG(status.st_mode) else None


def _find_remote(spark: SparkSession, directory: str) -> list[SegmentFile]:
    modified = F.unix_micros("modificationTime").alias("modified_us")
    reader = spark.read.format("binaryFile").option("recursiveFileLookup", "true").option("pathGlobFilter", f"*{SUFFIX}")
    try:
        with plain_failures():
            found = reader.load(literally(directory)).select("path", "length", modified).collect()
    except PipelineError as error:
        raise TraceError(f"{directory}: {error}") from error
    if not found:
        raise TraceError(f"{directory}: holds no trace segment (*{SUFFIX})")
    return [SegmentFile(*row) for row in found]


def literally(path: str) -> str:
    """Hadoop takes `*` and the like for patterns. Here they are escaped, so that a name means itself."""
    return "".join(f"\\{character}" if character in "*?[]{}\\" else character for character in path)


def _whole_files(spark: SparkSession, paths: list[str]) -> DataFrame:
    read = spark.read.format("binaryFile").load([literally(path) for path in paths])
    return read.select("path", "length", "content")


def _dealt(spark: SparkSession, files: Sequence[SegmentFile]) -> DataFrame:
    """Paths in as many partitions as there shall be tasks, about the same number of bytes in each."""
    tasks = task_count(files)
    loads = [(0, task) for task in range(tasks)]
    heapify(loads)
    rows = []
    for file in sorted(files, key=lambda file: -file.length):
        load, task = loads[0]
        heapreplace(loads, (load + file.length, task))
        rows.append((file.path, file.length, None, task))
    dealt = spark.createDataFrame(rows, "path string, length long, content binary, task int")
    return dealt.repartitionById(tasks, F.col("task")).select("path", "length", "content")


def task_count(files: Sequence[SegmentFile]) -> int:
    total = sum(file.length for file in files)
    several = min(ceil(total / SMALL_TASK_BYTES), SMALL_TASKS)
    return max(1, min(len(files), max(several, ceil(total / TASK_BYTES))))


# --- settling ---------------------------------------------------------------------------------------------------------


def checkpointed(table: DataFrame) -> DataFrame:
    """Its columns are new ones to Spark, which otherwise takes them for those of the table that they come from, and gives up on
    some joins of the two."""
    kept = table.localCheckpoint()
    return kept.toDF(*kept.columns)


def coalesced(table: DataFrame) -> DataFrame:
    """For little data: in one piece, since every piece is a task of every job."""
    return checkpointed(table.coalesce(1))
