"""The one table of an archive, `stream`: what each archiver was told, in its order. docs/archive.md says what the columns mean.

Rows of four kinds: `begin` (an archiver is there from here on), `message`, `view` and `configuration`. The position of an ordered
row (`ring_*`, `place_*`) is the key of the message in the total order, the same at every archiver.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import pyarrow as pa

FORMAT: Final = 1
"""Of the directory and of the table; it is in `archive.json`."""

KINDS: Final = ("begin", "message", "view", "configuration")
BEGIN, MESSAGE, VIEW, CONFIGURATION = range(len(KINDS))

SERVICES: Final = ("basic", "causal", "agreed", "safe")
"""By the number of the service."""

WORD: Final = pa.dictionary(pa.int32(), pa.string())
"""A word that repeats: a number a row in memory, a plain string with a dictionary in Parquet."""

_STRINGS: Final = pa.list_(pa.string())
_ORIGIN: Final = pa.struct([("view", pa.string()), ("members", _STRINGS)])

COMMON: Final[list[tuple[str, pa.DataType]]] = [
    ("kind", WORD),
    ("group", WORD),
    ("archiver", WORD),
    ("life", pa.int32()),
    ("row", pa.int64()),
    ("ring_seq", pa.int64()),
    ("ring_rep", WORD),
    ("place_seq", pa.int64()),
    ("place_index", pa.int32()),
    ("ordered", pa.bool_()),
    ("conf", WORD),
    ("transitional", pa.bool_()),
    ("sender", WORD),
    ("process", WORD),
    ("counter", pa.int64()),
    ("service", WORD),
    ("sent_us", pa.int64()),
    ("received_at", pa.timestamp("us", "UTC")),
    ("value", pa.binary()),
]

RARE: Final[list[tuple[str, pa.DataType]]] = [
    # Of views and configurations.
    ("view", pa.string()),
    ("members", _STRINGS),
    ("joined", _STRINGS),
    ("left", _STRINGS),
    ("cause", pa.string()),
    ("primary", pa.bool_()),
    ("merged_from", pa.list_(_ORIGIN)),
    ("previous", _STRINGS),
    # Of the beginning: where this archiver stood before.
    ("since_ring_seq", pa.int64()),
    ("since_ring_rep", pa.string()),
    ("since_place_seq", pa.int64()),
    ("since_place_index", pa.int32()),
    ("why", pa.string()),
]
"""Null in every message."""

STREAM: Final = pa.schema([*COMMON, *RARE])

REPEATING: Final = tuple(name for name, kind in COMMON if kind == WORD)
"""Columns that are worth a dictionary in Parquet."""


class Position(NamedTuple):
    """A place in the total order of a regular configuration. Positions order as tuples do: of one node later ones are higher."""

    ring_seq: int
    ring_rep: str
    place_seq: int
    place_index: int

    def __str__(self) -> str:
        representative = self.ring_rep.rpartition("/")[0]
        return f"R{self.ring_seq}@{representative} {self.place_seq}.{self.place_index}"
