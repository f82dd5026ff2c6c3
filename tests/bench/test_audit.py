"""The benchmarks of the pipeline: plans A and B in two engines agree, and an audit is watched with all that it starts."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from bench.audit import GIB, Watched, generated, require_held, watch, with_growth
from bench.duckdb_plans import by_duckdb, by_spark, kept_tables
from bench.trace_plan import Shape
from bench.traces import write_trace
from transis.audit.guarantees.property import BROKEN, HELD
from transis.audit.plans.lay import Tables, lay_out
from transis.audit.plans.store import EventStore
from transis.spark.inputs import checkpointed

SMALL = Shape(6_000, nodes=4, views=5, run_length=2)

PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
child.stdout.readline()
try:
    child.wait(1)
except subprocess.TimeoutExpired:
    child.communicate(b"enough")
"""

LARGE_CHILD = "content = bytearray(300 << 20); print('large', flush=True); input()"
BUSY_CHILD = "import time\nwhile time.process_time() < 1.6: pass\nprint('busy', flush=True); input()"
"""Each says so when it is, and waits."""


def test_both_engines_find_the_same(spark: SparkSession, tmp_path: Path) -> None:
    runs = [SMALL, SMALL._replace(seed=2, broken="swap"), SMALL._replace(seed=3, broken="creation")]
    for shape in runs:
        write_trace(tmp_path / "traces" / str(shape.seed), shape)
    with EventStore(spark, tmp_path / "store") as store:
        store.add([tmp_path / "traces"])
        of_spark = by_spark(lay_out(Tables(store.events()), checkpointed))
    of_duckdb = by_duckdb(kept_tables(tmp_path / "store"))
    assert of_spark == of_duckdb
    assert of_spark.positions > 1_000
    assert 0 < len(of_spark.ends) < len(runs) * SMALL.views


def test_the_memory_of_children_counts() -> None:
    watched = watch([sys.executable, "-c", PARENT, LARGE_CHILD])
    assert watched.code == 0
    assert 300 << 20 < watched.peak_bytes < GIB


def test_the_processor_time_of_children_counts() -> None:
    """The child takes a little more: the kernel tells it in hundredths, rounded down for each process."""
    assert 1.5 <= watch([sys.executable, "-c", PARENT, BUSY_CHILD]).cpu_s < 6


def test_a_trace_is_generated_once_and_what_was_left_of_half_a_one_is_not_used(tmp_path: Path) -> None:
    half = tmp_path / "trace-5000" / "half.trace"
    half.parent.mkdir()
    half.touch()
    first = generated(tmp_path, 5_000)
    assert not half.exists()
    made = {path: path.stat().st_mtime_ns for path in first.directory.iterdir()}
    assert generated(tmp_path, 5_000) == first
    assert {path: path.stat().st_mtime_ns for path in first.directory.iterdir()} == made


@pytest.mark.parametrize(
    ("verdict", "not_exercised", "code"), [(BROKEN, [], 0), (HELD, ["fifo"], 0), (HELD, [], 1)], ids=["broken", "idle", "failed"]
)
def test_an_audit_that_did_not_find_everything_held_is_no_measurement(verdict: str, not_exercised: list[str], code: int) -> None:
    output = json.dumps({"properties": {"safe_7_1": {"verdict": verdict}}, "not_exercised": not_exercised})
    with pytest.raises(SystemExit):
        require_held(Watched(code, output, 1.0, 1.0, 1))


def test_growth_is_told_against_the_size_before() -> None:
    grown = with_growth([{"deliveries": 100, "audit_s": 2.0, "cpu_s": 3.0}, {"deliveries": 1000, "audit_s": 10.0, "cpu_s": 9.0}])
    assert "times_larger" not in grown[0]
    assert (grown[1]["times_larger"], grown[1]["times_slower"], grown[1]["times_cpu"]) == (10, 5, 3)
