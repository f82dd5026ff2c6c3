"""The trace directory: what is deleted and what never, what happens when the disk is full, and conversion beside the node."""

from __future__ import annotations

import asyncio
import io
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from transis.daemon.logs import LOGGER, start_logging
from transis.net.evidence import PARQUET, KeptSink, Retention, TraceLimits, TraceLook, list_segments, look
from transis.trace.events import Event, NoteEvent
from transis.trace.reader import DROPPED, read_trace
from transis.trace.recorder import Recorder
from transis.trace.segment import Header, SegmentWriter
from transis.types.ids import NodeId

ANN, ANN2 = NodeId("ann", 1, 7), NodeId("ann-2", 1, 8)
PLENTY = TraceLimits(1 << 40, 1 << 40, 0)
LATER_S = 4_000_000_000.0


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    before = list(LOGGER.handlers), LOGGER.level, LOGGER.propagate
    start_logging("info", json=False, stream=stream)
    yield stream
    LOGGER.handlers[:], LOGGER.level, LOGGER.propagate = before


def notes(first: int, count: int) -> list[Event]:
    return [NoteEvent(lseq, 0, "something happened", ()) for lseq in range(first, first + count)]


Making = Callable[[Path, NodeId], SegmentWriter]


@pytest.fixture
def writer_of() -> Iterator[Making]:
    """Writers whose files are closed in the end."""
    made: list[SegmentWriter] = []

    def making(directory: Path, node: NodeId) -> SegmentWriter:
        made.append(SegmentWriter(directory, Header("c", "r", node)))
        return made[-1]

    yield making
    for writer in made:
        writer.release()


def segments(writer: SegmentWriter, directory: Path, count: int) -> SegmentWriter:
    """The writer, after it has sealed so many segments of ten events each, a day apart, and is writing another."""
    for number in range(count):
        writer.write(notes(1 + 10 * number, 10))
        current = directory / writer.current
        writer.seal()
        os.utime(current, (86_400 * number, 86_400 * number))
    writer.write(notes(1 + 10 * count, 10))
    return writer


def names(directory: Path) -> list[str]:
    return [segment.path.stem.rpartition("-")[2] for segment in list_segments(directory, "ann")]


# --- a look at the directory ----------------------------------------------------------------------------------------------


def test_the_oldest_go_until_the_rest_fits(tmp_path: Path, writer_of: Making) -> None:
    writer = segments(writer_of(tmp_path, ANN), tmp_path, 4)
    sizes = [segment.bytes for segment in list_segments(tmp_path, "ann")]
    found = look(tmp_path, "ann", writer.current, TraceLimits(sum(sizes[2:]), 1 << 40, 0), 0.0)
    assert len(found.deleted) == 2
    assert found.kept_bytes == sum(sizes[2:])
    assert names(tmp_path) == ["000003", "000004", "000005"]


def test_the_old_go_by_their_age(tmp_path: Path, writer_of: Making) -> None:
    writer = segments(writer_of(tmp_path, ANN), tmp_path, 4)
    look(tmp_path, "ann", writer.current, TraceLimits(1 << 40, 86_400, 0), 86_400 * 2.5)
    assert names(tmp_path) == ["000003", "000004", "000005"]


def test_the_segment_being_written_stays_whatever_the_limits_say(tmp_path: Path, writer_of: Making) -> None:
    writer = segments(writer_of(tmp_path, ANN), tmp_path, 2)
    look(tmp_path, "ann", writer.current, TraceLimits(0, 0, 0), LATER_S)
    assert names(tmp_path) == ["000003"]
    assert writer.write(notes(31, 1))


def test_files_of_others_stay(tmp_path: Path, writer_of: Making) -> None:
    segments(writer_of(tmp_path, ANN2), tmp_path, 2).release()
    (tmp_path / "readme.txt").write_text("not ours")
    before = sorted(path.name for path in tmp_path.iterdir())
    assert look(tmp_path, "ann", "", TraceLimits(0, 0, 0), LATER_S).deleted == ()
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_lives_go_in_their_order(tmp_path: Path, writer_of: Making) -> None:
    for incarnation in (10, 9, 2):
        segments(writer_of(tmp_path, NodeId("ann", incarnation, 7)), tmp_path, 0).release()
    assert [segment.incarnation for segment in list_segments(tmp_path, "ann")] == [2, 9, 10]


# --- the sink -----------------------------------------------------------------------------------------------------------


class Clock:
    now = 0

    def __call__(self) -> int:
        return self.now


