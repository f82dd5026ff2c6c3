"""Durable files: append whole or not at all, replace, publish, sync, lock.

1. An append is in the file completely or not at all. Appending never raises for a failing disk; it returns False.
2. Against power cuts: content is durable before the file gets its name, and the name is durable before anybody relies on it.
3. No other file of the package syncs, renames or locks, except the few that tests/house/test_files.py lists.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import Final

from transis.process.fork import stays_here

# --- appending --------------------------------------------------------------------------------------------------------


class Appender:
    """A new file that only grows at its end. Raises OSError if the file exists: it would belong to somebody else."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = FileIO(path, "x")
        stays_here(self)
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

    def descriptors(self) -> list[int]:
        return [] if self._file.closed else [self._file.fileno()]

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
    rename(write_beside(path, content), path)
    sync(path.parent)


def write_beside(path: Path, content: bytes) -> Path:
    """Write and sync the new content under a name that no reader looks at; returns that path."""
    new = beside(path)
    with naming(path):
        new.write_bytes(content)
        sync(new)
    return new


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """What the system refuses meanwhile names this file: a failed write would not say which it was."""
    try:
        yield
    except OSError as error:
        error.filename = os.fspath(path)
        raise


def beside(path: Path) -> Path:
    return path.with_name(f".{path.name}{TEMPORARY}")


def rename(aside: Path, target: Path) -> Path:
    """In one step for every reader, but not durable: for what is worth nothing after a power cut, or is made again."""
    return aside.replace(target)


def publish(aside: Path, target: Path) -> Path:
    """Give a file or directory that was written aside its name, which nothing may have yet; all of it is durable then."""
    _sync_below(aside)
    make_directory(target.parent)
    rename(aside, target)
    sync(target.parent)
    return target


def make_directory(path: Path) -> None:
    """With those above it; their names are durable."""
    missing = [one for one in (path, *path.parents) if not one.exists()]
    for one in reversed(missing):
        one.mkdir(exist_ok=True)
        sync(one.parent)
    if not missing:
        path.mkdir(exist_ok=True)  # If a file is in the way, this raises.


def _sync_below(path: Path) -> None:
    if not path.is_dir():
        sync(path)
    for directory, _, names in os.walk(path):
        for name in (*names, ""):
            sync(Path(directory, name))


def sync(path: Path) -> None:
    """Make durable the content of a file, or the names in a directory."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


# --- locks ------------------------------------------------------------------------------------------------------------


def take_lock(path: Path, mode: int = 0o644) -> int:
    """Lock a file, which is made if it is not there, and return its descriptor. A process that is gone holds no lock. If somebody
    else has it, that is a BlockingIOError."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT, mode)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise
    return lock


def unlock(lock: int) -> None:
    """Explicitly: a child that was forked just now may still have the descriptor."""
    fcntl.flock(lock, fcntl.LOCK_UN)
    os.close(lock)


def is_locked(path: Path) -> bool:
    """Whether somebody holds the lock. Takes a shared lock for a moment, and creates nothing."""
    try:
        lock = os.open(path, os.O_RDONLY)
    except OSError:  # It does not exist yet, or this user may not read it.
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(lock)
    return False


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock on a file meanwhile."""
    lock = take_lock(path)
    try:
        yield
    finally:
        os.close(lock)
