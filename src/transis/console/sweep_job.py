"""Seeds spread over Spark in waves, and each wave kept as it ends: whoever is killed loses two waves, and nothing else.

1. A wave is a job of Spark: tasks of a few seeds each, several for every core. Two waves are on their way at a time, so that one
   slow seed keeps no core idle but its own.
2. A worker that is lost is Spark's to replace: a seed gives the same row wherever it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from functools import partial
from typing import Final

from transis.console.sweep_table import SweepTable, decoded
from transis.console.sweep_task import COLUMNS, Order, run_seeds
from transis.pipeline.spread import Executors
from transis.sim.seedrows import SeedRow
from transis.types.errors import PipelineError

PIECE: Final = 8
"""Seeds of a task at most: some seconds."""
TASKS_PER_CORE: Final = 4
"""Of a wave: tasks differ in how long they take."""
WAVES_AT_A_TIME: Final = 2
WAVES_MIN: Final = 16
"""Of a sweep that is not tiny."""


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
    """Rows of waves as they end; the next one is on its way before the last one is looked at."""
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
    """Seeds of a wave: so many that its start costs nothing beside them, and of a small sweep so few that a kill loses little."""
    return max(cores * TASKS_PER_CORE, min(pending // WAVES_MIN, cores * TASKS_PER_CORE * PIECE))


def _run_wave(executors: Executors, order: Order, seeds: Sequence[int], cores: int) -> list[SeedRow]:
    pieces = in_pieces(seeds, cores)
    told = executors.run(partial(run_seeds, order, pieces), len(pieces), COLUMNS)
    return [decoded(outcome) for outcome in told.column("outcome").to_pylist()]


def in_pieces(seeds: Sequence[int], cores: int) -> list[Sequence[int]]:
    """For the tasks of a wave: small ones where there is little to do, so that every core has its share."""
    size = max(1, min(PIECE, -(-len(seeds) // (cores * TASKS_PER_CORE))))
    return [seeds[start : start + size] for start in range(0, len(seeds), size)]


def _require_build(rows: Sequence[SeedRow], table: SweepTable) -> None:
    for row in rows:
        if row.build != table.build:
            raise PipelineError(
                f"a worker ran seed {row.seed} with another version of transis, {row.build} and not {table.build}: "
                "remove that one from the worker's Python, this one is sent there"
            )
