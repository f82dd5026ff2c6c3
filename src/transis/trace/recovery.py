"""Ends of lives that a kill left open: another party seals them and records the end.

A killed node cannot record its own end. Without it a crash looks like a node that still runs, and what the dead node owed would
stay pending forever. So one more segment with the END is appended to the node's last, chained like any other: by the observer of
the crash, or by the next life from the same state directory, whose lock says that the one before is over. In the flight recorder
the next life also seals what was left open.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Final
from urllib.parse import quote

import msgspec

from transis.trace.events import End, Event
from transis.trace.files import rename
from transis.trace.reader import Frames, decode_at, read_frames, read_segment
from transis.trace.segment import DIGESTS, KIND_FOOTER, TRACES, Footer, Naming, SegmentWriter, decode_rows, frame, life_name
from transis.types.errors import TraceCutOff, TraceError
from transis.types.ids import NodeId

log: Final = logging.getLogger("transis")

# --- the end of a life ------------------------------------------------------------------------------------------------


def record_end(directory: Path, node: NodeId, how: str, naming: Naming = TRACES) -> bool:
    """Record the end of a life at the time of its last event; False if there is nothing to end: no trace, or one with an end."""
    files = _files(directory, node, naming)
    last = _last_segment(files)
    if last is None:
        return False
    last_event = next((event for path in reversed(files) if (event := _last_event(path)) is not None), None)
    if isinstance(last_event, End):
        return False
    lseq, time_us = (0, 0) if last_event is None else (last_event.lseq, last_event.time_us)
    header = msgspec.structs.replace(last.header, number=last.header.number + 1, previous=last.digest)
    writer = SegmentWriter(directory, header, naming=naming)
    if not writer.write([End(lseq + 1, time_us, how)]):
        raise TraceError(f"{directory}: the end of {node} could not be written")
    writer.close()
    return True


def end_previous(directory: Path, node: NodeId | None, naming: Naming = TRACES) -> None:
    """Record that the life before this one failed, if it did not say how it ended. A disk that does not take it stops nobody."""
    if node is None:
        return
    try:
        record_end(directory, node, "failed", naming)
    except (OSError, TraceError) as error:
        log.warning("the end of %s is not recorded in %s: %s", node, directory, error)


def _files(directory: Path, node: NodeId, naming: Naming) -> list[Path]:
    begins = f"{naming.prefix}{life_name(node)}-"
    return sorted(path for path in directory.glob(f"*{naming.suffix}") if path.name.startswith(begins))


def _last_segment(files: list[Path]) -> Frames | None:
    """The last segment; a file that the dead life had only just created is removed, because the end belongs there."""
    if not files:
        return None
    try:
        return _frames(files[-1])
    except TraceCutOff:
        files.pop().unlink()
        return _last_segment(files)


def _frames(path: Path) -> Frames:
    return read_frames(path.name, path.read_bytes())


def _last_event(path: Path) -> Event | None:
    """None if the only batch of the segment was cut off. Nothing else of a large file is decoded."""
    batches = _frames(path).batches
    if not batches:
        return None
    place, rows = batches[-1]
    return decode_at(path.name, place, decode_rows, rows)[-1]


# --- sealing ----------------------------------------------------------------------------------------------------------

DAMAGED: Final = ".damaged"
"""Suffix for a file that cannot be read, so that nobody tries again."""


def seal_open_lives(directory: Path, name: str) -> None:
    """Seal the digests that earlier lives of this name left open. Never raises for a failing disk."""
    begins = f"{DIGESTS.prefix}{quote(name, safe='')}-"
    try:
        for path in sorted(directory.glob(f"{DIGESTS.prefix}*{DIGESTS.suffix}{DIGESTS.unfinished}")):
            if path.name.startswith(begins):
                _seal(path)
    except OSError as error:
        log.warning("the flight recorder's directory %s cannot be recovered: %s", directory, error)


def _seal(path: Path) -> None:
    """Cut off a broken last frame, append the seal, and give the file its final name."""
    try:
        segment = read_segment(path)
    except TraceCutOff:
        path.unlink()
        return
    except TraceError:
        rename(path, path.with_name(path.name + DAMAGED))
        return
    if segment.footer is None:
        lseqs = [event.lseq for event in segment.events] or [0]
        footer = Footer(lseqs[0], lseqs[-1], len(segment.events), segment.digest)
        with path.open("r+b") as file:
            file.truncate(path.stat().st_size - segment.torn_bytes)
            file.seek(0, os.SEEK_END)
            file.write(frame(KIND_FOOTER, msgspec.msgpack.encode(footer)))
    rename(path, path.with_name(path.name.removesuffix(DIGESTS.unfinished)))
