"""The end of a life, written by who saw it: a node that is killed cannot say so itself (traces 2).

One more segment is put behind the node's last, chained to it like any other, with the END in it. Without it a crash cannot be
told from a node that still runs, and what the dead node owed stays pending for ever.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from transis.trace.events import End, Event
from transis.trace.reader import Segment, read_segment
from transis.trace.segment import TRACES, Naming, SegmentWriter, life_name
from transis.types.errors import TraceCutOff, TraceError
from transis.types.ids import NodeId


def record_end(directory: Path, node: NodeId, how: str, naming: Naming = TRACES) -> bool:
    """Write that a life ended, at the time of its last event; False if its trace says so already."""
    files = _files(directory, node, naming)
    last = _last_segment(files)
    last_event = last.events[-1] if last.events else _last_event(files[:-1])
    if isinstance(last_event, End):
        return False
    lseq, time_us = (0, 0) if last_event is None else (last_event.lseq, last_event.time_us)
    header = msgspec.structs.replace(last.header, number=last.header.number + 1, previous=last.digest)
    writer = SegmentWriter(directory, header, naming=naming)
    if not writer.write([End(lseq + 1, time_us, how)]):
        raise TraceError(f"{directory}: the end of {node} could not be written")
    writer.close()
    return True


def _files(directory: Path, node: NodeId, naming: Naming) -> list[Path]:
    begins = f"{naming.prefix}{life_name(node)}-"
    files = sorted(path for path in directory.glob(f"*{naming.suffix}") if path.name.startswith(begins))
    if not files:
        raise TraceError(f"{directory}: holds no segment of {node}")
    return files


def _last_segment(files: list[Path]) -> Segment:
    """Without a file that the dead life had only just created, which stands where its end belongs."""
    try:
        return read_segment(files[-1])
    except TraceCutOff:
        files.pop().unlink()
        if not files:
            raise
        return read_segment(files[-1])


def _last_event(files: list[Path]) -> Event | None:
    """Of those before the last, which may have none: its only batch was cut off."""
    return next((events[-1] for path in reversed(files) if (events := read_segment(path).events)), None)
