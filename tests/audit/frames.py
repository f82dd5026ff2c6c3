"""Histories and files of traces as the tables that the audit reads, without a store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession

from transis.audit.plans.lay import Tables
from transis.audit.plans.store import Parts, decode_into
from transis.spark.inputs import EVENTS, find_segments
from transis.trace.columns import CHUNK, SegmentColumns
from transis.trace.events import History, NodeTrace
from transis.trace.reader import Frames
from transis.trace.segment import Footer, Header, encode_rows, split_rows


def tables_of_histories(spark: SparkSession, histories: Mapping[str, History], directory: Path) -> Tables:
    """All histories as runs of one store; the name of a history is that of its run."""
    write_histories(histories, directory)
    return Tables(events_below(spark, directory))


def events_of_files(spark: SparkSession, inputs: Iterable[str | Path], directory: Path) -> DataFrame:
    """The events of all segments below some directories; their tables are written into another."""
    place = directory / uuid4().hex
    decode_into(spark, find_segments(spark, inputs), place)
    return events_below(spark, place)


def events_below(spark: SparkSession, directory: Path) -> DataFrame:
    return spark.read.schema(EVENTS).parquet(str(directory)).select(*EVENTS.names)


def write_histories(histories: Mapping[str, History], directory: Path, segments: int = 1) -> None:
    """With lives in up to so many segments each."""
    parts = Parts(directory)
    for name, history in histories.items():
        for trace in history.nodes:
            for columns in _segments(name, history, trace, segments):
                for kind, batch in columns.batches():
                    parts.add(kind, batch)
    parts.close()


def _segments(name: str, history: History, trace: NodeTrace, segments: int) -> Iterator[SegmentColumns]:
    size = len(trace.events) // segments + 1
    for number, start in enumerate(range(0, max(1, len(trace.events)), size), start=1):
        events = trace.events[start : start + size]
        header = Header("simulated", name, trace.node, number=number, engine=history.engine, mode=history.promises)
        first, last = (events[0].lseq, events[-1].lseq) if events else (0, 0)
        columns = SegmentColumns(header)
        for place in range(0, len(events), CHUNK):
            columns.add(split_rows(encode_rows(events[place : place + CHUNK])))
        columns.finish(Frames(header, [], Footer(first, last, len(events), "", history.closed), "", 0), "", 0)
        yield columns
