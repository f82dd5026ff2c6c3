"""The ledger of a store: what is in it, and how more gets into it so that a reader sees all of a change or nothing of it.

    STORE/_log/00000001.json ...   one entry a change; a store holds what the entries, taken together, name
    STORE/_staging/                where a change is written first
    STORE/events/batch=N           kept events
    STORE/tables/NAME/version=N    tables made of them, the latest version of each

1. A directory is written under _staging, moved to its place by one rename, then named by an entry that is itself renamed into the
   log. Whatever ends a writer in between leaves only things that no entry names; the next writer removes them.
2. One writer at a time: the lock is a kernel's, so a writer that is gone has none. What a change replaces stays on disk until the
   change after it, for somebody may be reading.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from uuid import uuid4

import msgspec

from transis.types.errors import PipelineError

LOG: Final = "_log"
STAGING: Final = "_staging"
LOCK: Final = "_lock"
EVENTS_PART: Final = "events"
TABLES_PART: Final = "tables"


class KeptFile(msgspec.Struct, frozen=True):
    """A file whose events are in a batch, as it was when it was read."""

    path: str
    length: int
    modified_us: int
    seal: str
    batch: int


class Dropped(msgspec.Struct, frozen=True):
    """Rows of a batch that do not count any more, for their file was read again: all of this segment."""

    batch: int
    file: str
    node: int | None
    segment: int | None


class Published(msgspec.Struct, frozen=True):
    """A version of a table, with the schema of its columns as Spark writes it."""

    version: int
    schema: str


class Entry(msgspec.Struct, frozen=True):
    """One change."""

    batch: int | None = None
    """A batch that is new."""
    files: list[KeptFile] = []
    dropped: list[Dropped] = []
    merged: list[int] = []
    """Batches whose rows are all in the new one."""
    tables: dict[str, Published] = {}
    withdrawn: list[str] = []
    past: list[int] | None = None
    """All batches that are past now (past.py): they are made one among themselves only. None if that did not change."""


class State:
    """What all entries say together."""

    def __init__(self) -> None:
        self.entries = 0
        self.batches: list[int] = []
        self.files: dict[str, KeptFile] = {}
        self.dropped: list[Dropped] = []
        self.tables: dict[str, Published] = {}
        self.past: set[int] = set()
        self.highest = 0

    def apply(self, entry: Entry) -> None:
        self.entries += 1
        merged = set(entry.merged)
        self.batches = [batch for batch in self.batches if batch not in merged]
        self.dropped = [one for one in [*self.dropped, *entry.dropped] if one.batch not in merged]
        if entry.batch is not None:
            self.batches.append(entry.batch)
            moved = [file for file in self.files.values() if file.batch in merged]
            self.files |= {file.path: msgspec.structs.replace(file, batch=entry.batch) for file in moved}
        self.files |= {file.path: file for file in entry.files}
        self.tables = {name: one for name, one in self.tables.items() if name not in entry.withdrawn} | entry.tables
        if entry.past is not None:
            self.past = set(entry.past)
        if entry.batch is not None and merged and merged <= self.past:
            self.past = self.past - merged | {entry.batch}
        used = [entry.batch or 0, *(one.version for one in entry.tables.values())]
        self.highest = max(self.highest, *used)


class Ledger:
    """The ledger of the store in one local directory, which is made when something is first written."""

    def __init__(self, path: Path) -> None:
        self.path = Path(os.path.abspath(path))

    def state(self) -> State:
        """As it is on disk now."""
        state = State()
        while (entry := self._entry(state.entries + 1)) is not None:
            state.apply(entry)
        return state

    def batch_path(self, batch: int) -> Path:
        return self.path / EVENTS_PART / f"batch={batch}"

    def table_path(self, name: str, version: int) -> Path:
        return self.path / TABLES_PART / name / f"version={version}"

    @contextmanager
    def writing(self) -> Iterator[Writing]:
        """For one change. A second writer gets a PipelineError at once."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise PipelineError(f"the store {self.path} cannot be written ({error.strerror})") from error
        try:
            self._hold(lock)
            state = self.state()
            self._tidy(state)
            yield Writing(self, state)
            shutil.rmtree(self.path / STAGING, ignore_errors=True)
        finally:
            os.close(lock)

    def _hold(self, lock: int) -> None:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise PipelineError(
                f"the store {self.path} is being written by somebody else; try again when that is done"
            ) from error

    def _entry(self, number: int) -> Entry | None:
        try:
            content = self._entry_path(number).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise PipelineError(f"the store {self.path} cannot be read ({error.strerror})") from error
        try:
            return msgspec.json.decode(content, type=Entry)
        except msgspec.MsgspecError as error:
            raise PipelineError(f"the store {self.path} is damaged: entry {number} of its log is no entry ({error})") from error

    def _entry_path(self, number: int) -> Path:
        return self.path / LOG / f"{number:08d}.json"

    def _tidy(self, state: State) -> None:
        """Remove what no entry names: what a writer left that did not finish, and what the last change replaced."""
        shutil.rmtree(self.path / STAGING, ignore_errors=True)
        named = {self.batch_path(batch) for batch in state.batches}
        named |= {self.table_path(name, one.version) for name, one in state.tables.items()}
        found = [*(self.path / EVENTS_PART).glob("batch=*"), *(self.path / TABLES_PART).glob("*/version=*")]
        for path in found:
            if path not in named:
                shutil.rmtree(path, ignore_errors=True)


class Writing:
    """One change in the making."""

    def __init__(self, ledger: Ledger, state: State) -> None:
        self.ledger = ledger
        self.state = state
        self.number = state.highest + 1
        """For a new batch or version: never used before."""

    def stage(self) -> Path:
        """A fresh directory to write into; its parent is there."""
        parent = self.ledger.path / STAGING
        parent.mkdir(parents=True, exist_ok=True)
        return parent / uuid4().hex

    def publish(self, moves: dict[Path, Path], entry: Entry) -> None:
        """Put what was staged in its place and say so."""
        try:
            for source, target in moves.items():
                target.parent.mkdir(parents=True, exist_ok=True)
                os.rename(source, target)
            self._write(entry)
        except OSError as error:
            raise PipelineError(f"the store {self.ledger.path} cannot be written ({error.strerror})") from error

    def _write(self, entry: Entry) -> None:
        target = self.ledger._entry_path(self.state.entries + 1)
        target.parent.mkdir(parents=True, exist_ok=True)
        written = self.stage()
        written.write_bytes(msgspec.json.encode(entry))
        os.rename(written, target)
