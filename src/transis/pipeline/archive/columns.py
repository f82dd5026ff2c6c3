"""Columns of an archive as Spark sees them, and the few expressions that every job over it needs.

Nothing here is computed: `STREAM` is what the archivers write (archive/rows.py), column by column, in their `FORMAT`.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BinaryType, TimestampType

from transis.audit.plans.tables import FLAG, INT, LONG, TEXT, columns

FORMAT: Final = 1
TEXTS: Final = ArrayType(TEXT)

STREAM: Final = columns(
    kind=TEXT,
    group=TEXT,
    archiver=TEXT,
    life=INT,
    row=LONG,
    ring_seq=LONG,
    ring_rep=TEXT,
    place_seq=LONG,
    place_index=INT,
    ordered=FLAG,
    conf=TEXT,
    transitional=FLAG,
    sender=TEXT,
    process=TEXT,
    counter=LONG,
    service=TEXT,
    sent_us=LONG,
    received_at=TimestampType(),
    value=BinaryType(),
    view=TEXT,
    members=TEXTS,
    joined=TEXTS,
    left=TEXTS,
    cause=TEXT,
    primary=FLAG,
    merged_from=ArrayType(columns(view=TEXT, members=TEXTS)),
    previous=TEXTS,
    since_ring_seq=LONG,
    since_ring_rep=TEXT,
    since_place_seq=LONG,
    since_place_index=INT,
    why=TEXT,
)

MESSAGE: Final = "message"
VIEW: Final = "view"
CONFIGURATION: Final = "configuration"
BEGIN: Final = "begin"

RING: Final = ("ring_seq", "ring_rep")
PLACE: Final = ("place_seq", "place_index")
LIFE: Final = ("group", "archiver", "life")
"""One stay of one archiver in a group: what it saw has no hole."""
MESSAGE_ID: Final = ("group", "process", "counter")

MESSAGES: Final = (
    "group",
    *RING,
    *PLACE,
    "ordered",
    "conf",
    "transitional",
    "sender",
    "process",
    "counter",
    "service",
    "sent_us",
    "received_at",
    "value",
    "archiver",
    "life",
    "row",
)
"""Columns of a message that is there once; the last three say whose copy it is."""

VIEWS: Final = (
    "group",
    "view",
    *RING,
    *PLACE,
    "ordered",
    "conf",
    "transitional",
    "members",
    "cause",
    "primary",
    "merged_from",
    "received_at",
    "archiver",
    "life",
    "row",
)
"""Columns of a group view that is there once. Who joined and left differs by side, and stays in the stream."""

SIDE: Final = ("parting", "side")
"""The number of a parting, and which of its sides: `2`, or `1+2` for what two of three saw."""


def is_message() -> Column:
    return F.col("kind") == MESSAGE


def is_regular_line() -> Column:
    """What of a ring everybody delivers in one sequence, of which each has a beginning: ordered, and not transitional."""
    return F.col("ordered") & ~F.col("transitional")


def place() -> Column:
    return F.struct(*PLACE)


def ring_in(configuration: Column) -> dict[str, Column]:
    """The columns of a ring out of the word for it, `R12@n1/1/...`."""
    seq = F.substring_index(F.substring(configuration, 2, 20), "@", 1).cast(LONG)
    return {"ring_seq": seq, "ring_rep": F.regexp_extract(configuration, "@(.*)", 1)}


def history_order() -> list[Column]:
    """The order of rows in one history: by position; of equal ones the ordered row comes first, then what was seen behind it."""
    return [*map(F.col, (*RING, *PLACE)), F.col("ordered").desc(), *map(F.col, ("archiver", "life", "row"))]
