"""A sealed journal becomes one Parquet file, once; also without its archiver.

A sealed journal becomes one Parquet file, exactly once.

The steps: write it aside, make it durable, rename it, make the name durable, and only then forget the journal. Whenever this ends
between two of them, what `recover` finds says what is left to do: if the Parquet file is there it is whole, and the journal is
unlinked; if not, it is written again from the journal. A row is so in the table once, whoever is killed when.

A journal that the disk damaged is published as far as it can be read, and kept. One that cannot be published now does not keep
those behind it from being published.

Publishing without an archiver: what those left that do not run, also when their node or their whole cluster is gone.
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
"""A row group has so many rows or bytes in memory: what a reader has to hold, and what publishing holds itself."""


class PublishedJournal(NamedTuple):
    """What became of a journal. `path` is None if it held no rows; `damaged` is where it is kept if a part could not be read."""

    path: Path | None
    size: int
    damaged: Path | None


def publish(files: ArchiverFiles, journal: Path) -> PublishedJournal:
    """The Parquet file of a journal, which is gone afterwards. Raises OSError where the disk refuses to write, and Unreadable
    where it refuses to read."""
    target, tables = files.published_as(journal), JournalReader(journal)
    size = _size_of(target)
    if size is None:
        size = _write(tables, files.aside(target), target)
    else:
        deque(tables, maxlen=0)  # It says whether there is damage.
    sync(target.parent)
    return PublishedJournal(target if size else None, size, _forget(files, journal, tables.damaged_bytes > 0))


def _size_of(target: Path) -> int | None:
    try:
        return target.stat().st_size
    except FileNotFoundError:
        return None


def _forget(files: ArchiverFiles, journal: Path, is_damaged: bool) -> Path | None:
    """It is not needed any more; but what could not be read of it may be worth something to somebody: where it is then.

    A power cut does not bring it back: its rows would be published again if somebody had moved the published file away.
    """
    kept = journal.rename(files.damaged(journal)) if is_damaged else None
    if kept is None:
        journal.unlink()
    sync(journal.parent)
    return kept


def _write(tables: Iterable[pa.Table], aside: Path, target: Path) -> int:
    """Aside, and then by its name; how large it is, 0 if there was nothing to write."""
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


class Recovered(NamedTuple):
    """Where the last life stood; the journals that could not be read as a whole, also those of earlier starts; and why others
    stay what they are for now."""

    last: RowPosition | None
    damaged: list[Path]
    unread: list[UnreadableJournal]


class PublishedLeft(NamedTuple):
    """What became of the journals that were left: published, or why not."""

    published: list[PublishedJournal]
    refused: list[OSError | ArchiveError]


def recover(files: ArchiverFiles) -> Recovered:
    """Publish what the lives before this one left. Under the lock. Raises what has to be seen to before another life begins."""
    unread = []
    for error in publish_left(files).refused:
        if not isinstance(error, UnreadableJournal):
            raise error
        unread.append(error)
    published = files.published()
    return Recovered(_last_position(published[-1]) if published else None, files.damaged_journals(), unread)


def publish_left(files: ArchiverFiles) -> PublishedLeft:
    """All that can be. Under the lock."""
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
        raise ArchiveError(f"{path} cannot be read ({error}): put it back as it was written, or move it away") from error


# --- offline ----------------------------------------------------------------------------------------------------------


class PublishOutcome(NamedTuple):
    """What became of the journals of one archiver of one group; None if it runs, and publishes them itself."""

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
    """Of every archiver that has journals there."""
    try:
        cluster_of(directory)
    except FileNotFoundError:
        text = f"{str(directory)!r} holds no archive: name a directory that `transis archive --to` has written to"
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
    """As its header says."""
    reader = JournalReader(journal)
    with suppress(ArchiveError):
        next(iter(reader), None)
    return reader.group
