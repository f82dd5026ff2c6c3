"""Publishing: a sealed journal becomes one Parquet file, exactly once, with its archiver or without it.

1. The steps are: write the file aside, sync it, rename it, sync its directory, and only then remove the journal. After a kill
   between any two of them `recover` sees what is left to do: if the Parquet file is there, it is complete, and the journal is
   removed; if not, it is written again from the journal. So every row is in the table once.
2. A journal that the disk damaged is published as far as it can be read, and kept. One that cannot be published now does not
   hold up the ones behind it.
3. `publish_directory` publishes the journals of archivers that do not run, even if their node or their whole cluster is gone.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from transis.archive.directory import ArchiverFiles, cluster_of, files_with_journals
from transis.archive.journal import JournalReader, UnreadableJournal
from transis.archive.rows import REPEATING, STREAM, RowPosition
from transis.trace.files import sync
from transis.types.errors import ArchiveError

# --- publishing -------------------------------------------------------------------------------------------------------

GROUP_ROWS: Final = 131_072
GROUP_BYTES: Final = 64 << 20
"""Rows or bytes in memory of a row group: what a reader has to hold, and what publishing holds itself."""


class PublishedJournal(NamedTuple):
    """The result for one journal. `path` is None if it held no rows; `damaged` is where a damaged journal is kept."""

    path: Path | None
    size: int
    damaged: Path | None


def publish(files: ArchiverFiles, journal: Path) -> PublishedJournal:
    """Turn a journal into its Parquet file, and remove it.

    Raises OSError if the disk refuses to write, UnreadableJournal if it refuses to read.
    """
    target, tables = files.published_as(journal), JournalReader(journal)
    size = _size_of(target)
    if size is None:
        size = _write(tables, files.aside(target), target)
    else:
        deque(tables, maxlen=0)  # Reading it shows whether there is damage.
    sync(target.parent)
    return PublishedJournal(target if size else None, size, _forget(files, journal, tables.damaged_bytes > 0))


def _size_of(target: Path) -> int | None:
    try:
        return target.stat().st_size
    except FileNotFoundError:
        return None


def _forget(files: ArchiverFiles, journal: Path, is_damaged: bool) -> Path | None:
    """Remove the journal, or set it aside if it is damaged, in case somebody can rescue more of it; returns where it is then.

    Done durably: a journal that came back after a power cut would be published again if the published file was moved away.
    """
    kept = journal.rename(files.damaged(journal)) if is_damaged else None
    if kept is None:
        journal.unlink()
    sync(journal.parent)
    return kept


def _write(tables: Iterable[pa.Table], aside: Path, target: Path) -> int:
    """Write aside, then rename; returns the size, 0 if there was nothing to write."""
    try:
        with aside.open("wb") as file:
            rows = _write_groups(tables, file)
            file.flush()
            os.fsync(file.fileno())
            size = file.tell()
        if not rows:
            return 0
        os.rename(aside, target)
        return size
    finally:
        aside.unlink(missing_ok=True)


def _write_groups(tables: Iterable[pa.Table], file: object) -> int:
    rows = 0
    with pq.ParquetWriter(
        file,
        STREAM,
        compression="zstd",
        compression_level=1,
        use_dictionary=list(REPEATING),
        store_schema=False,
        write_page_checksum=True,
    ) as writer:
        for group in _row_groups(tables):
            writer.write_table(group, row_group_size=group.num_rows)
            rows += group.num_rows
    return rows


def _row_groups(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Concatenate tables until each group has the size of a row group or a little more.

    Their dictionaries are unified: a column chunk takes only one, and would otherwise be written without any.
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


class Recovered(NamedTuple):
    """Where the last life stood; the damaged journals, including those of earlier starts; and the journals not readable now."""

    last: RowPosition | None
    damaged: list[Path]
    unread: list[UnreadableJournal]


class PublishedLeft(NamedTuple):
    """The journals that earlier lives left: published ones, and the errors of the others."""

    published: list[PublishedJournal]
    refused: list[OSError | ArchiveError]


def recover(files: ArchiverFiles) -> Recovered:
    """Publish what earlier lives left; needs the lock. Raises whatever must be fixed before another life can begin."""
    unread = []
    for error in publish_left(files).refused:
        if not isinstance(error, UnreadableJournal):
            raise error
        unread.append(error)
    published = files.published()
    return Recovered(_last_position(published[-1]) if published else None, files.damaged_journals(), unread)


def publish_left(files: ArchiverFiles) -> PublishedLeft:
    """Publish all journals that can be published; needs the lock."""
    left = PublishedLeft([], [])
    for half_published in files.half_published():
        half_published.unlink()
    for journal in files.journals():
        try:
            left.published.append(publish(files, journal))
        except (OSError, ArchiveError) as error:
            left.refused.append(error)
    return left


def _last_position(path: Path) -> RowPosition:
    columns = ["ring_seq", "ring_rep", "place_seq", "place_index"]
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            last = file.read_row_group(file.num_row_groups - 1, columns=columns)
        (row,) = last.slice(last.num_rows - 1).to_pylist()
        return RowPosition(**row)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise ArchiveError(f"{path} cannot be read ({error}): restore the original file, or move it away") from error


# --- offline ----------------------------------------------------------------------------------------------------------


class PublishOutcome(NamedTuple):
    """The result for one archiver of one group; `left` is None if it is running, and publishes its journals itself."""

    group: str
    archiver: str
    journals: int
    left: PublishedLeft | None

    @property
    def files(self) -> int:
        return 0 if self.left is None else sum(one.path is not None for one in self.left.published)

    @property
    def size(self) -> int:
        return 0 if self.left is None else sum(one.size for one in self.left.published)

    @property
    def damaged(self) -> list[Path]:
        return [] if self.left is None else [one.damaged for one in self.left.published if one.damaged is not None]

    @property
    def refused(self) -> list[str]:
        return [] if self.left is None else [str(error) for error in self.left.refused]

    @property
    def is_fine(self) -> bool:
        return not (self.damaged or self.refused)

    def as_json(self) -> dict[str, Any]:
        said = {"group": self.group, "archiver": self.archiver, "runs": self.left is None, "journals": self.journals}
        return said | {"files": self.files, "bytes": self.size, "damaged": list(map(str, self.damaged)), "refused": self.refused}


def publish_directory(directory: Path) -> list[PublishOutcome]:
    """Publish the journals of every archiver that has some there and does not run."""
    try:
        cluster_of(directory)
    except FileNotFoundError:
        text = f"{str(directory)!r} holds no archive: give a directory that `transis archive --to` has written to"
        raise ArchiveError(text) from None
    except OSError as error:
        raise ArchiveError(f"{str(directory)!r} cannot be read: {error.strerror or error}") from error
    return [_publish(files) for files in files_with_journals(directory)]


def _publish(files: ArchiverFiles) -> PublishOutcome:
    journals = files.journals()
    group = next(filter(None, map(_group_of, journals)), f"{files.group_id:016x}")
    try:
        left = publish_left(files) if files.take_lock() else None
    except OSError as error:
        left = PublishedLeft([], [error])
    finally:
        files.close()
    return PublishOutcome(group, files.archiver, len(journals), left)


def _group_of(journal: Path) -> str | None:
    """The group named in the header of the journal."""
    reader = JournalReader(journal)
    with suppress(ArchiveError):
        next(iter(reader), None)
    return reader.group
