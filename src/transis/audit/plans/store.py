"""The store: events of traces and the tables made of them, kept in a lake.

1. Events are partitioned by batch and kind, never by run, so 100,000 small runs make no more directories than one.
2. A sealed segment never changes, so it is decoded once. Open segments are in the store as they were at the last look.
3. Events are in STORE/events/batch=N/kind=K/part-*.parquet. The tasks that decode also write, each kind with its own columns:
   through Spark every row would have all columns of EVENTS on its way, which takes several times as long as decoding. Workers
   must see the directory under the same path.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from math import ceil
from pathlib import Path
from tempfile import mkdtemp
from types import TracebackType
from typing import Any, Final
from uuid import uuid4

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec.structs import replace
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from transis.audit.plans.lake import Lake, LakeChange, LakeState
from transis.spark.inputs import (
    EVENTS,
    INT,
    SegmentFile,
    batches_of_files,
    columns,
    find_segments,
    is_local,
    literally,
    local_path,
    seal_of,
    sources,
)
from transis.trace.tables import KINDS, SCHEMAS
from transis.types.errors import PipelineError, TraceError, UsageError

# --- ingest -----------------------------------------------------------------------------------------------------------

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


COMPACT_FROM: Final = 16
"""With this many batches it pays to merge them: each has some twenty directories."""

PART_BYTES: Final = 128 << 20
"""The size of a file when batches are merged."""

KEPT_EVENTS: Final = StructType([*EVENTS.fields, *columns(batch=INT).fields])
DROPPED: Final = "batch int, dropped_file string, dropped_node long, dropped_segment int"
EVENTS_TABLE: Final = "events"
OPEN: Final = "open_segments"
"""The table of events that are not kept."""


class KeptFile(msgspec.Struct, frozen=True):
    """A file whose events are in a batch, as it was when it was read."""

    path: str
    length: int
    modified_us: int
    seal: str
    batch: int


class Dropped(msgspec.Struct, frozen=True):
    """Rows of a batch that no longer count, because their file was read again: all rows of this segment."""

    batch: int
    file: str
    node: int | None
    segment: int | None


class StoreFacts(msgspec.Struct, frozen=True):
    """What the lake keeps beside the tables."""

    files: dict[str, KeptFile] = {}
    dropped: list[Dropped] = []
    past: list[int] = []
    """Batches of events that are past (incremental.py): they are merged among themselves only."""
    schemas: dict[str, str] = {}
    """Columns of each table except the events, as Spark writes them."""

    def merged(self, batches: Collection[int], into: int) -> StoreFacts:
        """The same facts when these batches have become one."""
        moved = {path: replace(file, batch=into) for path, file in self.files.items() if file.batch in batches}
        past = [batch for batch in self.past if batch not in batches]
        if set(batches) <= set(self.past):
            past.append(into)
        return replace(
            self, files=self.files | moved, dropped=[one for one in self.dropped if one.batch not in batches], past=past
        )


class EventStore:
    """A local directory; with a cluster, one that all workers share. Without a path it is temporary and is removed by `close`."""

    def __init__(self, spark: SparkSession, path: str | Path | None = None, compact_from: int = COMPACT_FROM) -> None:
        if path is not None and not is_local(str(path)):
            raise PipelineError(f"the store {path}: only a local directory can be a store; traces may come from anywhere")
        self._spark = spark
        self._compact_from = compact_from
        self._temporary = Path(mkdtemp(prefix="transis-store-")) if path is None else None
        self._lake = Lake(Path(local_path(str(path))) if self._temporary is None else self._temporary, "store", "--store")

    def __enter__(self) -> EventStore:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Remove a temporary store; any other stays."""
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)

    @property
    def path(self) -> Path:
        return self._lake.path

    # -- events ------------------------------------------------------------------------------------------------------

    def add(self, inputs: Iterable[str | Path]) -> int:
        """Take in new sealed segments, and replace the open ones by what they are now. Returns how many sealed ones were new."""
        found = find_segments(self._spark, inputs)
        with self._lake.change() as change:
            kept = self._facts(change.state).files
            new = {file: seal_of(file) for file in found if not _is_kept(file, kept)}
            still_open = [file for file, seal in new.items() if seal is None]
            sealed = _each_once({file: seal for file, seal in new.items() if seal is not None}, kept)
            self._take_in(change, sealed, still_open)
        if len(_batches(self._lake.state())) >= self._compact_from:
            self.compact()
        return len(sealed)

    def events(self) -> DataFrame:
        """All events that are kept, and those of the segments that were open at the last `add`."""
        return self._all(self._lake.state()).drop("batch")

    def events_above(self, cuts: DataFrame) -> DataFrame:
        """Events of segments behind `cuts` (node, upto), and of nodes that are not there; batches without any are not read."""
        state = self._lake.state()
        segments = above(self._all(state).where("kind = 'segments'"), cuts)
        wanted = {row.batch for row in segments.select("batch").distinct().collect()}
        return above(self._all(state, wanted).drop("batch"), cuts)

    def batches_below(self, cuts: DataFrame) -> list[int]:
        """Batches of which all segments lie below `cuts`."""
        state = self._lake.state()
        segments = above(self._kept(state).where("kind = 'segments'"), cuts)
        return sorted(set(_batches(state)) - {row.batch for row in segments.select("batch").distinct().collect()})

    def require_readable(self) -> None:
        """Raises TraceError if not one file could be read, for then there is no run that a verdict could be about."""
        segments = self._all(self._lake.state()).where("kind = 'segments'")
        [(files, unreadable, why)] = segments.selectExpr("count(*)", "count(trouble)", "min(trouble)").collect()
        if files == unreadable:
            raise TraceError(f"none of the {files} files of traces can be read; the first one is {why}")

    def inputs(self) -> DataFrame:
        """Lineage: file, run, node, segment, content_digest, batch; null for the batch of a file that was still open."""
        segments = self._all(self._lake.state()).where("kind = 'segments'")
        return segments.select("file", "run", "node", "segment", "content_digest", "batch")

    def compact(self) -> None:
        """Merge all batches into one; past ones are merged apart from the others, so that they need not be read."""
        for is_past in (True, False):
            with self._lake.change() as change:
                past = set(self._facts(change.state).past)
                self._merge(change, [batch for batch in _batches(change.state) if (batch in past) == is_past])

    def _merge(self, change: LakeChange, batches: list[int]) -> None:
        if len(batches) < 2:
            return
        staged, rows = change.stage(), self._kept(change.state, set(batches))
        for kind, part in self._parts(batches).items():
            rows.where(F.col("kind") == kind).select(*KINDS[kind]).coalesce(part).write.parquet(_uri(staged / f"kind={kind}"))
        change.drop(EVENTS_TABLE, batches)
        change.add(EVENTS_TABLE, staged)
        change.keep(self._facts(change.state).merged(batches, change.number))

    def _take_in(self, change: LakeChange, sealed: Mapping[SegmentFile, str], still_open: Sequence[SegmentFile]) -> None:
        """As one change, so that a segment that was open and is now sealed is always seen exactly once."""
        facts = self._facts(change.state)
        if sealed:
            change.add(EVENTS_TABLE, self._decoded(change, list(sealed)))
            outdated = self._outdated(change.state, [file.path for file in sealed if file.path in facts.files])
            kept = {file.path: KeptFile(*file, seal=seal, batch=change.number) for file, seal in sealed.items()}
            change.keep(replace(facts, files=facts.files | kept, dropped=[*facts.dropped, *outdated]))
        change.drop(OPEN)
        if still_open:
            change.add(OPEN, self._decoded(change, still_open))

    def _decoded(self, change: LakeChange, files: Sequence[SegmentFile]) -> Path:
        staged = change.stage()
        decode_into(self._spark, files, staged)
        return staged

    def _parts(self, batches: Sequence[int]) -> dict[str, int]:
        """How many files each kind in these batches shall have."""
        sizes: dict[str, int] = {}
        for batch in batches:
            for path in self._lake.batch_path(EVENTS_TABLE, batch).glob("kind=*/*.parquet"):
                kind = path.parent.name.removeprefix("kind=")
                sizes[kind] = sizes.get(kind, 0) + path.stat().st_size
        return {kind: ceil(size / PART_BYTES) for kind, size in sizes.items()}

    def _outdated(self, state: LakeState, paths: list[str]) -> list[Dropped]:
        """Kept rows of files that were read again."""
        if not paths:
            return []
        known = self._kept(state).where("kind = 'segments'").where(F.col("file").isin(paths))
        return [Dropped(*row) for row in known.select("batch", "file", "node", "segment").collect()]

    def _all(self, state: LakeState, wanted: Collection[int | None] | None = None) -> DataFrame:
        """The events of all batches, or of those that are wanted."""
        if OPEN not in state.tables:
            return self._kept(state, wanted)
        still_open = self._read(OPEN, state.tables[OPEN], EVENTS).withColumn("batch", F.lit(None).cast(INT))
        return self._kept(state, wanted).unionByName(still_open)

    def _kept(self, state: LakeState, wanted: Collection[int | None] | None = None) -> DataFrame:
        batches = [batch for batch in _batches(state) if wanted is None or batch in wanted]
        if not batches:
            return self._spark.createDataFrame([], KEPT_EVENTS)
        rows, dropped = self._read(EVENTS_TABLE, batches, KEPT_EVENTS), self._facts(state).dropped
        return _without(rows, self._dropped(dropped)) if dropped else rows

    def _read(self, table: str, batches: Iterable[int], schema: StructType) -> DataFrame:
        """Directories below `base` are columns: the kinds of events, and the batch where the schema has it."""
        base = self.path / table if "batch" in schema.names else None
        reader = self._spark.read.schema(schema)
        if base is not None:
            reader = reader.option("basePath", _uri(base))
        paths = (literally(_uri(self._lake.batch_path(table, batch))) for batch in batches)
        return reader.parquet(*paths).select(*schema.names)

    def _facts(self, state: LakeState) -> StoreFacts:
        return self._lake.facts(state, StoreFacts)

    def _dropped(self, dropped: Iterable[Dropped]) -> DataFrame:
        rows = [(one.batch, one.file, one.node, one.segment) for one in dropped]
        return self._spark.createDataFrame(rows, DROPPED)

    # -- tables made of them -----------------------------------------------------------------------------------------

    def replace(self, table: str, rows: DataFrame) -> None:
        """Publish a table, in place of what it was before."""
        self.replace_all({table: rows})

    def replace_all(self, tables: dict[str, DataFrame], past: list[int] | None = None) -> None:
        """Publish several tables as one change: a reader sees all of them, or none. `past` are the batches that are past now."""
        for name in tables:
            if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or name in (EVENTS_TABLE, OPEN):
                raise UsageError(f"a table of a store cannot have the name {name!r}: small letters, digits and _ only")
        with self._lake.change() as change:
            for name, rows in tables.items():
                staged = change.stage()
                rows.write.parquet(_uri(staged))
                change.replace(name, staged)
            facts = self._facts(change.state)
            schemas = facts.schemas | {name: rows.schema.json() for name, rows in tables.items()}
            change.keep(replace(facts, schemas=schemas, past=facts.past if past is None else past))

    def tables(self) -> list[str]:
        """The names of all tables that were published."""
        return sorted(self._facts(self._lake.state()).schemas)

    def table(self, name: str) -> DataFrame:
        """The latest version of a table."""
        state = self._lake.state()
        schema = self._facts(state).schemas.get(name)
        if schema is None:
            raise UsageError(f"the store {self.path} has no table {name!r}")
        return self._read(name, state.tables[name], StructType.fromJson(json.loads(schema)))


