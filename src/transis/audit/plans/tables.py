"""What judging a trace gives: how much was looked at, and what is broken."""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import ArrayType

from transis.spark.schema import LONG, LONGS, TEXT, columns

CHECKED: Final = columns(run=LONG, ring=LONG, property=TEXT, checked=LONG, pending=LONG)
"""What a property had to look at, summed: several rows a run are added up. `ring` is null where it is not about one."""

MESSAGE: Final = columns(process=LONG, counter=LONG)
WITNESS: Final = columns(node=LONG, lseq=LONG)

VIOLATIONS: Final = columns(
    run=LONG,
    ring=LONG,
    property=TEXT,
    explanation=TEXT,
    nodes=LONGS,
    views=LONGS,
    messages=ArrayType(MESSAGE),
    witness=ArrayType(WITNESS),
    position=LONG,
)
"""One broken promise: in words, with the events that show it."""
