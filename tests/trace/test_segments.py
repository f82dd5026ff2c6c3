"""Segments: written, rotated, sealed, cut, lost, altered, and read back; each kind of damage is told by its name."""

from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.guarantees.oracle import good_history
from transis.audit.guarantees import check
from transis.trace.events import Gap, History, NodeTrace
from transis.trace.reader import MIXED, Finding, read_history, read_segment, read_trace
from transis.trace.segment import (
    KIND_HEADER,
    MAGIC,
    SCHEMA,
    Header,
    SegmentWriter,
    decode_rows,
    encode_rows,
    frame,
    live_header,
    segment_name,
)
from transis.types.config import Config
from transis.types.errors import TraceError
from transis.types.ids import NodeId

BATCH = 7


def write(directory: Path, history: History, limit: int = 1500, closed: bool = True, seal: bool = True) -> None:
    """Each life into its own segments, a few events at a time, as a driver would flush them."""
    for trace in history.nodes:
        writer = SegmentWriter(directory, Header("test", "run", trace.node), limit)
        for start in range(0, len(trace.events), BATCH):
            assert writer.write(trace.events[start : start + BATCH])
        if seal:
            writer.close(closed)
        else:
            writer.release()


def kinds(findings: list[Finding]) -> list[str]:
    return sorted({finding.what for finding in findings})


def longest_life(directory: Path) -> list[Path]:
    """The segments of the life that wrote most."""
    lives: dict[str, list[Path]] = {}
    for path in sorted(directory.glob("*.trace")):
        lives.setdefault(path.name.rsplit("-", 1)[0], []).append(path)
    return max(lives.values(), key=lambda paths: (len(paths), paths[0].stat().st_size))


@pytest.fixture(scope="module")
def history() -> History:
    return good_history(5, steps=400)


def longest(history: History) -> NodeTrace:
    return max(history.nodes, key=lambda trace: len(trace.events))


def by_node(history: History) -> History:
    return history._replace(nodes=sorted(history.nodes, key=lambda trace: trace.node))


def test_what_was_written_is_read_back(tmp_path: Path, history: History) -> None:
    write(tmp_path, history)
    reading = read_trace(tmp_path)
    assert reading == (by_node(history), [])
    assert len(longest_life(tmp_path)) > 2


def test_an_open_trace_is_not_closed(tmp_path: Path, history: History) -> None:
    write(tmp_path, history, limit=1 << 30, seal=False)
    reading = read_trace(tmp_path)
    assert reading.history == by_node(history)._replace(closed=False)
    assert kinds(reading.findings) == ["still open"]


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cut=st.integers(min_value=1, max_value=3000))
def test_a_torn_tail_is_read_up_to_the_last_whole_batch(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    directory = tmp_path_factory.mktemp("torn")
    life = longest(good_history(5, steps=200))
    write(directory, History([life], True), limit=1 << 30, seal=False)
    path = longest_life(directory)[0]
    whole = path.read_bytes()
    header = len(MAGIC) + len(frame(KIND_HEADER, msgspec.msgpack.encode(Header("test", "run", life.node))))
    path.write_bytes(whole[: max(header, len(whole) - cut)])
    segment = read_segment(path)
    assert segment.events == life.events[: len(segment.events)]
    assert len(segment.events) % BATCH == 0


def test_a_torn_tail_is_told(tmp_path: Path, history: History) -> None:
    write(tmp_path, history, limit=1 << 30, seal=False)
    path = longest_life(tmp_path)[0]
    path.write_bytes(path.read_bytes()[:-3])
    assert kinds(read_trace(tmp_path).findings) == ["still open", "truncated tail"]


def test_pages_of_zeros_after_a_power_cut_are_a_torn_tail(tmp_path: Path, history: History) -> None:
    write(tmp_path, history, limit=1 << 30, seal=False)
    path = longest_life(tmp_path)[0]
    path.write_bytes(path.read_bytes() + bytes(4096))
    assert "truncated tail" in kinds(read_trace(tmp_path).findings)


def test_a_missing_segment_is_told_and_leaves_a_gap(tmp_path: Path, history: History) -> None:
    write(tmp_path, history)
    longest_life(tmp_path)[1].unlink()
    reading = read_trace(tmp_path)
    assert kinds(reading.findings) == ["density", "missing segment"]
    assert any(isinstance(event, Gap) for trace in reading.history.nodes for event in trace.events)
    assert check(reading.history).broken == ()


def test_an_exchanged_segment_breaks_the_chain(tmp_path: Path, history: History) -> None:
    write(tmp_path, history)
    other = tmp_path / "other"
    changed = [trace._replace(events=[event._replace(time_us=1) for event in trace.events]) for trace in history.nodes]
    write(other, history._replace(nodes=changed))
    path = longest_life(tmp_path)[1]
    path.write_bytes((other / path.name).read_bytes())
    assert "chain broken" in kinds(read_trace(tmp_path).findings)


def test_a_changed_byte_in_the_middle_is_an_error_with_its_place(tmp_path: Path, history: History) -> None:
    write(tmp_path, history)
    path = longest_life(tmp_path)[0]
    content = bytearray(path.read_bytes())
    content[300] ^= 1
    path.write_bytes(content)
    with pytest.raises(TraceError, match=rf"{path.name}: byte \d+: a damaged frame"):
        read_history(tmp_path)


def test_a_later_version_is_left_out_and_told(tmp_path: Path, history: History) -> None:
    write(tmp_path, history)
    header = Header("test", "run", history.nodes[0].node._replace(incarnation=99), SCHEMA + 1)
    (tmp_path / segment_name(header)).write_bytes(MAGIC + frame(KIND_HEADER, msgspec.msgpack.encode(header)) + b"whatever it has")
    assert kinds(read_trace(tmp_path).findings) == ["unknown version"]


def test_the_version_before_is_read(tmp_path: Path, history: History) -> None:
    writer = SegmentWriter(tmp_path, Header("test", "run", history.nodes[0].node, SCHEMA - 1))
    writer.write(history.nodes[0].events)
    writer.close(True)
    assert read_trace(tmp_path) == (History(history.nodes[:1], True), [])


def test_a_directory_without_segments_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="holds no trace segment"):
        read_history(tmp_path / "nothing")


