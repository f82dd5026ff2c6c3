"""Histories as the tables that the pipeline reads, without files of traces between."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from transis.audit.plans.lay import Tables
from transis.audit.plans.tables import EVENTS, tables_of
from transis.trace.events import History, NodeTrace
from transis.trace.reader import Segment
from transis.trace.segment import Footer, Header


def tables_of_histories(spark: SparkSession, histories: Mapping[str, History], directory: Path) -> Tables:
    """All histories as runs of one store; the name of a history is that of its run."""
    write_histories(histories, directory / "histories.parquet")
    return Tables(spark.read.schema(EVENTS).parquet(str(directory)))


def write_histories(histories: Mapping[str, History], file: Path, segments: int = 1) -> None:
    """With lives in up to so many segments each."""
    lives = ((name, history, trace) for name, history in histories.items() for trace in history.nodes)
    parts = (segment for life in lives for segment in _segments(*life, segments))
    pq.write_table(pa.concat_tables([table for part in parts for _, table in tables_of(part, "", 0)]), file)


def _segments(name: str, history: History, trace: NodeTrace, segments: int) -> Iterator[Segment]:
    size = len(trace.events) // segments + 1
    for number, start in enumerate(range(0, max(1, len(trace.events)), size), start=1):
        events = trace.events[start : start + size]
        header = Header("simulated", name, trace.node, number=number, engine=history.engine, mode=history.promises)
        first, last = (events[0].lseq, events[-1].lseq) if events else (0, 0)
        yield Segment("", header, events, Footer(first, last, len(events), "", history.closed), "", 0)
