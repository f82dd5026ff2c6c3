"""Durable files: append whole or not at all, replace, sync.

1. An append is in the file completely or not at all. Appending never raises for a failing disk; it returns False.
2. Against power cuts: content is durable before the file gets its name, and the name is durable before anybody relies on it.
"""

from __future__ import annotations

import os
from io import FileIO
from pathlib import Path
from typing import Final

# --- appending --------------------------------------------------------------------------------------------------------


class Appender:
    """A new file that only grows at its end. Raises OSError if the file exists: it would belong to somebody else."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = FileIO(path, "x")
        self.path = path
        self.size = 0
        self.is_torn = False
        """Part of a failed append could not be cut off: nothing more can be appended."""

    def append(self, content: bytes) -> bool:
        """Append all of it; False, with the file unchanged, if the disk refuses."""
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
"""Suffix of the temporary file that holds the new content."""


def replace_durably(path: Path, content: bytes) -> None:
    """Replace a file such that readers find the old or the new content, even after a power cut."""
    write_beside(path, content).replace(path)
    sync(path.parent)


def write_beside(path: Path, content: bytes) -> Path:
    """Write and sync the new content under a name that no reader looks at; returns that path."""
    new = beside(path)
    with new.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    return new


def beside(path: Path) -> Path:
    return path.with_name(f".{path.name}{TEMPORARY}")


def sync(path: Path) -> None:
    """Make durable the content of a file, or the names in a directory."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
