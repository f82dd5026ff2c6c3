"""A simulated run as segments. No typer, no rich: workers of a sweep write traces, too, and need not have them."""

from __future__ import annotations

from pathlib import Path

from transis import __version__
from transis.sim.tried import Tried
from transis.trace.events import History
from transis.trace.segment import Header, SegmentWriter


def write_trace(history: History, directory: Path, name: str, order: str = "") -> None:
    """The history as segments, one chain a life; a disk that does not take them is the caller's to report."""
    directory.mkdir(parents=True, exist_ok=True)
    for trace in history.nodes:
        header = Header(
            "simulated", name, trace.node, engine=history.engine, mode=history.promises, build=__version__, order=order
        )
        writer = SegmentWriter(directory, header)
        if not writer.write(trace.events):
            raise OSError(f"the trace of {trace.node} could not be written")
        writer.close(history.closed)


def order_of(tried: Tried) -> str:
    """As a segment's header has it: empty on the ring, which has no choice."""
    return tried.order if tried.engine == "lansis" else ""
