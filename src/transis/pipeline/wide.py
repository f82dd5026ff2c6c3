"""Arrow batches as Spark wants them: one kind's own columns, and all columns of EVENTS."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from transis.pipeline.keys import Keys
from transis.pipeline.schemas import EVENTS, KINDS
from transis.trace.segment import Header
from transis.types.errors import TraceCutOff, TraceError

ARROW: Final[pa.Schema] = to_arrow_schema(EVENTS, timezone="UTC")
"""Spark takes exactly this and nothing that is merely like it."""

NARROW: Final = {kind: pa.schema([ARROW.field(name) for name in names]) for kind, names in KINDS.items()}

CHUNK: Final = 16_384
"""Rows that become Arrow arrays together: enough to make a call cheap, few enough to hold."""


def trouble_batch(why: TraceError, file: str, size: int, header: Header | None = None) -> pa.RecordBatch:
    """The row of a file of which nothing can be read; who wrote it is told where the header is whole."""
    known: dict[str, Any] = {"file": file, "bytes": size, "trouble": str(why)}
    if isinstance(why, TraceCutOff):
        known["torn_bytes"] = size
    if header is not None:
        keys = Keys(header.cluster, header.run)
        known |= {"run": keys.run, "node": keys.node(header.node), "segment": header.number, "cluster": header.cluster}
        known |= {
            "run_name": header.run,
            "schema": header.schema,
            "engine": header.engine,
            "mode": header.mode,
            "build": header.build,
        }
    return pa.RecordBatch.from_pylist([known], NARROW["segments"])


def wide(kind: str, rows: pa.RecordBatch) -> pa.Table:
    """Rows of one kind as a table with all columns of EVENTS."""
    given = {"kind": pa.repeat(pa.scalar(kind, ARROW.field("kind").type), len(rows))}
    given |= dict(zip(rows.schema.names, rows.columns, strict=True))
    arrays = [given[field.name] if field.name in given else _nulls(field.type, len(rows)) for field in ARROW]
    return pa.Table.from_arrays(arrays, schema=ARROW)


@cache
def _many_nulls(kind: pa.DataType) -> pa.Array:
    return pa.nulls(CHUNK, kind)


def _nulls(kind: pa.DataType, count: int) -> pa.Array:
    """Nine of ten columns are null in every row, so these are made once."""
    return _many_nulls(kind)[:count] if count <= CHUNK else pa.nulls(count, kind)
