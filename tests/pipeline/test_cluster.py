"""The same session on a real cluster: work is done by the workers, with our package brought along."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.pipeline.programs import left_behind, run_program

pytestmark = pytest.mark.slow

JOB = """
import os
import pyarrow as pa
from pyspark.sql import functions as F
from transis.pipeline.session import spark_session

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
