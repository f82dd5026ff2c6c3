"""Reading traces: what was written is in the table, and every file that cannot be read says why."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from pyspark.sql import SparkSession

from tests.audit.frames import events_of_files
from tests.audit.written import longest, open_trace, record, write_traces
from tests.guarantees.oracle import good_history
from transis.audit.plans.lay import Tables
from transis.spark.inputs import EVENTS, file_batches, find_local, find_segments, seal_of, task_count
from transis.trace.events import Event, History
from transis.trace.reader import read_segment
from transis.trace.segment import MAGIC, SCHEMA, Header, SegmentWriter, frame
from transis.types.errors import TraceError

HISTORY = good_history(5, steps=400)


def rows_of(directory: Path) -> dict[str, list[dict[str, object]]]:
    """What the files of a directory give, without Spark."""
    found: dict[str, list[dict[str, object]]] = {}
    for file in find_local(str(directory)):
        for kind, batch in file_batches(file.path, file.length):
            found.setdefault(kind, []).extend(batch.to_pylist())
    return found


def troubles(directory: Path) -> list[str]:
    return [str(row["trouble"]) for row in rows_of(directory).get("segments", []) if row["trouble"] is not None]


def test_spark_reads_what_was_written(spark: SparkSession, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    write_traces(tmp_path / "below", HISTORY, limit=2000)
    files = find_segments(spark, [tmp_path])
    events = events_of_files(spark, [tmp_path], tmp_path_factory.mktemp("tables"))
    assert events.schema == EVENTS
    by_kind = {row["kind"]: row["count"] for row in events.groupBy("kind").count().collect()}
    assert by_kind == {kind: len(rows) for kind, rows in rows_of(tmp_path).items()}
    assert by_kind["segments"] == len(files) > len(HISTORY.nodes)
    read = Tables(events)["deliveries"].agg({"lseq": "sum", "first": "sum", "tpos": "sum"}).first()
    deliveries = rows_of(tmp_path)["deliveries"]
    assert read is not None
    assert read.asDict() == {f"sum({name})": sum(row[name] for row in deliveries) for name in ("lseq", "first", "tpos")}  # type: ignore[misc]


def test_a_hadoop_path_is_read_as_well(spark: SparkSession, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    write_traces(tmp_path / "a [b]" / "c", HISTORY)
    (tmp_path / "a [b]" / "broken.trace").write_bytes(b"nothing of the kind")
    spark.conf.set("fs.viewfs.mounttable.elsewhere.link./traces", tmp_path.as_uri())
    elsewhere = ["viewfs://elsewhere/traces/a [b]"]
    files = find_segments(spark, elsewhere)
    assert {file.length for file in files} == {file.length for file in find_local(str(tmp_path))}
    events = events_of_files(spark, elsewhere, tmp_path_factory.mktemp("tables"))
    segments = Tables(events)["segments"].select("file", "events", "trouble").collect()
    assert sorted(row.events for row in segments if row.trouble is None) == sorted(len(trace.events) for trace in HISTORY.nodes)
    assert [row.trouble for row in segments if row.trouble] == ["broken.trace: byte 0: not a trace segment"]
    with pytest.raises(TraceError, match=r"^viewfs://elsewhere/traces/none: there is nothing at viewfs:\S+/none$"):
        find_segments(spark, ["viewfs://elsewhere/traces/none"])
    with pytest.raises(TraceError, match=r"^unheard-of://somewhere: this Spark cannot read that kind of address"):
        find_segments(spark, ["unheard-of://somewhere"])


@pytest.mark.parametrize("damage", ["nothing", "text", "header", "middle", "rows", "version"])
def test_a_file_that_cannot_be_read_is_a_row_that_says_why(tmp_path: Path, damage: str) -> None:
    write_traces(tmp_path, HISTORY._replace(nodes=[longest(HISTORY)]))
    good = rows_of(tmp_path)
    node = HISTORY.nodes[0].node._replace(incarnation=99)
    header = msgspec.msgpack.encode(Header("test", "run", node))
    later = msgspec.msgpack.encode(Header("test", "run", node, SCHEMA + 1))
    whole = MAGIC + frame(b"H", header)
    content, why = {
        "nothing": (b"", "bad.trace: byte 0: the file is empty"),
        "text": (b"a letter", "bad.trace: byte 0: not a trace segment"),
        "header": (MAGIC + b"\0\0", f"bad.trace: byte {len(MAGIC)}: the header is cut off"),
        "middle": (
            whole + frame(b"B", b"x")[:-1] + b"yz",
            f"bad.trace: byte {len(whole)}: a damaged frame in the middle of the file",
        ),
        "rows": (whole + frame(b"B", b"x"), f"bad.trace: byte {len(whole)}: no batch of events: "),
        "version": (MAGIC + frame(b"H", later), f"bad.trace: schema {SCHEMA + 1}, this reader knows {SCHEMA - 1} and {SCHEMA}"),
    }[damage]
    (tmp_path / "bad.trace").write_bytes(content)
    found = rows_of(tmp_path)
    [trouble] = troubles(tmp_path)
    assert trouble.startswith(why)
    assert {kind: rows for kind, rows in found.items() if kind != "segments"} == {
        k: r for k, r in good.items() if k != "segments"
    }


def test_a_delivery_with_wrong_fields_is_no_delivery(tmp_path: Path) -> None:
    head = MAGIC + frame(b"H", msgspec.msgpack.encode(Header("test", "run", HISTORY.nodes[0].node)))
    delivery = next(event for trace in HISTORY.nodes for event in trace.events if type(event).__name__ == "Delivery")
    for field, value in {"service": 77, "conf": "R1", "tpos": 1 << 63, "process": [["a", 1, 2]], "lseq": "1"}.items():
        body = msgspec.msgpack.encode([(3, delivery._replace(**{field: value}))])
        (tmp_path / "bad.trace").write_bytes(head + frame(b"B", body))
        [trouble] = troubles(tmp_path)
        assert trouble.startswith(f"bad.trace: byte {len(head)}: no batch of events: "), field


def test_an_open_segment_is_read_up_to_its_last_whole_batch(tmp_path: Path) -> None:
    trace = longest(HISTORY)
    writer = open_trace(tmp_path, trace)
    record(writer, trace, 0, 60)
    [file] = find_local(str(tmp_path))
    record(writer, trace, 60, 80)
    writer.release()
    assert seal_of(file) is None
    # As it was when it was found, whatever came after; and without the batch that the end of the file cuts.
    assert [_events(file.path, length) for length in (file.length, file.length - 3, 1 << 30)] == [60, 50, 80]


def test_a_sealed_segment_is_known_by_its_end(tmp_path: Path) -> None:
    write_traces(tmp_path, HISTORY)
    files = find_local(str(tmp_path))
    assert [seal_of(file) for file in files] == [read_segment(Path(file.path)).digest for file in files]


def _events(path: str, length: int) -> int:
    [row] = [row for kind, batch in file_batches(path, length) if kind == "segments" for row in batch.to_pylist()]
    return int(row["events"])


RECORDING = """
import sys
from pathlib import Path
from transis.types.ids import NodeId
from transis.trace.events import Fault
from transis.trace.segment import Header, SegmentWriter