def test_two_runs_in_one_directory_are_told(tmp_path: Path, history: History) -> None:
    write(tmp_path, history)
    writer = SegmentWriter(tmp_path, Header("test", "another", history.nodes[0].node._replace(name="other")))
    writer.write(history.nodes[0].events)
    writer.close(True)
    assert "mixed runs" in kinds(read_trace(tmp_path).findings)


def test_a_writer_never_touches_what_is_there(tmp_path: Path, history: History) -> None:
    life = history.nodes[0]
    header = Header("test", "run", life.node)
    (tmp_path / segment_name(header)).write_bytes(b"somebody else's")
    writer = SegmentWriter(tmp_path, header)
    assert not writer.write(life.events[:3])
    assert (tmp_path / segment_name(header)).read_bytes() == b"somebody else's"


def test_a_name_may_hold_any_printable_character(tmp_path: Path) -> None:
    life = longest(good_history(5, steps=50))
    odd = life._replace(node=life.node._replace(name="a/../b c"))
    write(tmp_path, History([odd], True))
    assert read_history(tmp_path).nodes[0].node.name == "a/../b c"


@given(st.binary(max_size=300))
def test_any_bytes_are_events_or_a_trace_error(junk: bytes) -> None:
    try:
        decode_rows(junk)
    except TraceError as error:
        assert "no batch" in str(error)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.integers(min_value=0, max_value=5000), value=st.binary(min_size=1, max_size=4))
def test_a_damaged_file_is_a_segment_or_a_trace_error(tmp_path: Path, place: int, value: bytes) -> None:
    path = tmp_path / "damaged.trace"
    life = longest(good_history(5, steps=100))
    content = bytearray(MAGIC + frame(KIND_HEADER, msgspec.msgpack.encode(Header("test", "run", life.node))))
    content += frame(b"B", encode_rows(life.events))
    at = place % len(content)
    content[at : at + len(value)] = value
    path.write_bytes(content)
    try:
        assert read_segment(path).events in (life.events, [])
    except TraceError as error:
        assert "damaged.trace" in str(error)


def test_a_live_header_says_what_was_promised_and_how_it_was_ordered() -> None:
    node = NodeId("a", 1, 7)
    ring = live_header(Config("a", "here"), node)
    assert (ring.cluster, ring.run, ring.engine, ring.mode, ring.order) == ("here", "live", "totem", "evs", "")
    toto = live_header(Config("a", engine="lansis", order="toto"), node)
    assert (toto.engine, toto.mode, toto.order) == ("lansis", "toto", "toto")


def test_a_header_from_before_there_were_orders_is_read() -> None:
    header = Header("test", "run", NodeId("a", 1, 7))
    fields = msgspec.msgpack.decode(msgspec.msgpack.encode(header))
    assert fields.pop("order") == ""
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(fields), type=Header) == header


def test_a_history_that_was_read_knows_its_engine(tmp_path: Path) -> None:
    config = Config("a", engine="lansis", order="toto")
    for name in ("a", "b"):
        SegmentWriter(tmp_path, live_header(config, NodeId(name, 1, 7))).close(True)
    history, findings = read_trace(tmp_path)
    assert (history.promises, history.engine, findings) == ("toto", "lansis", [])
    SegmentWriter(tmp_path, live_header(Config("c"), NodeId("c", 1, 7))).close(True)
    assert kinds(read_trace(tmp_path).findings) == [MIXED]
