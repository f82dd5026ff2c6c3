"""Ends of lives that a kill left open: another party seals them and records the end.

A killed node cannot record its own end. Without it a crash looks like a node that still runs, and what the dead node owed would
stay pending forever. So one more segment with the END is appended to the node's last, chained like any other: by the observer of
the crash, or, in the flight recorder, by the next life of the same name, which also seals what was left open.
"""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path
from typing import Final
from urllib.parse import quote

import msgspec

from transis.trace.events import End, Event
from transis.trace.files import rename
from transis.trace.reader import Segment, read_segment
from transis.trace.segment import DIGESTS, KIND_FOOTER, TRACES, Footer, Naming, SegmentWriter, frame, life_name
from transis.types.errors import TraceCutOff, TraceError
from transis.types.ids import NodeId

# --- the end of a life ------------------------------------------------------------------------------------------------


def record_end(directory: Path, node: NodeId, how: str, naming: Naming = TRACES) -> bool:
    """Record the end of a life at the time of its last event; False if the trace holds an end already."""
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
    """The last segment; a file that the dead life had only just created is removed, because the end belongs there."""
    try:
        return read_segment(files[-1])
    except TraceCutOff:
        files.pop().unlink()
        if not files:
            raise
        return read_segment(files[-1])


def _last_event(files: list[Path]) -> Event | None:
    """The last event before the last segment, which may have none if its only batch was cut off."""
    return next((events[-1] for path in reversed(files) if (events := read_segment(path).events)), None)


# --- sealing ----------------------------------------------------------------------------------------------------------

DAMAGED: Final = ".damaged"
"""Suffix for a file that cannot be read, so that nobody tries again."""

_NAME: Final = re.compile(
    re.escape(DIGESTS.prefix) + r"(?P<node>.+)-(?P<incarnation>\d+)-(?P<boot>[0-9a-f]{16})-\d{6,}" + re.escape(DIGESTS.suffix)
)


def seal_open_lives(directory: Path, name: str) -> int:
    """Seal the digests that earlier lives left open; returns how many ends were recorded. Never raises for a failing disk."""
    begins = f"{DIGESTS.prefix}{quote(name, safe='')}-"
    try:
        for path in sorted(directory.glob(f"{DIGESTS.prefix}*{DIGESTS.suffix}{DIGESTS.unfinished}")):
            if path.name.startswith(begins):
                _seal(path)
        return _end_last(directory, name)
    except OSError as error:
        logging.getLogger("transis").warning("the flight recorder's directory %s cannot be recovered: %s", directory, error)
        return 0


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


def _end_last(directory: Path, name: str) -> int:
    """Record the end of the previous life; earlier ones have theirs. Lives are read off file names: there may be thousands."""
    found = [_NAME.fullmatch(path.name) for path in directory.glob(f"{DIGESTS.prefix}*{DIGESTS.suffix}")]
    lives = {(int(one["incarnation"]), int(one["boot"], 16)) for one in found if one and one["node"] == quote(name, safe="")}
    if not lives:
        return 0
    try:
        return int(record_end(directory, NodeId(name, *max(lives)), "failed", DIGESTS))
    except TraceError:
        return 0
