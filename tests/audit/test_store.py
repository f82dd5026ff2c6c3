"""The store: what is kept, what is read again, and that a change is seen as a whole or not at all."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.audit.frames import events_of_files
from tests.audit.written import longest, open_trace, record, write_traces
from tests.guarantees.oracle import good_history
from transis.audit.plans.lake import Lake
from transis.audit.plans.store import Dropped, EventStore, KeptFile, StoreFacts, require_shared
from transis.sim.run import simulate
from transis.trace.events import History
from transis.types.errors import PipelineError, TraceError, UsageError

HISTORY = good_history(5, steps=200)
EVENTS_OF_HISTORY = sum(len(trace.events) for trace in HISTORY.nodes)


def counted(store: EventStore) -> int:
    """Events, as the segments count them and as there are rows that stand for one."""
    rows = store.events().where("lseq is not null and kind <> 'gaps'").count()
    [(total,)] = store.events().where("kind = 'segments'").selectExpr("coalesce(sum(events), 0)").collect()
    assert rows == total
    return rows


def test_files_that_workers_wrote_on_disks_of_their_own_are_told(tmp_path: Path) -> None:
    (tmp_path / "kind=ends").mkdir()
    (tmp_path / "kind=ends" / "part-1.parquet").touch()
    require_shared(tmp_path, ["kind=ends/part-1.parquet"])
    with pytest.raises(PipelineError, match=r"wrote 1 files below .* name a directory that all of them share, by --store"):
        require_shared(tmp_path, ["kind=ends/part-1.parquet", "kind=ends/part-2.parquet"])


def test_a_sealed_segment_is_read_once_and_a_late_one_when_it_comes(spark: SparkSession, tmp_path: Path) -> None:
    traces = tmp_path / "traces"
    write_traces(traces, HISTORY)
    late = sorted(traces.iterdir())[-1]
    late.rename(tmp_path / late.name)
    store = EventStore(spark, tmp_path / "a [b] %20" / ".." / "a [b] %20")
    assert store.add([traces]) == len(HISTORY.nodes) - 1
    before = _everything_below(store.path)
    assert store.add([traces]) == 0
    assert _everything_below(store.path) == before
    (tmp_path / late.name).rename(late)
    assert store.add([traces]) == 1
    assert counted(store) == EVENTS_OF_HISTORY
    lineage = {Path(row.file).name: row.batch for row in EventStore(spark, store.path).inputs().collect()}
    assert lineage == {path.name: 2 if path == late else 1 for path in traces.iterdir()}
    assert {path.name for path in tmp_path.iterdir()} == {"traces", "a [b] %20"}


def test_an_open_segment_grows_between_two_looks_and_is_kept_when_it_is_sealed(spark: SparkSession, tmp_path: Path) -> None:
    trace = longest(HISTORY)
    writer = open_trace(tmp_path / "traces", trace)
    seen = []
    with EventStore(spark) as store:
        for start, end in ((0, 20), (20, 50), (50, len(trace.events))):
            record(writer, trace, start, end)
            assert store.add([tmp_path / "traces"]) == 0
            seen.append(counted(store))
        assert [row.batch for row in store.inputs().collect()] == [None]
        writer.close()
        assert store.add([tmp_path / "traces"]) == 1
        assert seen == [20, 50, len(trace.events)]
        assert counted(store) == len(trace.events)
        assert [row.batch for row in store.inputs().collect()] != [None]
        assert store.path.is_dir()
    assert not store.path.exists()


def test_a_file_that_was_written_anew_replaces_its_rows(spark: SparkSession, tmp_path: Path) -> None:
    trace = longest(HISTORY)
    broken = tmp_path / "traces" / "broken.trace"
    write_traces(tmp_path / "traces", History([trace._replace(events=trace.events[:10])], True))
    broken.write_bytes(b"")
    with EventStore(spark) as store:
        store.add([broken])
        with pytest.raises(
            TraceError, match=r"none of the 1 files of traces can be read; the first one is broken.trace: byte 0: the"
        ):
            store.require_readable()
        assert (store.add([tmp_path / "traces"]), counted(store)) == (1, 10)
        shutil.rmtree(tmp_path / "traces")
        write_traces(tmp_path / "traces", History([trace], True))
        assert (store.add([tmp_path / "traces"]), counted(store)) == (1, len(trace.events))
        store.compact()
        assert (store.add([tmp_path / "traces"]), counted(store)) == (0, len(trace.events))
        store.require_readable()


def test_every_kind_of_row_is_kept_as_it_was_decoded(
    spark: SparkSession, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    history = simulate(4, nodes=4, groups=True).history
    halves = [History(history.nodes[place::2], True) for place in range(2)]
    for place, half in enumerate(halves):
        write_traces(tmp_path / str(place), half)
    with EventStore(spark) as store:
        assert sum(store.add([tmp_path / str(place)]) for place in range(2)) == len(history.nodes)
        decoded = _as_text(events_of_files(spark, [tmp_path], tmp_path_factory.mktemp("tables")))
        assert _as_text(store.events()) == decoded
        store.compact()
        assert _as_text(store.events()) == decoded
    assert len({kind for kind, _ in decoded}) >= 15


def _as_text(events: DataFrame) -> Counter[tuple[str, str]]:
    return Counter((row.kind, row.text) for row in events.select("kind", F.to_json(F.struct("*")).alias("text")).collect())


def test_a_copy_is_not_twice_the_evidence(spark: SparkSession, tmp_path: Path) -> None:
    write_traces(tmp_path / "traces", HISTORY)
    shutil.copytree(tmp_path / "traces", tmp_path / "copies" / "one")
    with EventStore(spark) as store:
        assert store.add([tmp_path / "traces", tmp_path / "copies"]) == len(HISTORY.nodes)
        shutil.copytree(tmp_path / "traces", tmp_path / "copies" / "two")
        assert store.add([tmp_path / "copies"]) == 0
        assert counted(store) == EVENTS_OF_HISTORY


def test_many_small_runs_make_few_directories_and_batches_become_one(spark: SparkSession, tmp_path: Path) -> None:
    small = History([longest(HISTORY)._replace(events=longest(HISTORY).events[:5])], True)
    store = EventStore(spark, tmp_path / "store", compact_from=4)
    for part in range(4):
        for number in range(50):
            write_traces(tmp_path / "traces" / f"{part}-{number}", small, run=f"run {part}-{number}")
        assert store.add([tmp_path / "traces"]) == 50
    assert counted(store) == 1000
    assert store.inputs().select("run", "batch").distinct().count() == 200
    assert {row.batch for row in store.inputs().select("batch").distinct().collect()} == {5}
    # What was replaced stays for those who read it, until the next change.
    assert {path.name for path in (store.path / "events").iterdir()} == {f"batch={number}" for number in range(1, 6)}
    assert store.add([tmp_path / "traces"]) == 0
    assert [path.name for path in (store.path / "events").iterdir()] == ["batch=5"]
    assert len(_directories(store.path)) < 30


def test_tables_are_published_together_and_replaced(spark: SparkSession, tmp_path: Path) -> None:
    store = EventStore(spark, tmp_path / "store")
    with pytest.raises(UsageError, match="has no table 'verdicts'"):
        store.table("verdicts")
    store.replace_all({"verdicts": spark.range(3), "violations": spark.createDataFrame([], "run long, words array<string>")})
    first = store.table("verdicts")
    assert (first.count(), store.table("violations").columns) == (3, ["run", "words"])
    store.replace("verdicts", first.unionAll(spark.range(1)))
    assert store.table("verdicts").count() == 4
    assert EventStore(spark, tmp_path / "store").tables() == ["verdicts", "violations"]
    with pytest.raises(UsageError, match="cannot have the name"):
        store.replace("../outside", spark.range(1))


KILLED_WRITER = """
import os, signal, sys
from pathlib import Path
from transis.audit.plans.lake import Lake

