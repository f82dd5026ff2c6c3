"""Spark's types: those of traces, derived from the one schema of traces, and short names to declare others."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
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

from transis.trace.tables import COLUMNS

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
