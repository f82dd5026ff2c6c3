"""A lake: one directory of Parquet tables, of which a change is seen as a whole or not at all.

    DIR/lake.json                  the state: the batches of each table, and the facts that the owner keeps beside them
    DIR/TABLE/batch=N/*.parquet    the rows that change N added to a table
    DIR/_staging/                  where a change is written first
    DIR/_lock                      held by the one writer

1. A batch is written under _staging, synced, and moved to its place by one rename. Then lake.json, which names it, is replaced by
   another. Whatever ends a writer in between leaves only files that lake.json does not name; the next change removes them.
2. When a change is over, it is durable. It is made under a kernel's lock, which a process that is gone does not hold.
3. Readers need no lock: what a change drops stays on disk until the change after it.
4. Other files may stand in the directory. One that has files but no lake.json is refused: an earlier version made it, or its
   state is lost.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar
from uuid import uuid4

import msgspec
import pyarrow.parquet as pq

from transis.trace.files import beside, locked, make_directory, publish, replace_durably
from transis.types.errors import PipelineError

LAKE: Final = "lake.json"
STAGING: Final = "_staging"
LOCK: Final = "_lock"
BATCH: Final = "batch="

NO_FACTS: Final = msgspec.Raw(b"null")

Facts = TypeVar("Facts")


class LakeState(msgspec.Struct, frozen=True):
    """What counts; nothing else in the directory does."""

    change: int = 0
    """Number of the last change."""
    tables: dict[str, list[int]] = {}
    """The batches of each table, the oldest first."""
    facts: msgspec.Raw = NO_FACTS


class Lake:
    """A local directory, made when it is first written. `noun` and `option` are for sentences: what the owner calls it, and how
    another one is given."""

    def __init__(self, path: Path, noun: str, option: str) -> None:
        self.path = path.absolute()
        self._noun = f"the {noun} {self.path}"
        self._option = option
        self._is_held = False

    def state(self) -> LakeState:
        """The state on disk now."""
        try:
            return msgspec.json.decode((self.path / LAKE).read_bytes(), type=LakeState)
        except FileNotFoundError:
            self._require_nothing_else()
            return LakeState()
        except OSError as error:
            raise PipelineError(f"{self._noun} cannot be read ({error.strerror})") from error
        except msgspec.MsgspecError as error:
            raise self.damaged(error) from error

    def facts(self, state: LakeState, kind: type[Facts]) -> Facts:
        """The owner's facts; before the first change, what `kind` has by default."""
        try:
            return kind() if state.facts == NO_FACTS else msgspec.json.decode(state.facts, type=kind)
        except msgspec.MsgspecError as error:
            raise self.damaged(error) from error

    def batch_path(self, table: str, batch: int) -> Path:
        return self.path / table / f"{BATCH}{batch}"

    @contextmanager
    def held(self) -> Iterator[None]:
        """Make several changes with nobody else's between them. A second writer gets a PipelineError at once."""
        with ExitStack() as stack:
            with self.plain_disk_errors():
                if not (self.path / LAKE).exists():
                    self._require_nothing_else()
                make_directory(self.path)
                stack.enter_context(locked(self.path / LOCK))
                if not (self.path / LAKE).exists():
                    self._write(LakeState())
            self._is_held = True
            stack.callback(setattr, self, "_is_held", False)
            yield

    @contextmanager
    def change(self) -> Iterator[LakeChange]:
        """Everything done inside becomes visible at the end, or nothing does. An error inside leaves everything as it was."""
        with ExitStack() as stack:
            if not self._is_held:
                stack.enter_context(self.held())
            state = self.state()
            self._tidy(state)
            stack.callback(shutil.rmtree, self.path / STAGING, ignore_errors=True)
            change = LakeChange(self, state)
            yield change
            with self.plain_disk_errors():
                self._commit(change)

    @contextmanager
    def plain_disk_errors(self) -> Iterator[None]:
        """Report what the disk refuses in one sentence."""
        try:
            yield
        except BlockingIOError as error:
            raise PipelineError(
                f"{self._noun} is being written by somebody else: wait for it, or give another {self._option}"
            ) from error
        except OSError as error:
            raise PipelineError(f"{self._noun} cannot be written ({error.strerror or error})") from error

    def _commit(self, change: LakeChange) -> None:
        after = change.after()
        if after.tables == change.state.tables and after.facts == change.state.facts:
            return
        for table, staged in change.added.items():
            publish(staged, self.batch_path(table, change.number))
        self._write(after)

    def _write(self, state: LakeState) -> None:
        replace_durably(self.path / LAKE, msgspec.json.encode(state))

    def _tidy(self, state: LakeState) -> None:
        """Remove what an unfinished writer left, and what the last change dropped."""
        shutil.rmtree(self.path / STAGING, ignore_errors=True)
        named = {self.batch_path(table, batch) for table, batches in state.tables.items() for batch in batches}
        for path in self.path.glob(f"*/{BATCH}*"):
            if path not in named:
                shutil.rmtree(path, ignore_errors=True)

    def _require_nothing_else(self) -> None:
        """A writer that was killed before it had written anything leaves nothing that matters."""
        own = {LOCK, beside(self.path / LAKE).name}
        if self.path.is_dir() and any(one.name not in own for one in self.path.iterdir()):
            raise PipelineError(
                f"{self._noun} has files but no {LAKE}: an earlier version of transis made it, or its state is lost; "
                f"{self._remedy()}"
            )

    def damaged(self, error: Exception) -> PipelineError:
        """The error for facts that their owner cannot read."""
        return PipelineError(f"the {LAKE} of {self._noun} is damaged ({error}): {self._remedy()}")

    def _remedy(self) -> str:
        return f"give another {self._option}, or move the whole directory away to begin anew"


class LakeChange:
    """One change in the making."""

    def __init__(self, lake: Lake, state: LakeState) -> None:
        self._lake = lake
        self.state = state
        """The state before the change."""
        self.number = state.change + 1
        self.added: dict[str, Path] = {}
        self._kept = dict(state.tables)
        self._facts = state.facts

    def stage(self) -> Path:
        """The path of a fresh directory to write into; its parent is there."""
        with self._lake.plain_disk_errors():
            (self._lake.path / STAGING).mkdir(exist_ok=True)
        return self._lake.path / STAGING / uuid4().hex

    def add(self, table: str, staged: Path) -> None:
        """Add a directory of rows as a batch of a table: at most one for each table in a change."""
        assert table not in self.added, f"{table} has a batch of this change already"
        self.added[table] = staged

    def add_rows(self, table: str, rows: Any) -> None:
        """The same with an Arrow table."""
        staged = self.stage()
        with self._lake.plain_disk_errors():
            staged.mkdir()
            pq.write_table(rows, staged / "part.parquet", compression="zstd")
        self.add(table, staged)

    def replace(self, table: str, staged: Path) -> None:
        """Replace everything that the table had by these rows."""
        self.drop(table)
        self.add(table, staged)

    def drop(self, table: str, batches: Iterable[int] | None = None) -> None:
        """Drop batches that were there before the change; all of them if none are named."""
        gone = set(self._kept.get(table, []) if batches is None else batches)
        self._kept[table] = [batch for batch in self._kept.get(table, []) if batch not in gone]

    def keep(self, facts: object) -> None:
        """Replace the facts that the owner keeps beside its tables."""
        self._facts = msgspec.Raw(msgspec.json.encode(facts))

    def after(self) -> LakeState:
        tables = dict(self._kept)
        for table in self.added:
            tables[table] = [*tables.get(table, []), self.number]
        return LakeState(self.number, {name: batches for name, batches in tables.items() if batches}, self._facts)
