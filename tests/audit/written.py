"""Histories as files of traces, as nodes would have written them."""

from __future__ import annotations

from pathlib import Path

from transis.trace.events import History, NodeTrace
from transis.trace.segment import Header, SegmentWriter

BATCH = 50


def write_traces(directory: Path, history: History, run: str = "run", limit: int = 1 << 30, closed: bool = True) -> None:
    """Every life of a history, sealed."""
    for trace in history.nodes:
        writer = open_trace(directory, trace, run, limit)
        record(writer, trace, 0, len(trace.events))
        writer.close(closed)


def open_trace(directory: Path, trace: NodeTrace, run: str = "run", limit: int = 1 << 30) -> SegmentWriter:
    return SegmentWriter(directory, Header("test", run, trace.node), limit)


def record(writer: SegmentWriter, trace: NodeTrace, start: int, end: int) -> None:
    """Some of the events, a few at a time."""
    for place in range(start, end, BATCH):
        assert writer.write(trace.events[place : min(end, place + BATCH)])


def longest(history: History) -> NodeTrace:
    return max(history.nodes, key=lambda trace: len(trace.events))
