"""What a killed life left open in its flight recorder: the next life of the name seals it and writes its end (traces 2)."""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path
from typing import Final
from urllib.parse import quote

import msgspec

from transis.trace.obituary import record_end
from transis.trace.reader import read_segment
from transis.trace.segment import DIGESTS, KIND_FOOTER, Footer, frame
from transis.types.errors import TraceCutOff, TraceError
from transis.types.ids import NodeId

DAMAGED: Final = ".damaged"
"""What is added to the name of a file that cannot be read, so that nobody tries again."""

_NAME: Final = re.compile(
    re.escape(DIGESTS.prefix) + r"(?P<node>.+)-(?P<incarnation>\d+)-(?P<boot>[0-9a-f]{16})-\d{6,}" + re.escape(DIGESTS.suffix)
)


def mend(directory: Path, name: str) -> int:
    """Seal the digests that earlier lives of this node left open; how many lives got their end. Never raises for a disk."""
    begins = f"{DIGESTS.prefix}{quote(name, safe='')}-"
    try:
        for path in sorted(directory.glob(f"{DIGESTS.prefix}*{DIGESTS.suffix}{DIGESTS.unfinished}")):
            if path.name.startswith(begins):
                _seal(path)
        return _end_last(directory, name)
    except OSError as error:
        logging.getLogger("transis").warning("the flight recorder's directory %s cannot be mended: %s", directory, error)
        return 0


def _seal(path: Path) -> None:
    """Cut off what is no whole frame, put the seal behind the rest, and give the file its name."""
    try:
        segment = read_segment(path)
    except TraceCutOff:
        path.unlink()
        return
    except TraceError:
        path.rename(path.with_name(path.name + DAMAGED))
        return
    if segment.footer is None:
        lseqs = [event.lseq for event in segment.events] or [0]
        footer = Footer(lseqs[0], lseqs[-1], len(segment.events), segment.digest)
        with path.open("r+b") as file:
            file.truncate(path.stat().st_size - segment.torn_bytes)
            file.seek(0, os.SEEK_END)
            file.write(frame(KIND_FOOTER, msgspec.msgpack.encode(footer)))
    path.rename(path.with_name(path.name.removesuffix(DIGESTS.unfinished)))


def _end_last(directory: Path, name: str) -> int:
    """The life before this one; those before it got their end from it. Names tell the lives: there may be thousands of files."""
    found = [_NAME.fullmatch(path.name) for path in directory.glob(f"{DIGESTS.prefix}*{DIGESTS.suffix}")]
    lives = {(int(one["incarnation"]), int(one["boot"], 16)) for one in found if one and one["node"] == quote(name, safe="")}
    if not lives:
        return 0
    try:
        return int(record_end(directory, NodeId(name, *max(lives)), "failed", DIGESTS))
    except TraceError:
        return 0
