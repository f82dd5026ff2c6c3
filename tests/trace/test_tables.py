"""Conversion to Parquet: one table per kind of event, as the schema says, and names to join."""

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.guarantees.oracle import good_history
from tests.house.sources import ROOT
from transis.trace.columns import convert
from transis.trace.events import Delivery
from transis.trace.segment import NUMBERS, SCHEMA, Header, SegmentWriter
from transis.trace.tables import COLUMNS, KIND_OF, KINDS, SCHEMAS
from transis.types.errors import TraceError

duckdb = pytest.importorskip("duckdb")
parquet = pytest.importorskip("pyarrow.parquet")

LIFE = max(good_history(5, steps=400).nodes, key=lambda trace: len(trace.events))
FOUND_BY_THE_PASS = {"segments", "extents", "nodes", "process_names", "view_names"}


def write(directory: Path, schema: int = SCHEMA) -> Path:
    writer = SegmentWriter(directory, Header("test", "run", LIFE.node, schema))
    writer.write(LIFE.events)
    writer.close(True)
    (segment,) = directory.iterdir()
    return segment


def test_every_event_has_a_table_and_every_column_a_kind() -> None:
    assert KIND_OF.keys() == NUMBERS.keys()
    assert set(KIND_OF.values()) <= set(KINDS)
    assert {name for names in KINDS.values() for name in names} == set(COLUMNS)


def test_a_segment_becomes_tables_of_the_one_schema(tmp_path: Path) -> None:
    written = convert(write(tmp_path / "trace"), tmp_path / "tables")
    assert {kind: parquet.read_schema(path) for kind, path in written.items()} == {kind: SCHEMAS[kind] for kind in written}
    events = Counter(KIND_OF[type(event)] for event in LIFE.events)
    rows = {kind: parquet.read_table(path).num_rows for kind, path in written.items()}
    assert rows == dict(events) | {kind: rows[kind] for kind in FOUND_BY_THE_PASS}


def test_the_query_of_the_docs_shows_names(tmp_path: Path) -> None:
    """It is what stands for tables of words."""
    convert(write(tmp_path / "trace"), tmp_path / "tables")
    page = (ROOT / "docs" / "pipeline.md").read_text(encoding="utf-8")
    [query] = re.findall(r"```sql\n(select n\.name.*?)```", page, re.DOTALL)
    found = duckdb.connect().execute(query.replace("parquet/", f"{tmp_path}/tables/")).fetchall()
    deliveries = [event for event in LIFE.events if isinstance(event, Delivery)]
    told = [(str(event.process), event.first, event.count, event.lseq) for event in deliveries]
    assert sorted(found, key=lambda row: row[-1]) == told


def test_a_segment_of_a_later_version_is_refused_with_the_versions_that_are_known(tmp_path: Path) -> None:
    segment = write(tmp_path / "trace", SCHEMA + 1)
    with pytest.raises(TraceError, match=f"{segment.name}: schema {SCHEMA + 1}, this reader knows {SCHEMA - 1} and {SCHEMA}"):
        convert(segment, tmp_path / "tables")
    assert not (tmp_path / "tables").exists()
