"""Export: a part of ring files becomes ordinary trace segments, which `transis audit` and `transis report` read.

Each life gives one sealed segment: the configuration in force, a Gap for what came before, then deliveries and configurations as
they were recorded. So an audit has a stay to work with and knows that its beginning is missing: obligations are pending,
violations are found. Sizes are 0, and what was sent and what clients got is not recorded.

    python -m transis.trace.export DIRECTORY OUT '{"from_us": 1, "to_us": 2, "why": "..."}'

is how a node exports: in a separate process of low priority, into a directory that appears when it is complete.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import chain, groupby, islice
from pathlib import Path
from typing import Final

import msgspec

from transis.trace.events import Conf, Delivery, End, Event, Gap
from transis.trace.files import rename
from transis.trace.flight import (
    EXPORTING,
    RING_FILES,
    DeliveryRows,
    InstalledView,
    RingFile,
    RingFileFrame,
    RingFileHeader,
    read_ring_file,
)
from transis.trace.segment import Header, SegmentWriter, segment_name
from transis.trace.tape import AddressNumber, TapedRow, rows_of, runs_of
from transis.types.errors import TraceError, TransisError
from transis.types.ids import NodeId, ProcessId, ViewId
from transis.types.views import View

ANY: Final = 1 << 62
BATCH: Final = 4096
"""Events written at a time."""
WHY: Final = "why.json"
EXAMPLE: Final = '{"from_us": 1, "to_us": 2, "why": "..."}'
USAGE: Final = f"python -m transis.trace.export DIRECTORY OUT '{EXAMPLE}'"


class ExportRequest(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What to export: everything between two times of the nodes' clocks, or the messages between two positions (tpos) of a
    regular configuration and its successor; up to the next regular configuration if the last position is not reached."""

    from_us: int = 0
    to_us: int = ANY
    regular: ViewId | None = None
    first: int = 0
    last: int = ANY
    why: str = ""
    around: str = ""
    """What the export is about. Exports about one thing are one run, whichever nodes they come from. Exports about different
    things may overlap, and judged together they would be two accounts of the same events."""


def export_wanted(directories: Iterable[Path], wanted: ExportRequest, out: Path) -> list[Path]:
    """Write a segment to `out` for every life with something wanted in ring files below these directories; returns the paths.

    A ring file that cannot be read is skipped: it may just have been deleted.
    """
    lives = groupby(_ring_files(directories), key=lambda path: path.name.rpartition("-")[0])
    return [path for _, of_life in lives if (path := _export_life(of_life, wanted, out)) is not None]


def _ring_files(directories: Iterable[Path]) -> list[Path]:
    """Ring files by name, each once. Names are unique, so files of one name are copies; the longest one counts."""
    found: dict[str, tuple[int, Path]] = {}
    walked = (place for directory in directories for place in os.walk(directory, followlinks=True))
    for path in (Path(place, name) for place, _, names in walked for name in names if name.endswith(RING_FILES.suffix)):
        with suppress(OSError):
            size = path.stat().st_size
            if path.name not in found or size > found[path.name][0]:
                found[path.name] = (size, path)
    return [found[name][1] for name in sorted(found)]


def _export_life(paths: Iterable[Path], wanted: ExportRequest, out: Path) -> Path | None:
    life = _ExportedLife(wanted)
    events = life.events(_readable(paths))
    first = next(events, None)
    if first is None:
        return None
    assert life.header is not None, "events come from ring files, which have headers"
    run = f"{life.header.run} around {wanted.around}" if wanted.around else life.header.run
    header = msgspec.structs.replace(life.header, number=1, run=run)
    writer, rest = SegmentWriter(out, header, limit_bytes=ANY), chain([first], events)
    while batch := list(islice(rest, BATCH)):
        if not writer.write(batch):
            raise TraceError(f"{out}: the disk refused the export")
    writer.close()
    return out / segment_name(header)


def _readable(paths: Iterable[Path]) -> Iterator[RingFile]:
    for path in paths:
        with suppress(OSError, TraceError):
            yield read_ring_file(path)


