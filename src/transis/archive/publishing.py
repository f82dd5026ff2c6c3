"""A sealed journal becomes one Parquet file, exactly once.

The steps: write it aside, make it durable, rename it, make the name durable, and only then forget the journal. Whenever this ends
between two of them, what `recover` finds says what is left to do: if the Parquet file is there it is whole, and the journal is
unlinked; if not, it is written again from the journal. A row is so in the table once, whoever is killed when.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from transis.archive.journal import read_journal
from transis.archive.place import Place
from transis.archive.schema import REPEATING, STREAM, Position
from transis.model.errors import ArchiveError
from transis.trace.durable import sync

GROUP_ROWS: Final = 131_072
GROUP_BYTES: Final = 64 << 20
"""A row group has so many rows or bytes in memory: what a reader has to hold, and what publishing holds itself."""


def publish(place: Place, journal: Path) -> Path | None:
    """The Parquet file of a journal, which is gone afterwards; None if it held no rows. Raises OSError where the disk refuses."""
    target = place.published_as(journal)
    if not target.exists() and not _write(journal, target):
        journal.unlink()
        return None
    sync(target.parent)
    journal.unlink()
    return target


def _write(journal: Path, target: Path) -> bool:
    """Aside, and then by its name; whether there was anything to write."""
    aside = target.with_name(f".{target.name}.tmp")
    try:
        with aside.open("wb") as file:
            rows = _write_groups(journal, file)
            file.flush()
            os.fsync(file.fileno())
        if rows:
            os.rename(aside, target)
        return bool(rows)
    finally:
        aside.unlink(missing_ok=True)


def _write_groups(journal: Path, file: object) -> int:
    rows = 0
    with pq.ParquetWriter(
        file, STREAM, compression="zstd", compression_level=1, use_dictionary=list(REPEATING), store_schema=False
    ) as writer:
        for group in _row_groups(read_journal(journal)):
            writer.write_table(group, row_group_size=group.num_rows)
            rows += group.num_rows
    return rows


def _row_groups(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Tables put together, each group as large as a row group shall be or a little larger.

    Their dictionaries are made one: a column chunk has room for one, and would be written without any.
    """
    waiting: list[pa.Table] = []
    rows = size = 0
    for table in tables:
        waiting.append(table)
        rows, size = rows + table.num_rows, size + table.nbytes
        if rows >= GROUP_ROWS or size >= GROUP_BYTES:
            yield pa.concat_tables(waiting).unify_dictionaries()
            waiting, rows, size = [], 0, 0
    if waiting:
        yield pa.concat_tables(waiting).unify_dictionaries()


def recover(place: Place) -> Position | None:
    """Publish what the lives before this one left, and tell where the last of them stood. Under the lock of the place."""
    for left_over in place.half_published():
        left_over.unlink()
    for journal in place.journals():
        publish(place, journal)
    published = place.published()
    return _last_position(published[-1]) if published else None


def _last_position(path: Path) -> Position:
    try:
        with pq.ParquetFile(path) as file:
            last = file.read_row_group(file.num_row_groups - 1, columns=["ring_seq", "ring_rep", "place_seq", "place_index"])
        (row,) = last.slice(last.num_rows - 1).to_pylist()
        return Position(**row)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise ArchiveError(f"{path} cannot be read ({error}): put it back as it was written, or move it away") from error
