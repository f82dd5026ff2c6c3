"""Many seeds on Spark: spread over the workers in waves, each run in a process of its own, and kept in a table that can grow.

1. A wave is a job of Spark: tasks of a few seeds each, several for every core. Two waves are on their way at a time, so that
   one slow seed keeps no core idle but its own. Each wave is kept as it ends: a kill loses two waves, and nothing else.
2. If a worker is lost, Spark replaces it: a seed gives the same row wherever it runs.
3. A seed runs in a fork of the worker. Whatever it does there, endless loops and lost memory included, the worker lives and
   goes on with the next one, and no seed sees what another left behind.
4. The kernel ends a seed that takes too long, by alarms that its process has set: this works even if Python is stuck or the
   worker was killed. Processor time counts, so that a busy machine changes no outcome; a seed that idles for much longer than its
   limit is ended, too.
5. Neither typer nor rich is imported: workers need what simulations need, and pyarrow.

The table is a lake with a row for every seed, by build, configuration and seed:

    DIR/outcomes/batch=N/*.parquet    a wave of seeds in order; lake.json says of which build and configuration
    DIR/failed/KEY/seed-N/*.trace     traces of runs that failed, there before their wave; KEY is a digest of both

A seed may have two rows, if a wave that was written was run again. One counts: a run that ended before one that did not, then
the later wave.
"""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager
from functools import lru_cache, partial
from hashlib import sha256
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple, NoReturn

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from transis.audit.plans.lake import Lake, LakeChange
from transis.sim.run import RunOutcome
from transis.sim.sweep import CRASHED, RAN, TIMED_OUT, SeedJob, SeedResult, SeedRow, build_id, order_of, run_whole, write_trace
from transis.spark.cluster import Executors
from transis.trace.files import publish
from transis.types.errors import PipelineError

# --- sweep table ------------------------------------------------------------------------------------------------------

KEY_DIGITS: Final = 8
FILES_OPEN: Final = 16
"""Files whose rows are kept at hand, because waves overlap a little."""
TABLE: Final = "outcomes"

_COUNTS: Final = pa.map_(pa.string(), pa.int64())
_VERDICT: Final = ("property", "verdict", "checked", "violations")

OUTCOMES: Final = pa.schema(
    [
        *((name, pa.string()) for name in ("build", "configuration")),
        ("seed", pa.int64()),
        ("outcome", pa.string()),
        ("timeout_s", pa.int64()),
        *((name, pa.string()) for name in ("explanation", "replay")),
        # Null unless the run ended.
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
        *((name, _COUNTS) for name in ("events", "transitions", "fault_states", "traps", "notes", "groups", "replicas")),
        ("digest", pa.string()),
    ]
)

_OF_ROWS: Final = tuple(name for name in SeedRow.__struct_fields__ if name not in ("ran", "traces"))
_OF_RUNS: Final = tuple(name for name in SeedResult.__struct_fields__ if name not in _OF_ROWS)
_MAPS: Final = frozenset(field.name for field in OUTCOMES if field.type == _COUNTS)


class _KeptRow(NamedTuple):
    """Where a row is. If a seed has several, the largest counts."""

    ended: bool
    batch: int
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
        self.failed = directory / "failed" / self.key
        self._lake = Lake(directory, "sweep table", "--table")
        self._read = lru_cache(FILES_OPEN)(_read_whole)

    def written_here(self) -> AbstractContextManager[None]:
        """While this is held, nobody else writes."""
        return self._lake.held()

    # -- reading -------------------------------------------------------------------------------------------------------

    def pending(self, seeds: range, timeout_s: int) -> list[int]:
        """Seeds without a row; also those whose process ended early, for that may have been the machine's fault, and those that
        timed out when they were given less time."""
        found = self._index(seeds)
        return [seed for seed in seeds if not _is_settled(found.get(seed), timeout_s)]

    def rows(self, seeds: range) -> Iterator[SeedRow]:
        """In order of seeds; only those that are there."""
        found = self._index(seeds)
        in_order = ((found[seed].batch, found[seed].row) for seed in sorted(found))
        for batch, places in groupby(in_order, lambda place: place[0]):
            table = self._read(self._path(batch)).take([row for _, row in places])
            yield from map(_row_of, table.to_pylist())

    def _index(self, seeds: range) -> dict[int, _KeptRow]:
        found: dict[int, _KeptRow] = {}
        for batch, key in self._lake.facts(self._lake.state(), dict[int, str]).items():
            for seed, place in self._places(batch, seeds) if key == self.key and self._path(batch).exists() else ():
                found[seed] = max(place, found.get(seed, place))
        return found

    def _places(self, batch: int, seeds: range) -> Iterator[tuple[int, _KeptRow]]:
        columns = _read_columns(self._path(batch), ["build", "configuration", "seed", "outcome", "timeout_s"]).to_pydict()
        for row, (build, configuration, seed, outcome, timeout_s) in enumerate(zip(*columns.values(), strict=True)):
            if (build, configuration) == (self.build, self.configuration) and seed in seeds:
                yield seed, _KeptRow(outcome == RAN, batch, row, outcome, timeout_s)

    def _path(self, batch: int) -> Path:
        return self._lake.batch_path(TABLE, batch)

    # -- writing -------------------------------------------------------------------------------------------------------

    def add(self, rows: Sequence[SeedRow], traces_max: int) -> None:
        """A wave: traces first, for at most so many seeds in all, then all rows at once."""
        in_order = sorted(rows, key=lambda row: row.seed)
        with self._lake.change() as change:
            for row in in_order:
                if row.traces and self.traces_kept() < traces_max:
                    self._keep_traces(change, row)
            change.add_rows(TABLE, pa.Table.from_pylist([_columns_of(row) for row in in_order], OUTCOMES))
            change.keep(self._lake.facts(change.state, dict[int, str]) | {change.number: self.key})

    def _keep_traces(self, change: LakeChange, row: SeedRow) -> None:
        """Traces appear only when they are whole. If a seed has some already, they are the same and stay."""
        place, staged = self.failed / f"seed-{row.seed}", change.stage()
        if place.exists():
            return
        with self._lake.plain_disk_errors():
            staged.mkdir()
            for name, content in row.traces.items():
                (staged / name).write_bytes(content)
            publish(staged, place)

    def traces_kept(self) -> int:
        return len(list(self.failed.glob("seed-*")))


