"""A new file that grows at its end only: an append is there as a whole, or nothing of it. Never raises for a disk that fails."""

from __future__ import annotations

from io import FileIO
from pathlib import Path


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
