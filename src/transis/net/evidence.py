"""Looking after what a running node records: segments are sealed, converted and deleted, its flight recorder is kept in bounds.

1. The node never waits: what is slow (looking at files, deleting) runs in a thread, conversion and the export of ring files in
   processes of low priority. Nothing that goes wrong here ends the node.
2. Recording stops before the disk is full, because the node's identity lives on a disk too. What was not recorded is a Gap in
   the trace and a line in the log; recording goes on by itself when there is room.
3. The segment being written is never deleted, nor are files of other nodes in the same directory.
"""

from __future__ import annotations

import asyncio
import logging
import re
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote

import msgspec

from transis.net.runtime import boottime_us, run_apart
from transis.trace.events import Event, Gap
from transis.trace.export import ExportRequest
from transis.trace.flight import KEPT, MB, Flight, FlightLimits, Keep, Tidied, Tidier, forget_half_exported
from transis.trace.recovery import end_previous, seal_open_lives
from transis.trace.segment import CONVERTED, DIGESTS, SEGMENT_BYTES, SUFFIX, SegmentWriter, live_header
from transis.types.config import Config
from transis.types.ids import NodeId

# --- the flight recorder ----------------------------------------------------------------------------------------------

FLIGHT: Final = "flight"
"""Where a flight recorder is in its node's state directory, unless the settings name another place."""
FLIGHT_LOOK_S: Final = 1.0
TIDY_LOOKS: Final = 5
"""The directory is tidied at every so many looks."""
EXPORT_MAX_S: Final = 600.0
"""The time limit of an export: longer than ring files of some minutes take on a busy machine."""

log: Final = logging.getLogger("transis.flight")


class FlightPlan(NamedTuple):
    """Where a node's flight recorder is, and how much it keeps."""

    directory: Path
    limits: FlightLimits = FlightLimits()


def open_flight(plan: FlightPlan, config: Config, node: NodeId, previous: NodeId | None = None) -> Flight:
    """Open the flight recorder of a new life; what earlier lives left open is sealed first, or removed."""
    seal_open_lives(plan.directory, node.name)
    end_previous(plan.directory, previous, DIGESTS)
    forget_half_exported(plan.directory)
    return Flight(plan.directory, live_header(config, node), plan.limits, boottime_us())