lake = Lake(Path(sys.argv[1]), "store", "--store")
with lake.change() as change:
    staged = change.stage()
    (staged / "kind=deliveries").mkdir(parents=True)
    (staged / "kind=deliveries" / "part.parquet").write_bytes(b"half a file")
    if sys.argv[2] == "moved":
        target = lake.batch_path("events", change.number)
        target.parent.mkdir()
        os.rename(staged, target)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("how_far", ["staged", "moved"])
def test_a_writer_that_is_killed_in_the_middle_is_not_seen(spark: SparkSession, tmp_path: Path, how_far: str) -> None:
    write_traces(tmp_path / "traces", HISTORY)
    killed = subprocess.run([sys.executable, "-c", KILLED_WRITER, str(tmp_path / "store"), how_far], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert (tmp_path / "store" / "_staging").is_dir()
    assert (tmp_path / "store" / "events" / "batch=1").is_dir() == (how_far == "moved")
    store = EventStore(spark, tmp_path / "store")
    assert store.events().count() == 0
    assert store.add([tmp_path / "traces"]) == len(HISTORY.nodes)
    assert counted(store) == EVENTS_OF_HISTORY
    assert not (tmp_path / "store" / "_staging").exists()


def test_the_second_of_two_writers_is_told(spark: SparkSession, tmp_path: Path) -> None:
    write_traces(tmp_path / "traces", HISTORY)
    with (
        Lake(tmp_path / "store", "store", "--store").held(),
        pytest.raises(PipelineError, match="is being written by somebody else"),
    ):
        EventStore(spark, tmp_path / "store").add([tmp_path / "traces"])
    assert EventStore(spark, tmp_path / "store").add([tmp_path / "traces"]) == len(HISTORY.nodes)


def test_what_a_store_cannot_be_is_one_sentence(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="only a local directory can be a store"):
        EventStore(spark, "hdfs://somewhere/store")
    (tmp_path / "file").write_text("not a directory")
    write_traces(tmp_path / "traces", HISTORY)
    with pytest.raises(PipelineError, match="cannot be written"):
        EventStore(spark, tmp_path / "file").add([tmp_path / "traces"])
    (tmp_path / "store" / "_log").mkdir(parents=True)
    with pytest.raises(PipelineError, match=r"has files but no lake\.json: an earlier version of transis made it"):
        EventStore(spark, tmp_path / "store").events()
    (tmp_path / "empty").mkdir()
    with pytest.raises(TraceError, match="holds no trace segment"):
        EventStore(spark, tmp_path / "new").add([tmp_path / "empty"])


def test_what_is_known_of_batches_goes_with_them_when_they_become_one() -> None:
    def file(path: str, batch: int) -> KeptFile:
        return KeptFile(path, 1, 1, path, batch)

    facts = StoreFacts({"a": file("a", 2), "b": file("b", 1)}, [Dropped(1, "a", 5, 1), Dropped(3, "c", 5, 1)], [1, 2])
    merged = facts.merged([1, 2], 4)
    assert merged == StoreFacts({"a": file("a", 4), "b": file("b", 4)}, [Dropped(3, "c", 5, 1)], [4])
    assert facts.merged([2, 3], 4).past == [1]


def _directories(path: Path) -> list[Path]:
    return [found for found in path.rglob("*") if found.is_dir()]


def _everything_below(path: Path) -> set[Path]:
    return set(path.rglob("*"))
