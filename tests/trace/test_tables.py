"""Conversion to Parquet: one table per kind of event, as many rows as events."""

from collections import Counter
from pathlib import Path

import pytest

from tests.guarantees.oracle import good_history
from transis.trace.segment import Header, SegmentWriter
from transis.trace.tables import TABLES, convert

parquet = pytest.importorskip("pyarrow.parquet")


def test_a_segment_becomes_tables(tmp_path: Path) -> None:
    life = max(good_history(5, steps=400).nodes, key=lambda trace: len(trace.events))
    writer = SegmentWriter(tmp_path / "trace", Header("test", "run", life.node))
    writer.write(life.events)
    writer.close(True)
    (segment,) = (tmp_path / "trace").iterdir()
    written = convert(segment, tmp_path / "tables")
    counts = Counter(TABLES[type(event)][0] for event in life.events) + Counter(["segments"])
    assert {name: parquet.read_table(path).num_rows for name, path in written.items()} == dict(counts)
    deliveries = parquet.read_table(written["deliveries"]).to_pylist()
    assert [row["lseq"] for row in deliveries] == sorted(row["lseq"] for row in deliveries)
    assert {row["service"] for row in deliveries} <= {"basic", "causal", "agreed", "safe"}
