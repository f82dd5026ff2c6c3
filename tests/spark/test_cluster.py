"""The same session on a real cluster: work is done by the workers, with our package brought along, and an audit says there what
it says here."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.audit.contents import wounded
from tests.audit.written import write_traces
from tests.guarantees.oracle import good_history
from tests.spark.cluster import spark_environment, spark_submit
from tests.spark.programs import left_behind, program_environment, run_program
from transis.audit.guarantees import check
from transis.audit.job import BAD
from transis.spark.cluster import write_job
from transis.trace.events import History

pytestmark = pytest.mark.slow

AUDIT_S = 900
"""Longer than an audit on two small workers takes, even on a machine that does a lot besides."""

ONLY = ("total_order_6_1", "safe_7_1", "every_submit_accounted", "group_order")
"""One of each kind, for every one of them takes a cluster as long as it takes one machine."""

JOB = """
import os
import pyarrow as pa
from pyspark.sql import functions as F
from transis.spark.session import spark_session

def places(batches):
    import transis.trace.reader as reader
    for batch in batches:
        yield pa.RecordBatch.from_pydict({{"cwd": [os.getcwd()], "package": [reader.__file__], "rows": [batch.num_rows]}})

with spark_session({master!r}) as session:
    numbers = session.range(0, 100_000, 1, 4)
    by_rest = numbers.groupBy((F.col("id") % 7).alias("rest")).agg(F.sum("id").alias("sum")).orderBy("rest").collect()
    print([row.sum for row in by_rest])
    seen = numbers.mapInArrow(places, "cwd string, package string, rows long").collect()
    print(sum(row.rows for row in seen))
    for row in seen:
        print(row.cwd, row.package)
"""


def test_a_job_runs_on_the_workers_with_our_package(standalone_cluster: str, tmp_path: Path) -> None:
    code, out, errors = run_program(JOB.format(master=standalone_cluster), tmp_path)
    assert (code, errors) == (0, "")
    sums, rows, *places = out.splitlines()
    assert sums == str([sum(range(rest, 100_000, 7)) for rest in range(7)])
    assert rows == "100000"
    assert [place for place in places if not re.search(r"/worker-[01]/app-\S+ .*/transis-job\.zip/", place)] == []
    assert left_behind(tmp_path) == []


@pytest.fixture(scope="module")
def history() -> History:
    """Small and broken, so that violations can be compared, too."""
    return wounded(good_history(5, steps=100), "swapped_deliveries")


@pytest.fixture(scope="module")
def traces(history: History, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("traces")
    write_traces(directory, history)
    return directory


@pytest.fixture(scope="module")
def said(standalone_cluster: str, traces: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """By the command, on the cluster."""
    place = tmp_path_factory.mktemp("there")
    command = [sys.executable, "-m", "transis", "audit", str(traces), "--master", standalone_cluster, "--json"]
    command += [word for name in ONLY for word in ("--only", name)]
    code, said, errors = _ended(command, program_environment(place), place)
    assert (code, errors) == (BAD, "")
    assert [path.name for path in (place / "tmp").iterdir()] == []
    return said


def test_an_audit_on_the_cluster_says_what_the_checkers_say(history: History, said: dict[str, Any]) -> None:
    """As audits here do, which test_messages.py and its like compare with them."""
    checkers = {name: verdict for name, verdict in check(history).verdicts.items() if name in ONLY}
    judged = {name: one for name, one in said["properties"].items() if name in checkers}
    assert {name: one["verdict"] for name, one in judged.items()} == {name: checkers[name].verdict for name in judged}
    assert {name for name in ONLY if not name.startswith("group_")} <= judged.keys()
    broken = {name for name, verdict in checkers.items() if verdict.count}
    assert broken
    assert {name for name, one in judged.items() if one["violations"]} == broken
    assert {one["property"] for one in said["violations"]} & judged.keys() == broken


def test_the_packaged_job_says_it_too(standalone_cluster: str, traces: Path, said: dict[str, Any], tmp_path: Path) -> None:
    archive, entry = write_job(tmp_path / "job")
    command = [*spark_submit(standalone_cluster), "--py-files", str(archive), str(entry), str(traces), "--only", ONLY[0]]
    code, said_too, _ = _ended(command, spark_environment() | {"TMPDIR": str(tmp_path)}, tmp_path)
    assert code == BAD
    assert said_too["properties"][ONLY[0]] == said["properties"][ONLY[0]]
    assert said_too["evidence"] == said["evidence"]
    violations = [[one for one in each["violations"] if one["property"] == ONLY[0]] for each in (said, said_too)]
    assert violations[0] == violations[1] != []


def _ended(command: list[str], env: dict[str, str], directory: Path) -> tuple[int, dict[str, Any], str]:
    """The exit code of an audit, what it said as JSON, and what went to stderr."""
    ended = subprocess.run(command, capture_output=True, text=True, env=env, cwd=directory, timeout=AUDIT_S, check=False)
    assert ended.stdout, ended.stderr
    return ended.returncode, _without_times(json.loads(ended.stdout)), ended.stderr


def _without_times(said: dict[str, Any]) -> dict[str, Any]:
    """As JSON has it, and without how long each step took."""
    known: dict[str, Any] = json.loads(json.dumps(said))
    return {name: value for name, value in known.items() if name != "steps"}
