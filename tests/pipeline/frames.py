"""Histories as the tables that the pipeline reads, without files of traces between."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from transis.pipeline.columns import tables_of
from transis.pipeline.schemas import EVENTS
from transis.pipeline.tables import Tables
from transis.trace.events import History, NodeTrace
from transis.trace.reader import Segment
from transis.trace.segment import Footer, Header


def tables_of_histories(spark: SparkSession, histories: Mapping[str, History], directory: Path) -> Tables:
    """All histories as runs of one store; the name of a history is that of its run."""
    for name, history in histories.items():
        found = [table for trace in history.nodes for _, table in tables_of(_segment(name, history, trace), "", 0)]
        pq.write_table(pa.concat_tables(found), directory / f"{name}.parquet")
    return Tables(spark.read.schema(EVENTS).parquet(str(directory)))


def _segment(name: str, history: History, trace: NodeTrace) -> Segment:
    header = Header("simulated", name, trace.node, engine=history.engine, mode=history.promises)
    events = trace.events
    first, last = (events[0].lseq, events[-1].lseq) if events else (0, 0)
    return Segment("", header, events, Footer(first, last, len(events), "", history.closed), "", 0)
