"""Small tables of an archive, made by the very rows that an archiver makes."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.archive.events import PROCESSES, START, batch, configuration, group_view
from transis.archive.directory import ArchiveDirectory
from transis.archive.rows import RowBuilder
from transis.types import ids
from transis.types.ids import Service


def tables(
    count: int, messages: int = 5, life: int = 1, archiver: str = "ann", value: bytes | None = None, attributed: bool = False
) -> list[pa.Table]:
    """So many consecutive ones of one life, with so many messages each, of that value if given; the first has the view, too."""
    rows = RowBuilder("g", archiver, life, "totem", "evs")
    rows.begin("test", 0)
    rows.configuration(configuration(START, START, None), 0)
    rows.view(group_view(START, ids.Place(1, 0)), 0)
    made = []
    for number in range(count):
        made_up = batch(
            START, PROCESSES[0], Service.AGREED, 1 + number * messages, [(2 + number, 0, messages)], attributed=attributed
        )
        if value is not None:
            made_up.payloads[:] = [value] * messages
        rows.messages(made_up, number)
        made.append(rows.take().table())
    return made


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """A disk that is full when a file has so many bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def rows_in(place: ArchiveDirectory) -> list[tuple[int, int]]:
    """Life and row of everything that is published there, in the order of the files."""
    found: list[dict[str, Any]] = []
    for path in place.published():
        found += pq.read_table(path, columns=["life", "row"], page_checksum_verification=True).to_pylist()
    return [(one["life"], one["row"]) for one in found]


def of_an_earlier_release(table: pa.Table) -> pa.Table:
    """The rows as they were written before messages had times, keys and headers, and processes names."""
    return table.drop_columns(["event_time", "key", "headers", "names"])
