"""What a worker does with a seed: the same run as in any process, an end to those that have none, a trace of those that fail."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import get_native_id

import pyarrow as pa
import pytest
from msgspec.structs import replace

from tests.archive.written import files_of_at_most
from tests.sim.sweeping import ORDER, run
from transis.sim.spark_sweep import decoded, run_apart, run_seeds
from transis.sim.sweep import CRASHED, RAN, TIMED_OUT, SeedJob, SeedRow, build_id, run_job
from transis.trace.reader import read_history
from transis.trace.segment import digest

ENDLESS = ORDER._replace(job=SeedJob(0, 128, "", groups=True))
"""It ends after a minute or two."""
DEFECTIVE = ORDER._replace(job=SeedJob(0, None, "safe_one_rotation_early", digests=True))


def test_a_seed_runs_as_in_any_process() -> None:
    row, here = run(ORDER, 3), run_job(ORDER.job._replace(seed=3))
    assert row.ran is not None
    assert row == SeedRow(build_id(), ORDER.configuration, 3, RAN, 60, "", here.replay, replace(here, wall_s=row.ran.wall_s))


def test_a_task_gives_a_row_for_every_seed_of_its_pieces() -> None:
    numbers = [pa.RecordBatch.from_pydict({"id": [1]}), pa.RecordBatch.from_pydict({"id": [0]})]
    task = partial(run_seeds, ORDER, [(4,), (9, 2)])
    rows = [decoded(batch.column("outcome")[0].as_py()) for batch in task(iter(numbers))]
    assert [(row.seed, row.outcome) for row in rows] == [(9, RAN), (2, RAN), (4, RAN)]


def test_a_seed_that_takes_too_long_is_ended() -> None:
    row = run(ENDLESS._replace(timeout_s=1), 1)
    assert (row.outcome, row.explanation, row.ran) == (TIMED_OUT, "did not end within 1 s of a processor", None)
    assert run(ORDER, 3).outcome == RAN


def test_a_simulation_that_raises_is_told_with_what_it_raised() -> None:
    row = run(ORDER._replace(job=SeedJob(0, 2, "no_such_defect")), 1)
    assert (row.outcome, row.ran) == (CRASHED, None)
    assert "no_such_defect" in row.explanation


def test_a_seed_whose_process_is_killed_takes_nobody_with_it() -> None:
    with ThreadPoolExecutor(1) as pool:
        thread = pool.submit(get_native_id).result()
        running = pool.submit(run_apart, ENDLESS, 1)
        os.kill(first_child(thread), signal.SIGKILL)
        row = decoded(running.result())
    assert row.outcome == CRASHED
    assert "signal 9" in row.explanation


def first_child(thread: int) -> int:
    children = Path(f"/proc/self/task/{thread}/children")
    while not (found := children.read_text().split()):
        pass
    return int(found[0])


def test_a_failed_seed_has_its_trace(tmp_path: Path) -> None:
    row = run(DEFECTIVE, 0)
    assert row.ran is not None
    assert row.ran.broken == ("safe_7_1",)
    for name, content in row.traces.items():
        (tmp_path / name).write_bytes(content)
    assert digest(read_history(tmp_path)) == row.ran.digest
    assert run(DEFECTIVE._replace(keep_traces=False), 0).traces == {}


def test_a_worker_without_room_for_a_trace_still_tells_the_verdict() -> None:
    with files_of_at_most(1_000):
        row = run(DEFECTIVE, 0)
    assert row.ran is not None
    assert (row.ran.broken, row.traces) == (("safe_7_1",), {})


@pytest.mark.parametrize("seed", [0])
def test_the_build_is_told(seed: int) -> None:
    version, _, digits = build_id().rpartition("-")
    assert version
    assert len(digits) == 12
    assert run(ORDER, seed).build == build_id()


def test_a_worker_needs_neither_typer_nor_rich() -> None:
    source = "import sys, transis.sim.spark_sweep; print(*{name.partition('.')[0] for name in sys.modules} & {'typer', 'rich'})"
    told = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
    assert told.stdout.split() == []
