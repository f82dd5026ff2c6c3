"""Publishing without an archiver: what those left that do not run, also when their node or their whole cluster is gone."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from transis.archive.files import Files, files_with_journals
from transis.archive.journal import JournalReader
from transis.archive.place import cluster_of
from transis.archive.publishing import Left, publish_left
from transis.types.errors import ArchiveError


class Outcome(NamedTuple):
    """What became of the journals of one archiver of one group; None if it runs, and publishes them itself."""

    group: str
    archiver: str
    journals: int
    left: Left | None

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


def publish_directory(directory: Path) -> list[Outcome]:
    """Of every archiver that has journals there."""
    try:
        cluster_of(directory)
    except FileNotFoundError:
        text = f"{str(directory)!r} holds no archive: name a directory that `transis archive --to` has written to"
        raise ArchiveError(text) from None
    except OSError as error:
        raise ArchiveError(f"{str(directory)!r} cannot be read: {error.strerror or error}") from error
    return [_publish(files) for files in files_with_journals(directory)]


def _publish(files: Files) -> Outcome:
    journals = files.journals()
    group = next(filter(None, map(_group_of, journals)), f"{files.group_id:016x}")
    try:
        left = publish_left(files) if files.take_lock() else None
    except OSError as error:
        left = Left([], [error])
    finally:
        files.close()
    return Outcome(group, files.archiver, len(journals), left)


def _group_of(journal: Path) -> str | None:
    """As its header says."""
    reader = JournalReader(journal)
    with suppress(ArchiveError):
        next(iter(reader), None)
    return reader.group