class FlightKeeper:
    """Looks after a flight recorder until cancelled. Ring files are exported one by one, and nothing else waits for that."""

    def __init__(self, flight: Flight) -> None:
        self._flight = flight
        self._tidier = Tidier(flight.directory, flight.node.name, flight.limits)
        self._tidied = Tidied(0, 0, 0)
        self._wanted: asyncio.Queue[Keep] = asyncio.Queue()

    async def run(self) -> None:
        exporting = asyncio.create_task(self._export_all(), name="exporting ring files")
        try:
            await self._look_after()
        finally:
            exporting.cancel()
            await asyncio.gather(exporting, return_exceptions=True)

    async def _look_after(self) -> None:
        looks = 0
        while True:
            keep = self._flight.look(boottime_us())
            if keep is not None:
                self._wanted.put_nowait(keep)
            if looks % TIDY_LOOKS == 0:
                with self._disk_errors_logged():
                    await self._tidy()
            looks += 1
            await asyncio.sleep(FLIGHT_LOOK_S)

    async def _export_all(self) -> None:
        while True:
            keep = await self._wanted.get()
            with self._disk_errors_logged():
                await self._export(keep)

    @contextmanager
    def _disk_errors_logged(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            log.warning("the flight recorder's directory %s cannot be looked after: %s", self._flight.directory, error)

    async def _tidy(self) -> None:
        """Delete old files. With too little room on the disk recording pauses until there is enough; both are logged."""
        flight = self._flight
        if not flight.directory.is_dir():
            return
        self._tidied = await asyncio.to_thread(self._tidier.tidy, flight.current, time.time())
        free, wanted = self._tidied.free_bytes, flight.limits.free_mb * MB
        paused = f"only {free} bytes are free, and {wanted} must be" if free < wanted else ""
        if bool(paused) != bool(flight.paused):
            log.warning("the flight recorder %s", f"pauses: {paused}; the node goes on" if paused else "goes on")
        flight.paused = paused

    async def _export(self, keep: Keep) -> None:
        directory = self._flight.directory
        numbers = [int(path.name[:6]) for path in (directory / KEPT).glob("[0-9]*") if path.name[:6].isdigit()]
        name = f"{max(numbers, default=0) + 1:06d}-R{keep.view.seq}-{quote(keep.view.rep.name, safe='')}"
        wanted = ExportRequest(keep.from_us, keep.to_us, why=f"the view changed to {keep.view}", around=str(keep.view))
        command = (str(directory), str(directory / KEPT / name), msgspec.json.encode(wanted).decode())
        try:
            async with asyncio.timeout(EXPORT_MAX_S):
                code, complaint = await run_apart("transis.trace.export", *command)
        except TimeoutError:
            code, complaint = 1, f"it took longer than {EXPORT_MAX_S:g} s"
        if code:
            log.warning("the ring files around %s were not exported: %s", keep.view, complaint)

    def statistics(self) -> dict[str, int | str]:
        figures: dict[str, int | str] = {"flight": self._flight.paused or "recording", "flight_bytes": self._tidied.bytes}
        return figures | {"flight_kept": self._tidied.kept, "flight_dropped": self._flight.dropped}


# --- the trace directory ----------------------------------------------------------------------------------------------

trace_log: Final = logging.getLogger("transis.trace")

RETENTION_LOOK_S: Final = 5.0
"""Seconds between two looks at the directory."""
PARQUET: Final = "parquet"
"""The folder beside the segments that their tables go to."""
DAY_S: Final = 86_400

_NAME: Final = re.compile(r"(?P<node>.+)-(?P<incarnation>\d+)-[0-9a-f]{16}-(?P<number>\d{6,})" + re.escape(SUFFIX))


class TraceLimits(NamedTuple):
    """What is kept of a trace directory."""

    keep_bytes: int
    keep_s: int
    free_bytes: int
    parquet: bool = False


class TracePlan(NamedTuple):
    """Where a node's trace goes, and when a segment is sealed. Without limits nothing is deleted, and no segment is too old."""

    directory: Path
    segment_bytes: int = SEGMENT_BYTES
    segment_age_us: int = 0
    limits: TraceLimits | None = None


class KeptSegment(NamedTuple):
    """A segment on disk with its tables; ordered from the oldest on."""

    incarnation: int
    number: int
    path: Path
    bytes: int
    written_s: float
    tables: tuple[Path, ...]

    @property
    def is_converted(self) -> bool:
        return any(table.name.startswith(f"{CONVERTED}-") for table in self.tables)


class TraceLook(NamedTuple):
    """What a look at the directory found and did."""

    free_bytes: int
    kept_bytes: int
    deleted: tuple[str, ...]
    to_convert: tuple[Path, ...]


# --- files ----------------------------------------------------------------------------------------------------------


def list_segments(directory: Path, node: str) -> list[KeptSegment]:
    tables: dict[str, list[Path]] = {}
    for table in (directory / PARQUET).glob("*.parquet"):
        tables.setdefault(table.stem.partition("-")[2], []).append(table)
    found = []
    for path in directory.glob(f"*{SUFFIX}"):
        match = _NAME.fullmatch(path.name)
        if match is not None and match["node"] == quote(node, safe=""):
            own = tuple(sorted(tables.get(path.stem, ())))
            status = path.stat()
            size = status.st_size + sum(table.stat().st_size for table in own)
            found.append(KeptSegment(int(match["incarnation"]), int(match["number"]), path, size, status.st_mtime, own))
    return sorted(found)


def look(directory: Path, node: str, current: str, limits: TraceLimits, now_s: float) -> TraceLook:
    """Delete what is too old or too much, the oldest first, never the segment that is being written."""
    segments = list_segments(directory, node)
    total = sum(segment.bytes for segment in segments)
    deleted: list[str] = []
    for segment in segments:
        too_old = now_s - segment.written_s > limits.keep_s
        if segment.path.name == current or not (too_old or total > limits.keep_bytes):
            continue
        _delete(segment)
        total -= segment.bytes
        deleted.append(segment.path.name)
    left = [segment for segment in segments if segment.path.name not in {current, *deleted}]
    to_convert = tuple(segment.path for segment in left if limits.parquet and not segment.is_converted)
    return TraceLook(shutil.disk_usage(directory).free, total, tuple(deleted), to_convert)


def _delete(segment: KeptSegment) -> None:
    """Delete tables first: a half-deleted segment is converted again, but tables without their segment would stay forever."""
    for path in (*segment.tables, segment.path):
        path.unlink(missing_ok=True)


# --- the running node -----------------------------------------------------------------------------------------------


class KeptSink:
    """Where the recorder's events go. Takes nothing while recording is paused, so the recorder leaves a Gap."""

    def __init__(self, writer: SegmentWriter, age_max_us: int, now_us: Callable[[], int]) -> None:
        self._writer = writer
        self._age_max_us = age_max_us
        self._now_us = now_us
        self._seen, self._seen_us = "", 0
        self.paused = ""
        self.dropped = 0

    def write(self, events: Sequence[Event]) -> bool:
        if not self.paused and not self._writer.write(events):
            self.paused = "the disk did not take what was written"
        if self.paused:
            self.dropped += sum(type(event) is not Gap for event in events)
        return not self.paused

    def seal_if_old(self) -> None:
        """Seal the open segment if it is old. Its age counts from the first look that finds it."""
        now = self._now_us()
        if self._writer.current != self._seen:
            self._seen, self._seen_us = self._writer.current, now
        elif self._seen and now - self._seen_us >= self._age_max_us:
            self._writer.seal()

    @property
    def current(self) -> str:
        return self._writer.current

    def close(self) -> None:
        self._writer.close()


def _say(level: int, sentence: str, **parts: object) -> None:
    """One line for the operator: the sentence for people, and its parts for machines."""
    trace_log.log(level, "%s", sentence, extra={"event": "trace", "parts": parts})


class Retention:
    """Looks after one node's directory until it is stopped."""

    def __init__(self, directory: Path, node: str, sink: KeptSink, limits: TraceLimits, look_s: float = RETENTION_LOOK_S) -> None:
        self._directory = directory
        self._node = node
        self._sink = sink
        self._limits = limits
        self._look_s = look_s
        self._was_paused = False
        self._dropped_before = 0
        self._unreadable: set[Path] = set()
        self.kept_bytes = 0
        self.deleted = 0
        self.converted = 0

    async def run(self) -> None:
        """Run until cancelled. Whatever goes wrong here is logged and tried again."""
        while True:
            try:
                await self.once()
            except OSError as error:
                _say(logging.WARNING, f"the trace directory {self._directory} cannot be looked after: {error}")
            await asyncio.sleep(self._look_s)

    async def once(self) -> None:
        """One look, and what follows from it."""
        self._sink.seal_if_old()
        arguments = (self._directory, self._node, self._sink.current, self._limits, time.time())
        found = await asyncio.to_thread(look, *arguments)
        self.follow(found)
        for path in found.to_convert:
            if path not in self._unreadable:
                await self._convert(path)

    def follow(self, found: TraceLook) -> None:
        self.kept_bytes = found.kept_bytes
        self.deleted += len(found.deleted)
        if found.deleted:
            sentence = f"deleted {len(found.deleted)} old trace segments; {found.kept_bytes} bytes are kept"
            _say(logging.INFO, sentence, deleted=list(found.deleted), kept_bytes=found.kept_bytes)
        short = found.free_bytes < self._limits.free_bytes
        self._pause_or_go_on(f"only {found.free_bytes} bytes are free, and {self._limits.free_bytes} must be" if short else "")

    def _pause_or_go_on(self, too_little: str) -> None:
        """A write that failed with room on the disk is simply tried again; only a pause that lasts is logged."""
        paused = bool(self._sink.paused or too_little)
        if paused and not self._was_paused:
            self._tell_paused(too_little or self._sink.paused)
        elif self._was_paused and not paused:
            lost = self._sink.dropped - self._dropped_before
            _say(logging.WARNING, f"recording goes on; {lost} events were not recorded, the trace has a gap", lost=lost)
        if not paused:
            self._dropped_before = self._sink.dropped
        self._sink.paused = too_little
        self._was_paused = paused

    def _tell_paused(self, why: str) -> None:
        sentence = f"recording pauses: {why}; the node goes on, and recording does when there is room in {self._directory}"
        _say(logging.WARNING, sentence, directory=str(self._directory))

    async def _convert(self, path: Path) -> None:
        """One at a time, in a process of low priority: conversion is heavy and in no hurry."""
        code, complaint = await run_apart("transis.trace.columns", str(path), str(self._directory / PARQUET))
        if code == 0:
            self.converted += 1
        elif path.exists():
            self._unreadable.add(path)
            _say(logging.WARNING, f"{path.name} was not converted to Parquet: {complaint or 'no reason given'}")

    def statistics(self) -> dict[str, int | str]:
        figures: dict[str, int | str] = {"trace": self._sink.paused or "recording", "trace_bytes": self.kept_bytes}
        return figures | {"trace_dropped_events": self._sink.dropped, "trace_deleted_segments": self.deleted}