def _batches(state: LakeState) -> list[int]:
    return state.tables.get(EVENTS_TABLE, [])


def _is_kept(file: SegmentFile, files: Mapping[str, KeptFile]) -> bool:
    kept = files.get(file.path)
    return kept is not None and (kept.length, kept.modified_us) == (file.length, file.modified_us)


def _each_once(files: Mapping[SegmentFile, str], kept: Mapping[str, KeptFile]) -> dict[SegmentFile, str]:
    """The files without copies: a segment under several paths is the same evidence, not twice as much."""
    again = {file.path for file in files}
    known = {one.seal for one in kept.values() if one.path not in again}
    found: dict[SegmentFile, str] = {}
    for file, seal in files.items():
        if not seal or seal not in known:
            found[file] = seal
            known.add(seal)
    return found


def _uri(path: Path) -> str:
    """A path as Hadoop wants it, with nothing quoted."""
    return f"file://{path}"


def above(rows: DataFrame, cuts: DataFrame) -> DataFrame:
    """Rows of segments behind the cut (node, upto) of their life, and of lives that have none."""
    return rows.join(F.broadcast(cuts), "node", "left").where("upto is null or segment > upto").drop("upto")


def _without(rows: DataFrame, dropped: DataFrame) -> DataFrame:
    """Rows of a segment that was read again count only once; names, which have no segment, may stay."""
    same_segment = "node = dropped_node and segment = dropped_segment"
    same = F.expr(f"rows.batch = dropped.batch and (({same_segment}) or (kind = 'segments' and file = dropped_file))")
    return rows.alias("rows").join(F.broadcast(dropped).alias("dropped"), same, "left_anti")
