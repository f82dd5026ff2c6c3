"""The end of a life, written by who saw it: a node that is killed cannot say so itself (traces 2).

One more segment is put behind the node's last, chained to it like any other, with the END in it. Without it a crash cannot be
told from a node that still runs, and what the dead node owed stays pending for ever.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from transis.model.errors import TraceError
from transis.model.ids import NodeId
from transis.trace.events import End
from transis.trace.reader import Segment, read_segment
from transis.trace.segment import SUFFIX, SegmentWriter, life_name


def record_end(directory: Path, node: NodeId, how: str) -> bool:
    """Write that a life ended, at the time of its last event; False if its trace says so already."""
    last = _last_segment(directory, node)
    if last.events and isinstance(last.events[-1], End):
        return False
    lseq, time_us = (last.events[-1].lseq, last.events[-1].time_us) if last.events else (0, 0)
    header = msgspec.structs.replace(last.header, number=last.header.number + 1, previous=last.digest)
    writer = SegmentWriter(directory, header)
    if not writer.write([End(lseq + 1, time_us, how)]):
        raise TraceError(f"{directory}: the end of {node} could not be written")
    writer.close()
    return True


def _last_segment(directory: Path, node: NodeId) -> Segment:
    files = sorted(path for path in directory.glob(f"*{SUFFIX}") if path.name.startswith(f"{life_name(node)}-"))
    if not files:
        raise TraceError(f"{directory}: holds no segment of {node}")
    return read_segment(files[-1])
