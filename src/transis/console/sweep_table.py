"""The table of a sweep: a row for every seed, keyed by build, configuration and seed, in files that appear whole or not at all.

    DIR/outcomes/KEY-FIRST-UUID.parquet    a wave of seeds in order; KEY is a digest of build and configuration
    DIR/failed/KEY/seed-N/*.trace          traces of runs that failed; there before the wave that tells of them
    DIR/_lock                              held by the sweep that writes

A seed that is there twice, because a wave was written that somebody ran again, counts once: a run that ended before one that did
not, the later file before the earlier one.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from hashlib import sha256
from itertools import groupby
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import uuid4

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from transis.sim.seedrows import CRASHED, RAN, TIMED_OUT, RanRow, SeedRow
from transis.trace.files import sync
from transis.types.errors import PipelineError

KEY_DIGITS: Final = 8
FILES_OPEN: Final = 16
"""Files of which rows are kept at hand: waves overlap a little."""
UNFINISHED: Final = ".tmp"

_COUNTS: Final = pa.map_(pa.string(), pa.int64())
_VERDICT: Final = ("property", "verdict", "checked", "violations")

OUTCOMES: Final = pa.schema(
    [
        *((name, pa.string()) for name in ("build", "configuration")),
        ("seed", pa.int64()),
        ("outcome", pa.string()),
        ("timeout_s", pa.int64()),
        *((name, pa.string()) for name in ("explanation", "replay")),
        # Of a run that ended; null for the others.
        ("nodes", pa.int64()),
        (
            "verdicts",
            pa.list_(pa.struct([*((name, pa.string()) for name in _VERDICT[:2]), *((n, pa.int64()) for n in _VERDICT[2:])])),
        ),
        ("broken", pa.list_(pa.string())),
        *((name, pa.int64()) for name in ("deliveries", "views", "turns")),
        ("faults", _COUNTS),
        *((name, pa.int64()) for name in ("virtual_us", "settled_us", "budget_us")),
        ("wall_s", pa.float64()),
        *((name, _COUNTS) for name in ("events", "transitions", "fault_states", "traps", "notes", "groups")),
        ("digest", pa.string()),
    ]
)

_OF_RUNS: Final = RanRow.__struct_fields__
_MAPS: Final = frozenset(field.name for field in OUTCOMES if field.type == _COUNTS)


class _Found(NamedTuple):
    """Where a row is. The largest of a seed counts."""

    ended: bool
    modified_ns: int
    file: Path
    row: int
    outcome: str
    timeout_s: int


class SweepTable:
    """The rows of one build and configuration."""

    def __init__(self, directory: Path, build: str, configuration: str) -> None:
        self.directory = directory
        self.build = build
        self.configuration = configuration
        self.key = sha256(f"{build}\n{configuration}".encode()).hexdigest()[:KEY_DIGITS]
        self._outcomes = directory / "outcomes"
        self.failed = directory / "failed" / self.key
        self._read = lru_cache(FILES_OPEN)(_read_whole)

    @contextmanager
    def written_here(self) -> Iterator[None]:
        """Nobody else writes until this is left; what a writer left that was killed is removed."""
        with told_of_disk(self.directory):
            self._outcomes.mkdir(parents=True, exist_ok=True)
            lock = os.open(self.directory / "_lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            _hold(lock, self.directory)
            with told_of_disk(self.directory):
                for left in self._outcomes.glob(f".*{UNFINISHED}"):
                    left.unlink()
                for half in self.failed.glob(f".*{UNFINISHED}"):
                    shutil.rmtree(half)
            yield
        finally:
            os.close(lock)

    # -- reading -------------------------------------------------------------------------------------------------------

    def pending(self, seeds: range, timeout_s: int) -> list[int]:
        """Seeds that are not there; also those whose process ended early, for that may have been the machine's fault, and those
        that timed out when they were given less time."""
        found = self._index(seeds)
        return [seed for seed in seeds if not _is_settled(found.get(seed), timeout_s)]

    def rows(self, seeds: range) -> Iterator[SeedRow]:
        """In order of seeds; only those that are there."""
        found = self._index(seeds)
        in_order = ((found[seed].file, found[seed].row) for seed in sorted(found))
        for file, places in groupby(in_order, lambda place: place[0]):
            table = self._read(file).take([row for _, row in places])
            yield from map(_row_of, table.to_pylist())

    def _index(self, seeds: range) -> dict[int, _Found]:
        found: dict[int, _Found] = {}
        for file in sorted(self._outcomes.glob(f"{self.key}-*.parquet")):
            for seed, place in self._places(file, seeds):
                found[seed] = max(place, found.get(seed, place))
        return found

    def _places(self, file: Path, seeds: range) -> Iterator[tuple[int, _Found]]:
        columns = _read_columns(file, ["build", "configuration", "seed", "outcome", "timeout_s"]).to_pydict()
        modified_ns = file.stat().st_mtime_ns
        for row, (build, configuration, seed, outcome, timeout_s) in enumerate(zip(*columns.values(), strict=True)):
            if (build, configuration) == (self.build, self.configuration) and seed in seeds:
                yield seed, _Found(outcome == RAN, modified_ns, file, row, outcome, timeout_s)

    # -- writing -------------------------------------------------------------------------------------------------------

    def add(self, rows: Sequence[SeedRow], traces_max: int) -> None:
        """A wave: traces first, for at most so many seeds in all, then all rows at once."""
        in_order = sorted(rows, key=lambda row: row.seed)
        with told_of_disk(self.directory):
            for row in in_order:
                if row.traces and self.traces_kept() < traces_max:
                    self._keep_traces(row)
            self._publish(pa.Table.from_pylist([_columns_of(row) for row in in_order], OUTCOMES), in_order[0].seed)

    def _keep_traces(self, row: SeedRow) -> None:
        """They appear when they are whole. What is there of the same seed is the same."""
        self.failed.mkdir(parents=True, exist_ok=True)
        place, aside = self.failed / f"seed-{row.seed}", self.failed / f".seed-{row.seed}{UNFINISHED}"
        if place.exists():
            return
        shutil.rmtree(aside, ignore_errors=True)
        _write_files(aside, row.traces)
        aside.rename(place)
        sync(self.failed)

    def traces_kept(self) -> int:
        return len(list(self.failed.glob("seed-*")))

    def _publish(self, table: pa.Table, first: int) -> None:
        name = f"{self.key}-{first:019}-{uuid4().hex}.parquet"
        aside = self._outcomes / f".{name}{UNFINISHED}"
        try:
            pq.write_table(table, aside, compression="zstd")
            sync(aside)
            aside.rename(self._outcomes / name)
        except OSError:
            aside.unlink(missing_ok=True)
            raise
        sync(self._outcomes)


def _is_settled(found: _Found | None, timeout_s: int) -> bool:
    if found is None or found.outcome == CRASHED:
        return False
    return found.outcome != TIMED_OUT or found.timeout_s >= timeout_s


def _hold(lock: int, directory: Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise PipelineError(f"{directory} is being written by another sweep: wait for it, or give another --table") from error


@contextmanager
def told_of_disk(directory: Path) -> Iterator[None]:
    """What a disk refuses, in one sentence."""
    try:
        yield
    except OSError as error:
        raise PipelineError(f"{error.filename or directory}: it cannot be written ({error.strerror or error})") from error


def _read_whole(file: Path) -> pa.Table:
    return _read_columns(file, OUTCOMES.names)


def _read_columns(file: Path, columns: list[str]) -> pa.Table:
    try:
        return pq.read_table(file, columns=columns).select(columns)
    except (OSError, pa.ArrowException, KeyError) as error:
        raise PipelineError(f"{file} is no part of a sweep, or damaged: remove it, and its seeds are run again") from error


def _columns_of(row: SeedRow) -> dict[str, Any]:
    columns = {name: getattr(row, name) for name in SeedRow.__struct_fields__ if name not in ("ran", "traces")}
    if row.ran is None:
        return columns
    ran = {name: getattr(row.ran, name) for name in _OF_RUNS}
    maps = {name: list(ran[name].items()) for name in _MAPS}
    verdicts = [dict(zip(_VERDICT, verdict, strict=True)) for verdict in row.ran.verdicts]
    return columns | ran | maps | {"verdicts": verdicts}


def _row_of(columns: dict[str, Any]) -> SeedRow:
    ran = None
    if columns["outcome"] == RAN:
        maps = {name: dict(columns[name]) for name in _MAPS}
        verdicts = [tuple(verdict[name] for name in _VERDICT) for verdict in columns["verdicts"]]
        ran = RanRow(**{name: columns[name] for name in _OF_RUNS} | maps | {"verdicts": verdicts})
    own = {name: columns[name] for name in SeedRow.__struct_fields__ if name not in ("ran", "traces")}
    return SeedRow(**own, ran=ran)


def _write_files(directory: Path, files: dict[str, bytes]) -> None:
    directory.mkdir()
    for name, content in files.items():
        (directory / name).write_bytes(content)
        sync(directory / name)
    sync(directory)


def decoded(told: bytes) -> SeedRow:
    """What a worker said."""
    return msgspec.msgpack.decode(told, type=SeedRow)
