"""Sealed files of digests as a stream, and what a task makes of each: its header and its events, as bytes that the driver reads.

1. Files appear under their names when they are whole, so Spark's file source never sees half of one.
2. A file that cannot be read is a row that says why, never a failed query.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from transis.model.errors import TraceError
from transis.pipeline.follow.telling import Told
from transis.pipeline.ingest import is_local, literally, local_path
from transis.trace.reader import ACCEPTED, parse_segment, unknown_version
from transis.trace.rows import decode_rows, encode_rows
from transis.trace.segment import DIGESTS, Header

SEALED: Final = f"*{DIGESTS.suffix}"
FILES_AT_A_TIME: Final = 1000
COLUMNS: Final = "path string, modified_us long, header binary, events binary, trouble string"
_BATCH: Final = pa.schema(
    [
        ("path", pa.string()),
        ("modified_us", pa.int64()),
        ("header", pa.binary()),
        ("events", pa.binary()),
        ("trouble", pa.string()),
    ]
)


class Trouble(NamedTuple):
    """A file that cannot be read, and why."""

    path: str
    why: str


def sealed(spark: SparkSession, directories: Sequence[str]) -> DataFrame:
    """A stream of files below these directories: path, modified_us, content. All directories are one source, so that one more of
    them does not end what a checkpoint remembers."""
    paths = [literally(local_path(one) if is_local(one) else one).replace(",", "\\,") for one in directories]
    reader = spark.readStream.format("binaryFile").option("pathGlobFilter", SEALED).option("recursiveFileLookup", "true")
    reader = reader.option("maxFilesPerTrigger", FILES_AT_A_TIME)
    files = reader.load(paths[0] if len(paths) == 1 else f"{{{','.join(paths)}}}")
    return files.select("path", F.unix_micros("modificationTime").alias("modified_us"), "content")


def decode(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What a task does: files in, a row for each out."""
    for batch in batches:
        for path, modified_us, content in zip(*(batch.column(name) for name in ("path", "modified_us", "content")), strict=True):
            row = _decoded(path.as_py(), content.as_buffer())
            yield pa.RecordBatch.from_pylist([row | {"path": path.as_py(), "modified_us": modified_us.as_py()}], _BATCH)


def _decoded(path: str, content: Any) -> dict[str, Any]:
    name = posixpath.basename(path)
    try:
        segment = parse_segment(name, memoryview(content))
        if segment.header.schema not in ACCEPTED:
            raise TraceError(f"{name}: {unknown_version(segment.header)}")
    except TraceError as error:
        return {"trouble": str(error)}
    return {"header": msgspec.msgpack.encode(segment.header), "events": encode_rows(segment.events)}


def read_back(rows: Sequence[Any]) -> tuple[list[Told], list[Trouble]]:
    """What the tasks found, in order of names, so that a life's files are mostly in order."""
    told, troubles = list[Told](), list[Trouble]()
    for row in sorted(rows, key=lambda row: row["path"]):
        if row["header"] is None:
            troubles.append(Trouble(row["path"], row["trouble"]))
            continue
        header = msgspec.msgpack.decode(row["header"], type=Header)
        told.append(Told(header.cluster, header.mode, header.node, row["modified_us"], decode_rows(row["events"])))
    return told, troubles
