"""A node that was killed: with its end written by who saw it, what it owed is void; without, it is pending for ever."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.audit.frames import events_of_files
from tests.audit.written import open_trace, record, write_traces
from tests.guarantees.oracle import good_history
from transis.audit.plans import evidence as quality
from transis.audit.plans.lay import HistoryTables, Tables, lay_out
from transis.spark.inputs import checkpointed
from transis.trace.events import Conf
from transis.trace.recovery import record_end
from transis.trace.tables import RunKeys

HISTORY = good_history(5, steps=100)
KILLED = HISTORY.nodes[0]
SILENT, TOLD = "silent", "told"


def _killed_in_the_middle(directory: Path, run: str) -> None:
    """All live on but one, which is cut off soon after it came."""
    write_traces(directory, HISTORY._replace(nodes=HISTORY.nodes[1:]), run, closed=False)
    first = next(place for place, event in enumerate(KILLED.events) if isinstance(event, Conf))
    writer = open_trace(directory, KILLED, run)
    record(writer, KILLED, 0, first + 3)
    writer.release()


@pytest.fixture(scope="module")
def laid(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> HistoryTables:
    root = tmp_path_factory.mktemp("killed")
    for run in (SILENT, TOLD):
        _killed_in_the_middle(root / run, run)
    assert record_end(root / TOLD, KILLED.node, "failed")
    return lay_out(Tables(checkpointed(events_of_files(spark, [root], tmp_path_factory.mktemp("tables")))), checkpointed)


def _of(rows: DataFrame, run: str) -> DataFrame:
    keys = RunKeys("test", run)
    return rows.where((F.col("run") == keys.run) & (F.col("node") == keys.node(KILLED.node)))


@pytest.mark.parametrize(("run", "duty", "ended"), [(SILENT, "pending", ""), (TOLD, "void", "failed")])
def test_what_the_dead_owed_is_void_once_somebody_says_that_they_are_dead(
    laid: HistoryTables, run: str, duty: str, ended: str
) -> None:
    assert [row.duty for row in _of(laid.stays, run).orderBy(F.desc("stay_no")).collect()][:1] == [duty]
    assert [row.ended for row in _of(laid.lives, run).collect()] == [ended]


def test_nothing_is_wrong_with_evidence_that_ends_in_an_obituary(laid: HistoryTables) -> None:
    found = quality.check(laid).broken.unionByName(quality.reasons(laid)).select("run", "explanation").collect()
    sentences = {run: [row.explanation for row in found if row.run == RunKeys("test", run).run] for run in (SILENT, TOLD)}
    assert sentences[TOLD] == []
    assert [f"not sealed: {KILLED.node} still writes" in one for one in sentences[SILENT]] == [True]