def _is_settled(found: _KeptRow | None, timeout_s: int) -> bool:
    if found is None or found.outcome == CRASHED:
        return False
    return found.outcome != TIMED_OUT or found.timeout_s >= timeout_s


def _read_whole(batch: Path) -> pa.Table:
    return _read_columns(batch, OUTCOMES.names)


def _read_columns(batch: Path, columns: list[str]) -> pa.Table:
    try:
        return pq.read_table(batch, columns=columns, partitioning=None).select(columns)
    except (OSError, pa.ArrowException, KeyError) as error:
        raise PipelineError(f"{batch} is no part of a sweep, or damaged: remove it, and its seeds are run again") from error


def _columns_of(row: SeedRow) -> dict[str, Any]:
    columns = {name: getattr(row, name) for name in _OF_ROWS}
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
        verdicts = tuple(tuple(verdict[name] for name in _VERDICT) for verdict in columns["verdicts"])
        more = {"verdicts": verdicts, "broken": tuple(columns["broken"])}
        ran = SeedResult(**{name: columns[name] for name in SeedResult.__struct_fields__} | maps | more)
    return SeedRow(**{name: columns[name] for name in _OF_ROWS}, ran=ran)


def decoded(encoded: bytes) -> SeedRow:
    """The row that a worker sent."""
    return msgspec.msgpack.decode(encoded, type=SeedRow)


# --- sweep task -------------------------------------------------------------------------------------------------------

COLUMNS: Final = "seed long, outcome binary"
"""What comes back to the driver: a `SeedRow` as msgpack, by the process that ran the seed."""
TRACE_BYTES_MAX: Final = 16 << 20
"""A larger trace is not sent: whoever wants it replays the seed."""

ALARMS: Final = ((signal.SIGPROF, signal.ITIMER_PROF, 1), (signal.SIGALRM, signal.ITIMER_REAL, 20))
"""Signal, timer, and its length as a multiple of the time that a seed is given."""

_BATCH: Final = pa.schema([("seed", pa.int64()), ("outcome", pa.binary())])


class Order(NamedTuple):
    """What is asked of every seed."""

    configuration: str
    """The options as `transis simulate` has them."""
    job: SeedJob
    """Its seed does not matter."""
    timeout_s: int
    keep_traces: bool = True
    """Whether traces of failed runs are kept."""