class _ExportedLife:
    """The ring files of one life, turned into the wanted events."""

    def __init__(self, wanted: ExportRequest) -> None:
        self.header: Header | None = None
        self._wanted = wanted
        self._view: View | None = None
        self._regular: View | None = None
        self._addresses: dict[int, bytes] = {}
        self._nodes: dict[int, NodeId] = {}
        self._lseq = self._time_us = 0
        self._began = self._done = self._torn = False

    def events(self, files: Iterable[RingFile]) -> Iterator[Event]:
        for file in files:
            yield from self._open(file.header)
            try:
                for frame in file.frames:
                    yield from self._take(frame)
                    if self._done:
                        return
            except TraceError:
                self._torn = True  # Perhaps a frame of a later version: the rest of this file is missing.

    def _open(self, header: RingFileHeader) -> Iterator[Event]:
        """What is in force. A missing file, or a time in which the disk refused, is a gap."""
        before, self.header = self.header, header.life
        self._addresses = dict(header.addresses)
        was_in_force = self._view
        for view in (header.regular, header.view):
            if view is not None:
                self._install(view)
        torn, self._torn = self._torn or header.is_torn_off, False
        if self._began and (torn or before is None or header.life.number != before.number + 1):
            yield self._gap(self._time_us)
            if header.view is not None and header.view != was_in_force:
                yield Conf(self._next(), self._time_us, header.view)

    def _take(self, frame: RingFileFrame) -> Iterator[Event]:
        if isinstance(frame, AddressNumber):
            self._addresses[frame.number] = frame.address
            return
        self._time_us = frame.time_us
        if frame.time_us > self._wanted.to_us:
            self._done = True
        elif isinstance(frame, DeliveryRows):
            if frame.time_us >= self._wanted.from_us:
                yield from self._deliveries(frame)
        elif isinstance(frame, InstalledView):
            yield from self._configured(frame)
        elif self._began:
            yield End(self._next(), frame.time_us, frame.how)
            self._done = True

    def _configured(self, frame: InstalledView) -> Iterator[Event]:
        view, wanted = frame.view, self._wanted
        if not self._began and frame.time_us >= wanted.from_us and (wanted.regular is None or wanted.regular == view.id):
            yield from self._begin(frame.time_us)
        self._install(view)
        if self._began:
            yield Conf(self._next(), frame.time_us, view)
            self._done = view.id.is_regular and wanted.regular not in (None, view.id)

    def _deliveries(self, frame: DeliveryRows) -> Iterator[Event]:
        view = self._view
        if view is None or self._wanted.regular not in (None, view.regular):
            return
        for row in rows_of(frame.rows):
            if self._is_wanted(row.tpos, row.messages):
                yield from () if self._began else self._begin(frame.time_us)
                yield from self._runs(row, frame.time_us, view)
            self._done = self._done or row.tpos > self._wanted.last

    def _runs(self, row: TapedRow, time_us: int, view: View) -> Iterator[Event]:
        process = ProcessId(self._nodes.get(row.boot, NodeId("?", 0, row.boot)), row.number)
        address = self._addresses.get(row.address, b"")
        for first, count, place, tpos in runs_of(row):
            if self._is_wanted(tpos, count):
                what = (process, first, count, row.service, address, place, tpos, row.origin_us, row.timestamp, 0)
                yield Delivery(self._next(), time_us, view.id, view.regular, *what)

    def _is_wanted(self, tpos: int, count: int) -> bool:
        """Unordered messages are wanted together with those around them."""
        if tpos < 0:
            return self._began or self._wanted.regular is None
        return tpos + count > self._wanted.first and tpos <= self._wanted.last

    def _begin(self, time_us: int) -> Iterator[Event]:
        """The configuration in force, and gaps for what is missing: what came before, and everything that was sent."""
        self._began = True
        if self._view is None:
            yield self._gap(time_us)
        in_force = [self._regular] if self._regular == self._view else [self._regular, self._view]
        for view in in_force:
            if view is not None:
                yield Conf(self._next(), time_us, view)
                yield self._gap(time_us)

    def _install(self, view: View) -> None:
        self._view = view
        if view.id.is_regular:
            self._regular = view
            self._nodes = {node.boot: node for node in view.nodes}

    def _gap(self, time_us: int) -> Gap:
        missing = self._next()
        return Gap(self._next(), time_us, missing, missing)

    def _next(self) -> int:
        self._lseq += 1
        return self._lseq


def main(arguments: list[str]) -> int:
    try:
        directory, out, wanted = _asked_for(arguments)
        _export_aside(directory, wanted, out)
    except (TransisError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def _asked_for(arguments: list[str]) -> tuple[Path, Path, ExportRequest]:
    if len(arguments) != 3:
        raise TraceError(f"{len(arguments)} arguments were given, three are needed: {USAGE}")
    directory, out, wanted = arguments
    if not Path(directory).is_dir():
        raise TraceError(
            f"DIRECTORY = {directory!r}: there is no such directory; give one with ring files (*{RING_FILES.suffix}) in it"
        )
    try:
        return Path(directory), Path(out), msgspec.json.decode(wanted, type=ExportRequest)
    except msgspec.MsgspecError as error:
        raise TraceError(f"WANTED = {wanted!r}: {error}; it is JSON such as {EXAMPLE}") from error


def _export_aside(directory: Path, wanted: ExportRequest, out: Path) -> None:
    """The export appears under its name once it is complete."""
    aside = out.with_name(f"{EXPORTING}{out.name}")
    try:
        shutil.rmtree(aside, ignore_errors=True)
        if not export_wanted([directory], wanted, aside):
            raise TraceError(f"no ring file in {directory} has anything of what was asked for")
        (aside / WHY).write_bytes(msgspec.json.encode(wanted))
        rename(aside, out)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