def test_a_segment_is_sealed_when_it_is_old_enough(tmp_path: Path, writer_of: Making) -> None:
    clock = Clock()
    sink = KeptSink(writer_of(tmp_path, ANN), 1000, clock)
    sink.seal_if_old()
    assert sink.write(notes(1, 3))
    first = sink.current
    sink.seal_if_old()
    clock.now = 999
    sink.seal_if_old()
    assert sink.current == first
    clock.now = 1000
    sink.seal_if_old()
    assert sink.current == ""
    assert sink.write(notes(4, 1))
    assert sink.current > first


def test_a_disk_that_takes_nothing_pauses_recording_and_leaves_a_gap(
    tmp_path: Path, lines: io.StringIO, writer_of: Making
) -> None:
    """The directory is a file at first, so nothing can be written; then it is one, and recording goes on by itself."""
    directory = tmp_path / "traces"
    directory.write_text("in the way")
    sink = KeptSink(writer_of(directory, ANN), 1 << 60, Clock())
    recorder = Recorder(ANN, sink)
    record(recorder, 3)
    assert sink.paused
    record(recorder, 2)
    retention = Retention(tmp_path, "ann", sink, PLENTY)
    retention.follow(found(1))
    record(recorder, 1)
    assert sink.paused
    retention.follow(found(1))
    directory.unlink()
    record(recorder, 1)
    retention.follow(found(1))
    sink.close()
    told = lines.getvalue().splitlines()
    assert len(told) == 2
    assert "recording pauses: the disk did not take" in told[0]
    assert "recording goes on; 6 events were not recorded" in told[1]
    assert [finding.what for finding in read_trace(directory).findings] == [DROPPED]


def record(recorder: Recorder, count: int) -> None:
    for _ in range(count):
        recorder.fault(0, "x")
    recorder.flush()


def found(free_bytes: int) -> TraceLook:
    return TraceLook(free_bytes, 0, (), ())


def test_recording_stops_before_the_disk_is_full(tmp_path: Path, lines: io.StringIO, writer_of: Making) -> None:
    sink = KeptSink(writer_of(tmp_path, ANN), 1 << 60, Clock())
    retention = Retention(tmp_path, "ann", sink, PLENTY._replace(free_bytes=1000))
    assert sink.write(notes(1, 1))
    retention.follow(found(999))
    assert not sink.write(notes(2, 5))
    assert "must be" in sink.paused
    assert retention.statistics()["trace_dropped_events"] == 5
    retention.follow(found(1000))
    retention.follow(found(1000))
    assert sink.write(notes(7, 1))
    assert ["pauses" in line for line in lines.getvalue().splitlines()] == [True, False]


# --- all of it ----------------------------------------------------------------------------------------------------------


def test_sealed_segments_are_converted_beside_the_node_and_deleted_with_their_tables(tmp_path: Path, writer_of: Making) -> None:
    writer = segments(writer_of(tmp_path, ANN), tmp_path, 2)
    sink = KeptSink(writer, 1 << 60, Clock())
    asyncio.run(run_until(Retention(tmp_path, "ann", sink, PLENTY._replace(parquet=True), 0.01), lambda one: one.converted == 2))
    kept = list_segments(tmp_path, "ann")
    assert [segment.is_converted for segment in kept] == [True, True, False]
    assert not list((tmp_path / PARQUET).glob(".*"))
    look(tmp_path, "ann", sink.current, TraceLimits(0, 0, 0), LATER_S)
    assert list((tmp_path / PARQUET).iterdir()) == []
    assert names(tmp_path) == ["000003"]


def test_a_segment_that_cannot_be_read_is_told_once(tmp_path: Path, lines: io.StringIO, writer_of: Making) -> None:
    segments(writer_of(tmp_path, ANN), tmp_path, 1).release()
    (broken,) = (segment.path for segment in list_segments(tmp_path, "ann") if segment.number == 1)
    broken.write_bytes(b"no segment at all")
    sink = KeptSink(writer_of(tmp_path, NodeId("ann", 2, 9)), 1 << 60, Clock())
    retention = Retention(tmp_path, "ann", sink, PLENTY._replace(parquet=True), 0.01)
    asyncio.run(run_until(retention, lambda one: one.converted == 1 and "not converted" in lines.getvalue()))
    assert lines.getvalue().count("was not converted to Parquet") == 1
    assert "not a trace segment" in lines.getvalue()


async def run_until(retention: Retention, condition: Callable[[Retention], bool]) -> None:
    """Its own looks are what the condition waits for: it is asked after each. Converters have low priority, and the
    machine may be busy with other tests."""
    async with asyncio.timeout(600):
        while not condition(retention):
            await retention.once()
