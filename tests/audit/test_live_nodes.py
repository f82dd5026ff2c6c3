"""Traces of real nodes: a daemon that was killed and a node in a program are read as one run of one cluster, and a crash that was
followed by a restart audits clean."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.daemon.running import opened_site
from tests.embed.party import Cluster, echo
from transis.audit.guarantees.property import HELD, NOT_EXERCISED
from transis.audit.job import AuditRequest, audit
from transis.audit.report.verdicts import verdicts_by_run
from transis.spark.inputs import file_batches, find_local, seal_of
from transis.spark.progress import StepTimer
from transis.trace.events import End
from transis.trace.reader import read_trace
from transis.trace.segment import LIVE_RUN


def test_daemons_and_embedded_nodes_are_in_one_run(tmp_path: Path) -> None:
    async def embedded() -> None:
        async with Cluster(tmp_path).node("bob", trace=tmp_path / "traces") as bob, bob.connect() as session:
            await echo(session)

    with opened_site() as site:
        daemon = site.start("ann", trace=f'directory = "{tmp_path}/traces"\n').ready()
        daemon.process.kill()
        daemon.ended()
    asyncio.run(embedded())
    files = find_local(str(tmp_path / "traces"))
    batches = [batch for file in files for kind, batch in file_batches(file.path, file.length) if kind == "segments"]
    segments = [row for batch in batches for row in batch.to_pylist()]
    assert [(row["run_name"], row["trouble"]) for row in segments] == [(LIVE_RUN, None)] * 2
    assert [seal_of(file) is None for file in files] == [True, False]
    assert all(row["events"] > 0 for row in segments)


@pytest.mark.slow
def test_a_kill_and_a_restart_audit_clean(spark: SparkSession, tmp_path: Path) -> None:
    """The commonest crash: the next life records the end of the one before, and nothing is broken or left open."""
    with opened_site() as site:
        trace = f'directory = "{tmp_path}"\n'
        daemons = {name: site.start(name, trace=trace).ready() for name in ("ann", "bob")}
        daemons["ann"].sees("ann", "bob")
        assert site.run("send", "g", "before", "--socket", str(daemons["bob"].clients)).returncode == 0
        daemons["bob"].signal(signal.SIGKILL)
        daemons["bob"].ended()
        daemons["bob"] = site.start("bob", trace=trace).ready()
        daemons["bob"].sees("ann", "bob")
        assert site.run("send", "g", "after", "--socket", str(daemons["bob"].clients)).returncode == 0
        for daemon in daemons.values():
            daemon.signal(signal.SIGTERM)
            assert daemon.ended()[0] == 0
    reading = read_trace(tmp_path)
    assert reading.findings == []
    ends = {str(node): events[-1] for node, events in reading.history.nodes}
    assert {life: end.how for life, end in ends.items() if isinstance(end, End)} == {
        "ann/1": "stopped",
        "bob/1": "failed",
        "bob/2": "stopped",
    }
    verdicts = verdicts_by_run(audit(AuditRequest((str(tmp_path),)), StepTimer()))[LIVE_RUN]
    assert set(verdicts.values()) <= {HELD, NOT_EXERCISED}, verdicts
    assert verdicts["incarnations_never_overlap"] == HELD
