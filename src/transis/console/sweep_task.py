"""What a worker of a sweep does: it runs seeds, each in a process of its own, and says of each how it ended.

1. A seed runs in a fork of the worker. Whatever it does there, endless loops and lost memory included, the worker lives and goes
   on with the next one, and no seed sees what another left behind.
2. The kernel ends a seed that takes too long, by the alarms that it set for itself: nothing of Python has to work for that. So a
   seed also ends when its worker was killed. Counted is the time of the processor, so that a busy machine changes no outcome;
   a seed that does nothing for much longer than that is ended, too.
3. No typer, no rich: workers need what simulations need, and pyarrow.
"""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple, NoReturn

import msgspec
import pyarrow as pa

from transis.console.run_traces import order_of, write_trace
from transis.console.sweep_build import build_id
from transis.sim.run import Outcome
from transis.sim.seedrows import CRASHED, RAN, TIMED_OUT, SeedRow, ran_row
from transis.sim.sweep import Job, run_whole

COLUMNS: Final = "seed long, outcome binary"
"""What comes back to the driver: a `SeedRow` as msgpack, by the process that ran the seed."""
TRACE_BYTES_MAX: Final = 16 << 20
"""A larger trace is not sent: whoever wants it replays the seed."""

ALARMS: Final = ((signal.SIGPROF, signal.ITIMER_PROF, 1), (signal.SIGALRM, signal.ITIMER_REAL, 20))
"""Signal, timer, and how many times what a seed is given."""

_BATCH: Final = pa.schema([("seed", pa.int64()), ("outcome", pa.binary())])


class Order(NamedTuple):
    """What is wanted of every seed."""

    configuration: str
    """The options as `transis simulate` has them."""
    job: Job
    """Its seed does not matter."""
    timeout_s: int
    keep_traces: bool = True
    """Of runs that failed."""


def run_seeds(order: Order, pieces: Sequence[Sequence[int]], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """One task of Spark: numbers of pieces in, a row for every seed of them out, as soon as it ended."""
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
        told = pipe.read()
    _, status = os.waitpid(process, 0)
    return told if status == 0 else msgspec.msgpack.encode(_ended_early(order, seed, status))


def _be_the_seed(order: Order, seed: int, writing: int) -> NoReturn:
    """Runs in the fork, and never returns: what the worker would do at its end is not ours to do."""
    code = 1
    try:
        for number, timer, seconds in ALARMS:
            signal.signal(number, signal.SIG_DFL)
            signal.setitimer(timer, seconds * order.timeout_s)
        told = msgspec.msgpack.encode(_run(order, seed))
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(told)
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
    return msgspec.structs.replace(row, replay=result.replay, ran=ran_row(result), traces=traces)


def _traces(outcome: Outcome, order: Order) -> dict[str, bytes]:
    """The files of a failed run's trace, unless they are too large together or the worker has no room for them."""
    try:
        with TemporaryDirectory(prefix="transis-seed-") as directory:
            write_trace(outcome.history, Path(directory), f"seed {outcome.seed}", order_of(order.job.tried))
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
