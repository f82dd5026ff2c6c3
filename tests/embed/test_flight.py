"""Nodes with their flight recorders: digests that agree, ring files that are exported, checkpoints of applications."""

from __future__ import annotations

import asyncio
from hashlib import sha256
from pathlib import Path

import transis
from tests.embed.party import PATIENCE_S, Cluster, together
from transis.audit.guarantees import check, check_groups
from transis.audit.guarantees.property import HELD
from transis.net.evidence import FLIGHT
from transis.trace.events import Conf, Delivery, End, Event, History, NodeTrace, Prefix
from transis.trace.export import ExportRequest, export_wanted
from transis.trace.reader import read_history, read_segment
from transis.trace.segment import DIGESTS

MESSAGES = 700


async def replicate(session: transis.Session[bytes]) -> None:
    """A replica whose state is a hash of all that it got; at every hundredth message it says so."""
    async with asyncio.timeout(PATIENCE_S), session.join("order") as group:
        async for event in group:
            if isinstance(event, transis.View) and len(event.members) == 2:
                break
        await group.send_many([b"%d" % number for number in range(MESSAGES)])
        state, taken = sha256(), 0
        async for event in group:
            if isinstance(event, transis.Message):
                state.update(event.data)
                taken += 1
                if group.is_due(100):
                    group.checkpoint(state.digest())
                if taken == 2 * MESSAGES:
                    await session.statistics()  # An answer behind the checkpoints: the node has them.
                    return


def sealed(directory: Path) -> NodeTrace:
    segments = [read_segment(path) for path in sorted(directory.glob(f"*{DIGESTS.suffix}"))]
    events: list[Event] = [event for segment in segments for event in segment.events]
    return NodeTrace(segments[0].header.node, events)


def test_digests_agree_ring_files_are_exported_and_replicas_are_heard(tmp_path: Path, engine: str) -> None:
    async def story() -> None:
        cluster = Cluster(tmp_path, engine)
        async with cluster.node("ann") as ann, cluster.node("bob", run="process") as bob:
            await together(ann, bob)
            async with ann.connect() as here, bob.connect() as there:
                await asyncio.gather(replicate(here), replicate(there))
                assert (await ann.statistics())["flight"] == "recording"

    asyncio.run(story())
    traces = [sealed(tmp_path / name / FLIGHT) for name in ("ann", "bob")]
    told = [
        {(event.conf, event.count): (event.a, event.b) for event in trace.events if isinstance(event, Prefix)} for trace in traces
    ]
    shared = told[0].keys() & told[1].keys()
    assert max(count for _, count in shared) >= MESSAGES
    assert {where: told[0][where] for where in shared} == {where: told[1][where] for where in shared}
    for trace in traces:
        assert isinstance(trace.events[0], Conf)
        assert isinstance(trace.events[-1], End)
        assert trace.events[-1].how == "stopped"
    agreed = check_groups(History(traces, closed=False, engine=engine)).verdicts["replicas_agree"]
    assert (agreed.verdict, agreed.checked) == (HELD, 2 * 2 * MESSAGES // 100)
    export_wanted([tmp_path], ExportRequest(), tmp_path / "out")
    exported = read_history(tmp_path / "out")
    assert check(exported).broken == ()
    for trace in exported.nodes:
        assert sum(event.count for event in trace.events if isinstance(event, Delivery)) == 2 * MESSAGES


def test_a_node_without_one_writes_none(tmp_path: Path) -> None:
    async def story() -> None:
        async with Cluster(tmp_path).node("ann", flight=False) as ann:
            assert "flight" not in await ann.statistics()

    asyncio.run(story())
    assert not (tmp_path / "ann" / FLIGHT).exists()
