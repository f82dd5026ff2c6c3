"""The end of a life written by who saw it: once, chained to what the node itself wrote, and the reader takes it as its own."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.guarantees.oracle import good_history
from transis.trace.events import End, NodeTrace
from transis.trace.reader import STILL_OPEN, TRUNCATED, read_segment, read_trace
from transis.trace.recovery import record_end
from transis.trace.segment import MAGIC, Header, SegmentWriter, segment_name
from transis.types.ids import NodeId

SEGMENT_BYTES = 1500


def living() -> NodeTrace:
    """A life that is long enough for several segments, and does not say how it ended."""
    lives = [trace for trace in good_history(5, steps=400).nodes if not isinstance(trace.events[-1], End)]
    return max(lives, key=lambda trace: len(trace.events))


def recorded(directory: Path, trace: NodeTrace) -> Path:
    """As a node that was killed left it; its last segment."""
    writer = SegmentWriter(directory, Header("test", "run", trace.node), SEGMENT_BYTES)
    for place in range(0, len(trace.events), 10):
        assert writer.write(trace.events[place : place + 10])
    assert writer.current
    last = directory / writer.current
    writer.release()
    return last


def test_the_end_stands_behind_everything_and_the_chain_is_whole(tmp_path: Path) -> None:
    life = living()
    recorded(tmp_path, life)
    assert record_end(tmp_path, life.node, "failed")
    reading = read_trace(tmp_path)
    [trace] = reading.history.nodes
    last = life.events[-1]
    assert trace.events == [*life.events, End(last.lseq + 1, last.time_us, "failed")]
    assert [finding.what for finding in reading.findings] == []


def test_a_torn_tail_is_the_only_thing_that_is_found(tmp_path: Path) -> None:
    life = living()
    last = recorded(tmp_path, life)
    last.write_bytes(last.read_bytes()[:-3])
    assert {finding.what for finding in read_trace(tmp_path).findings} == {STILL_OPEN, TRUNCATED}
    assert record_end(tmp_path, life.node, "failed")
    reading = read_trace(tmp_path)
    assert [finding.what for finding in reading.findings] == [TRUNCATED]
    [trace] = reading.history.nodes
    assert trace.events[:-1] == life.events[: len(trace.events) - 1]
    assert trace.events[-1] == End(len(trace.events), trace.events[-2].time_us, "failed")


@pytest.mark.parametrize("content", [b"", MAGIC[:4], MAGIC + b"\0\0", bytes(4096)], ids=["empty", "begun", "header", "zeros"])
def test_a_segment_that_was_only_just_created_gives_way_to_the_end(tmp_path: Path, content: bytes) -> None:
    life = living()
    last = recorded(tmp_path, life)
    header = read_segment(last).header
    (tmp_path / segment_name(msgspec.structs.replace(header, number=header.number + 1))).write_bytes(content)
    assert [finding.what for finding in read_trace(tmp_path).findings] == [TRUNCATED, STILL_OPEN]
    assert record_end(tmp_path, life.node, "failed")
    reading = read_trace(tmp_path)
    assert isinstance(reading.history.nodes[0].events[-1], End)
    assert reading.findings == []


def test_it_is_written_once(tmp_path: Path) -> None:
    life = living()
    recorded(tmp_path, life)
    assert record_end(tmp_path, life.node, "failed")
    files = sorted(tmp_path.iterdir())
    assert not record_end(tmp_path, life.node, "failed")
    assert sorted(tmp_path.iterdir()) == files


def test_a_node_that_said_so_itself_needs_no_obituary(tmp_path: Path) -> None:
    life = living()
    ended = life._replace(events=[*life.events, End(life.events[-1].lseq + 1, life.events[-1].time_us, "stopped")])
    recorded(tmp_path, ended)
    assert not record_end(tmp_path, life.node, "failed")
    [trace] = read_trace(tmp_path).history.nodes
    assert trace.events == ended.events


def test_of_a_node_that_left_nothing_nothing_is_written(tmp_path: Path) -> None:
    assert not record_end(tmp_path, NodeId("b", 1, 7), "failed")
    (tmp_path / segment_name(Header("test", "run", NodeId("b", 1, 7)))).write_bytes(b"")
    assert not record_end(tmp_path, NodeId("b", 1, 7), "failed")
    assert list(tmp_path.iterdir()) == []


def test_names_that_begin_alike_are_told_apart(tmp_path: Path) -> None:
    life = living()
    recorded(tmp_path, life)
    other = NodeTrace(life.node._replace(name=f"{life.node.name}-1"), life.events)
    recorded(tmp_path, other)
    assert record_end(tmp_path, life.node, "failed")
    traces = {trace.node: trace.events for trace in read_trace(tmp_path).history.nodes}
    assert isinstance(traces[life.node][-1], End)
    assert traces[other.node] == life.events
