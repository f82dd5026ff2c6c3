"""The files of one archiver of one group in the directory of an archive: what they are called, and who may touch them.

GROUP is the id of the group in hex, as its name may hold any character; the true name is a column. Names have nothing in front
that Spark passes over, and nothing that it takes for a pattern. Everything that is done to these files is done under their lock.
"""

from __future__ import annotations

import fcntl
import os
import re
from pathlib import Path
from typing import Final, NamedTuple

JOURNAL: Final = ".journal"
PARQUET: Final = ".parquet"
ASIDE: Final = ".tmp"
DAMAGED: Final = ".damaged"
_STEM: Final = re.compile(r"(?P<whose>[0-9a-f]{16}-.+)-(?P<life>\d{6,})-(?P<number>\d{6,})")


class Number(NamedTuple):
    """Of a file: the life of its archiver, and which of that life's files it is."""

    life: int
    number: int


class Files:
    def __init__(self, directory: Path, group_id: int, archiver: str) -> None:
        self.directory, self.group_id, self.archiver = directory, group_id, archiver
        self.stream, self.open_files = directory / "stream", directory / "open"
        self._whose = f"{group_id:016x}-{archiver}"
        self._lock = -1

    # --- the lock ---------------------------------------------------------------------------------------------------

    def take_lock(self) -> bool:
        """Whether nobody else has it."""
        lock = os.open(self._lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return False
        self._lock = lock
        return True

    def close(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def is_locked(self) -> bool:
        """Whether somebody has the lock, at a glance: it is shared for a moment, and nothing is made."""
        try:
            lock = os.open(self._lock_file, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:  # Nobody made it yet, or it is not for us to see.
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(lock)
        return False

    @property
    def _lock_file(self) -> Path:
        return self.open_files / f"{self._whose}.lock"

    # --- names ------------------------------------------------------------------------------------------------------

    def journal(self, number: Number) -> Path:
        return self.open_files / f"{self._stem(number)}{JOURNAL}"

    def published_as(self, journal: Path) -> Path:
        return self.stream / f"{journal.stem}{PARQUET}"

    def aside(self, target: Path) -> Path:
        """Where a file is written before it has its name."""
        return target.with_name(f".{target.name}{ASIDE}")

    def damaged(self, journal: Path) -> Path:
        """Where a journal is kept that could not be read as a whole."""
        return journal.with_name(f"{journal.name}{DAMAGED}")

    def _stem(self, number: Number) -> str:
        return f"{self._whose}-{number.life:06d}-{number.number:06d}"

    def journals(self) -> list[Path]:
        """This archiver's, in the order in which they were written."""
        return self._mine(self.open_files, JOURNAL)

    def published(self) -> list[Path]:
        return self._mine(self.stream, PARQUET)

    def damaged_journals(self) -> list[Path]:
        return sorted(
            path for path in self.open_files.glob(f"{self._whose}-*{JOURNAL}{DAMAGED}") if self._is_mine(Path(path.stem))
        )

    def half_published(self) -> list[Path]:
        """What is left of publishing that did not come to its end."""
        found = self.stream.glob(f".{self._whose}-*{PARQUET}{ASIDE}")
        return sorted(path for path in found if self._is_mine(Path(path.name.removeprefix(".").removesuffix(ASIDE))))

    def _mine(self, directory: Path, suffix: str) -> list[Path]:
        found = [path for path in directory.glob(f"{self._whose}-*{suffix}") if self._is_mine(path)]
        return sorted(found, key=number_of)

    def _is_mine(self, path: Path) -> bool:
        """A name may be the beginning of another name."""
        match = _STEM.fullmatch(path.stem)
        return match is not None and match["whose"] == self._whose


def number_of(path: Path) -> Number:
    match = _STEM.fullmatch(path.stem)
    assert match is not None, "only names of this form are looked at"
    return Number(int(match["life"]), int(match["number"]))


def files_with_journals(directory: Path) -> list[Files]:
    """Of all archivers that have journals in an archive, whether they run or not."""
    stems = (_STEM.fullmatch(path.stem) for path in (directory / "open").glob(f"*{JOURNAL}"))
    whose = sorted({match["whose"] for match in stems if match is not None})
    return [Files(directory, int(one[:16], 16), one[17:]) for one in whose]


def waiting_journals(directory: Path, group_id: int) -> dict[str, int]:
    """By archiver, how many journals of a group nobody publishes: their archivers do not run."""
    found = [files for files in files_with_journals(directory) if files.group_id == group_id and not files.is_locked()]
    return {files.archiver: len(files.journals()) for files in found}
