"""Sealed files of digests as a stream, and what a task makes of each: its header and its events, as bytes that the driver reads.

1. Files appear under their names when they are whole, so Spark's file source never sees half of one.
2. A file whose content makes no sense is a row that says why, never a failed query; one that was deleted since is no row.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from transis.model.errors import PipelineError, TraceError
from transis.pipeline.follow.telling import Told
from transis.pipeline.ingest import is_local, literally, local_path
from transis.trace.reader import ACCEPTED, parse_segment, unknown_version
from transis.trace.rows import decode_rows, encode_rows
from transis.trace.segment import DIGESTS, Header

SEALED: Final = f"*{DIGESTS.suffix}"
FILES_AT_A_TIME: Final = 1000
CUT_OFF: Final = "it has no seal, so its end is missing: copy it under another name and rename it when it is whole"
TASKS_THAT_LIST: Final = "8"
"""Spark asks for the files of a batch once more, by a job with a task for each of them unless it is told better: of six seconds
that a thousand files took, four went there."""
WHOLE_FILES: Final = "path string, modificationTime timestamp, length long, content binary"
"""As Spark reads them; of a stream it wants to be told."""
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


def sealed(spark: SparkSession, directories: Sequence[str], at_a_time: int = FILES_AT_A_TIME) -> DataFrame:
    """A stream of files below these directories: path, modified_us, content."""
    spark.conf.set("spark.sql.sources.parallelPartitionDiscovery.parallelism", TASKS_THAT_LIST)
    reader = spark.readStream.schema(WHOLE_FILES).format("binaryFile").option("pathGlobFilter", SEALED)
    reader = reader.option("recursiveFileLookup", "true").option("maxFilesPerTrigger", at_a_time)
    reader = reader.option("ignoreMissingFiles", "true")  # A node deletes what is too old, and knows nothing of followers.
    files = reader.load(as_one_path(directories))
    return files.select("path", F.unix_micros("modificationTime").alias("modified_us"), "content")


def as_one_path(directories: Sequence[str]) -> str:
    """All of them as one pattern of Hadoop and so one source: one directory more does not end what a checkpoint remembers. A
    character that means something to Hadoop cannot be written literally among alternatives, but by "any character"."""
    whole = [local_path(one) if is_local(one) else one for one in directories]
    roots = {_root(one) for one in whole}
    if len(roots) > 1:
        raise PipelineError(f"{', '.join(directories)}: they lie on several file systems; follow each with a ledger of its own")
    (root,) = roots
    names = [one.removeprefix(root) for one in whole]
    if len(names) == 1:
        return root + literally(names[0])
    alternatives = ("".join("?" if character in "*?[]{}\\," else character for character in name) for name in names)
    return f"{root}{{{','.join(alternatives)}}}"


def _root(path: str) -> str:
    """What no pattern may stand for: a pattern that begins with a brace would be one of the working directory."""
    if path.startswith("/"):
        return "/"
    scheme, authority, *_ = urlsplit(path)
    return f"{scheme}://{authority}/"


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
    row = {"header": msgspec.msgpack.encode(segment.header), "events": encode_rows(segment.events)}
    return row if segment.footer is not None else row | {"trouble": f"{name}: {CUT_OFF}"}


def read_back(rows: Sequence[Any]) -> tuple[list[Told], list[Trouble]]:
    """What the tasks found, in order of names, so that a life's files are mostly in order."""
    told, troubles = list[Told](), list[Trouble]()
    for row in sorted(rows, key=lambda row: row["path"]):
        if row["trouble"] is not None:
            troubles.append(Trouble(row["path"], row["trouble"]))
        if row["header"] is None:
            continue
        header = msgspec.msgpack.decode(row["header"], type=Header)
        told.append(Told(header.cluster, header.mode, header.node, row["modified_us"], decode_rows(row["events"])))
    return told, troubles
