"""Traces of real nodes: a daemon that was killed and a node in a program are read as one run of one cluster."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.daemon.running import opened_site
from tests.embed.party import Cluster, echo
from transis.spark.inputs import file_batches, find_local, seal_of
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