def run_seeds(order: Order, pieces: Sequence[Sequence[int]], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """One Spark task: numbers of pieces come in, and a row for each of their seeds goes out as soon as it has ended."""
    for batch in batches:
        for piece in batch.column(0).to_pylist():
            for seed in pieces[piece]:
                yield pa.RecordBatch.from_pydict({"seed": [seed], "outcome": [run_apart(order, seed)]}, _BATCH)


def run_apart(order: Order, seed: int) -> bytes:
    """The encoded row of one seed, which was run in a process of its own."""
    reading, writing = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(reading)
        _be_the_seed(order, seed, writing)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        encoded = pipe.read()
    _, status = os.waitpid(process, 0)
    return encoded if status == 0 else msgspec.msgpack.encode(_ended_early(order, seed, status))


def _be_the_seed(order: Order, seed: int, writing: int) -> NoReturn:
    """Runs in the fork and never returns, so that what the worker does at its own end is not done here."""
    code = 1
    try:
        for number, timer, seconds in ALARMS:
            signal.signal(number, signal.SIG_DFL)
            signal.setitimer(timer, seconds * order.timeout_s)
        encoded = msgspec.msgpack.encode(_run(order, seed))
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(encoded)
        code = 0
    finally:
        os._exit(code)


def _run(order: Order, seed: int) -> SeedRow:
    try:
        outcome, result = run_whole(order.job._replace(seed=seed))
        traces = _traces(outcome, order) if result.broken and order.keep_traces else {}
    except Exception:
        return _row(order, seed, CRASHED, f"the simulation itself failed: {traceback.format_exc(limit=-3).strip()}")
    row = _row(order, seed, RAN, result.explanation)
    return msgspec.structs.replace(row, replay=result.replay, ran=result, traces=traces)


def _traces(outcome: RunOutcome, order: Order) -> dict[str, bytes]:
    """The files of a failed run's trace, unless they are too large together or the worker has no room for them."""
    try:
        with TemporaryDirectory(prefix="transis-seed-") as directory:
            write_trace(outcome.history, Path(directory), f"seed {outcome.seed}", order_of(order.job.scenario))
            files = {file.name: file.read_bytes() for file in sorted(Path(directory).iterdir())}
    except OSError:
        return {}
    return files if sum(map(len, files.values())) <= TRACE_BYTES_MAX else {}


def _ended_early(order: Order, seed: int, status: int) -> SeedRow:
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) in [number for number, _, _ in ALARMS]:
        return _row(order, seed, TIMED_OUT, f"did not end within {order.timeout_s} s of a processor")
    how = f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"exit code {os.waitstatus_to_exitcode(status)}"
    return _row(order, seed, CRASHED, f"its process ended with {how}: was there too little memory?")


def _row(order: Order, seed: int, outcome: str, explanation: str) -> SeedRow:
    replay = f"transis simulate {order.configuration} --seed {seed}"
    return SeedRow(build_id(), order.configuration, seed, outcome, order.timeout_s, explanation, replay)


# --- sweep job --------------------------------------------------------------------------------------------------------

PIECE: Final = 8
"""The most seeds in a task: a few seconds of work."""
TASKS_PER_CORE: Final = 4
"""In a wave: more than one, because tasks differ in how long they take."""
WAVES_AT_A_TIME: Final = 2
WAVES_MIN: Final = 16
"""The fewest waves of a sweep that is not tiny."""


def run_pending(
    executors: Executors,
    order: Order,
    table: SweepTable,
    pending: Sequence[int],
    traces_max: int,
    tell: Callable[[SeedRow], None],
) -> None:
    """Run these seeds and keep their rows."""
    pool = ThreadPoolExecutor(WAVES_AT_A_TIME, "wave")
    try:
        for rows in _in_waves(pool, executors, order, table, pending, traces_max):
            _require_build(rows, table)
            table.add(rows, traces_max)
            for row in rows:
                tell(row)
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)  # Its jobs end with the session.
        raise
    pool.shutdown()


def _in_waves(
    pool: ThreadPoolExecutor, executors: Executors, order: Order, table: SweepTable, pending: Sequence[int], traces_max: int
) -> Iterator[list[SeedRow]]:
    """The rows of each wave as it ends; the next wave is on its way before these are used."""
    running: set[Future[list[SeedRow]]] = set()
    begun = 0
    while running or begun < len(pending):
        while begun < len(pending) and len(running) < WAVES_AT_A_TIME:
            wanted = pending[begun : begun + wave_of(len(pending), executors.cores)]
            begun += len(wanted)
            needed = order._replace(keep_traces=table.traces_kept() < traces_max)
            running.add(pool.submit(_run_wave, executors, needed, wanted, executors.cores))
        ended, running = wait(running, return_when=FIRST_COMPLETED)
        for one in ended:
            yield one.result()


def wave_of(pending: int, cores: int) -> int:
    """Seeds in a wave: so many that its start hardly counts, but in a small sweep so few that a kill loses little."""
    return max(cores * TASKS_PER_CORE, min(pending // WAVES_MIN, cores * TASKS_PER_CORE * PIECE))


def _run_wave(executors: Executors, order: Order, seeds: Sequence[int], cores: int) -> list[SeedRow]:
    pieces = in_pieces(seeds, cores)
    encoded = executors.run(partial(run_seeds, order, pieces), len(pieces), COLUMNS)
    return [decoded(outcome) for outcome in encoded.column("outcome").to_pylist()]


def in_pieces(seeds: Sequence[int], cores: int) -> list[Sequence[int]]:
    """The seeds for each task of a wave: few where there is little to do, so that every core gets a share."""
    size = max(1, min(PIECE, -(-len(seeds) // (cores * TASKS_PER_CORE))))
    return [seeds[start : start + size] for start in range(0, len(seeds), size)]


def _require_build(rows: Sequence[SeedRow], table: SweepTable) -> None:
    for row in rows:
        if row.build != table.build:
            raise PipelineError(
                f"a worker ran seed {row.seed} with another version of transis, {row.build} and not {table.build}: "
                "remove that one from the worker's Python, this one is sent there"
            )