writer = SegmentWriter(Path(sys.argv[1]), Header("test", "run", NodeId("a", 1, 7)))
lseq = 0
while True:
    writer.write([Fault(lseq + number, lseq, "x" * 100) for number in range(1, 101)])
    lseq += 100
    if lseq == 1000:
        print("recording", flush=True)
"""


def test_kill_9_in_the_middle_of_recording_loses_nothing_that_was_written(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", RECORDING, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    with child, child.stdout:
        assert child.stdout.readline() == "recording\n"
        child.send_signal(signal.SIGKILL)
    assert troubles(tmp_path) == []
    found = rows_of(tmp_path)
    [segment] = found["segments"]
    assert segment["seal_digest"] is None
    assert segment["events"] == len(found["faults"]) >= 1000
    assert "gaps" not in found


def test_names_that_spark_would_pass_over_are_found(tmp_path: Path) -> None:
    names = ["_under", ".dot", "a*b?[c]{d}", "<b>"]
    for name in names:
        node = HISTORY.nodes[0].node._replace(name=name)
        writer = SegmentWriter(tmp_path / "_runs" / name, Header("test", "run", node))
        writer.close()
    found = {row["name"] for row in rows_of(tmp_path)["nodes"]}
    assert found == set(names)


def test_what_is_no_directory_of_traces_is_one_sentence(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "empty" / "further.trace").mkdir(parents=True)
    with pytest.raises(TraceError, match=r"empty: holds no trace segment \(\*\.trace\)$"):
        find_segments(spark, [tmp_path / "empty"])
    with pytest.raises(TraceError, match=r"missing: there is no such file or directory$"):
        find_segments(spark, [tmp_path / "missing"])
    with pytest.raises(TraceError, match="no directory of traces was given"):
        find_segments(spark, [])


def test_a_path_may_go_up_and_a_file_counts_once(spark: SparkSession, tmp_path: Path) -> None:
    write_traces(tmp_path / "traces", HISTORY)
    path = tmp_path / "traces"
    twice = find_segments(spark, [path, f"{path}/../traces", (tmp_path / "traces").as_uri(), find_local(str(path))[0].path])
    assert twice == find_local(str(path))
    assert not any(os.pardir in file.path for file in twice)


def test_batches_have_a_bounded_size(tmp_path: Path) -> None:
    events: list[Event] = [event._replace(lseq=lseq) for lseq, event in enumerate(longest(HISTORY).events * 300, 1)]
    write_traces(tmp_path, History([longest(HISTORY)._replace(events=events)], True))
    [file] = find_local(str(tmp_path))
    sizes = [len(batch) for _, batch in file_batches(file.path, file.length)]
    assert sum(sizes) > len(events) > 20_000
    assert max(sizes) < 20_000


def test_tasks_grow_with_bytes_not_with_files(tmp_path: Path) -> None:
    write_traces(tmp_path, HISTORY)
    [small, *_] = find_local(str(tmp_path))
    large = small._replace(length=128 << 20)
    assert task_count([small] * 100_000) < 120
    assert task_count([large] * 10) == 10
    assert task_count([small]) == 1
