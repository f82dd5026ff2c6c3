"""Durable files: append whole or not at all, replace, publish, sync, lock.

A new file that grows at its end only: an append is there as a whole, or nothing of it. Never raises for a disk that fails.

What a power cut must not take: content is durable before it has its name, and the name before anybody counts on it.
"""

from __future__ import annotations

import os
from io import FileIO
from pathlib import Path
from typing import Final

# --- appending --------------------------------------------------------------------------------------------------------


class Appender:
    """Created, never opened again: an existing file of this name belongs to somebody else, which is an OSError here."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = FileIO(path, "x")
        self.path = path
        self.size = 0
        self.is_torn = False
        """A part of an append stayed behind and cannot be cut off: the file ends here."""

    def append(self, content: bytes) -> bool:
        """False if the disk did not take it."""
        if self.is_torn:
            return False
        try:
            written = self._file.write(content)
        except OSError:
            written = 0
        if written == len(content):
            self.size += written
            return True
        self._take_back()
        return False

    def close(self) -> None:
        self._file.close()

    def discard(self) -> None:
        self._file.close()
        self.path.unlink(missing_ok=True)

    def _take_back(self) -> None:
        try:
            self._file.truncate(self.size)
            self._file.seek(self.size)
        except OSError:
            self.is_torn = True


# --- durable ----------------------------------------------------------------------------------------------------------

TEMPORARY: Final = ".new"
"""What is added to a name while its new content is written beside it."""


def replace_durably(path: Path, content: bytes) -> None:
    """A reader finds the old content or the new, whenever the power goes."""
    write_beside(path, content).replace(path)
    sync(path.parent)


def write_beside(path: Path, content: bytes) -> Path:
    """The new content, synced, under a name that no reader looks at."""
    new = beside(path)
    with new.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    return new


def beside(path: Path) -> Path:
    return path.with_name(f".{path.name}{TEMPORARY}")


def sync(path: Path) -> None:
    """Make the content of a file durable; of a directory, the names that were made or changed in it."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
