"""The flight recorder: always on, bounded, cheap. Digests of what a node delivered, for a follower to compare, and ring files of
the last minutes, for when something is wrong.

    DIRECTORY/life-NAME-INC-BOOT-000017.digests        sealed segments: Conf, Prefix, CheckpointEvent, End
    DIRECTORY/life-NAME-INC-BOOT-000018.digests.open   being written
    DIRECTORY/life-NAME-INC-BOOT-000004.film           what was delivered: a ring file
    DIRECTORY/kept/000003-R12-ann/                     exported around a change of the view (export.py)

1. It is an observer: the node never waits and never fails for it. A disk that refuses makes ring files pause, which their headers
   say, and leaves a Gap in the digests. The sums go on.
2. It writes a few times a second while there are outputs, and at every `look`, once a second. Neither reads a directory: only
   tidying does, in a thread.
3. Every file of digests begins with the configuration in force, so that a reader of only the newest knows whom to wait for.
4. kill -9 loses a fifth of a second of both; the next life seals what this one left open and writes its end.
5. What is too old or too much is deleted, the oldest first. A day has 8,640 sealed files, and to ask the system for each of them
   every few seconds would cost the node as much as all recording: only the directory is read every time. A file that is not being
   written never changes again, and what is exported appears whole, so each is asked for once.

A ring file is a few MiB of what a tape held; the oldest are deleted, so they go round:

    ring file = MAGIC, header frame, then frames as in segment.py:
                R rows of one configuration (time u64, then rows of tape.py) | C a configuration
                A the address that a number stands for | E how the life ended

6. A ring file stands alone: its header has the configuration in force, the last regular one, whose members the senders are, and
   the numbers of addresses. So the oldest can be deleted at any time.
7. Whole frames are written, unsynced; after a crash a file is read up to its last whole frame. The writer never raises for a
   failing disk: it takes nothing and returns False. The file ends there, and the next one says that something is missing.
8. A new file begins when the tape is empty, or when the configuration in force would differ from that of its first rows.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple, TypeVar
from urllib.parse import quote

import msgspec

from transis.trace.events import Event, Gap
from transis.trace.files import Appender
from transis.trace.recorder import Recorder
from transis.trace.segment import DIGESTS, KIND_HEADER, Header, Naming, SegmentWriter, frame, segment_name, whole_frames
from transis.trace.tape import AddressNumber, DeliveryLog, Piece, PrefixDigest
from transis.types.errors import TraceError
from transis.types.ids import NodeId, ViewId
from transis.types.outputs import Checkpoint, Configure, Delivered, NodeOutput, Observer
from transis.types.views import View

# --- ring files -------------------------------------------------------------------------------------------------------

MAGIC: Final = b"transis film\n"
RING_FILES: Final = Naming("life-", ".film")
RING_FILE_BYTES: Final = 4 << 20
"""A file ends beyond this size. Files are deleted whole, so this is also how much goes at once."""

_ROWS, _CONF, _ADDRESS, _END = b"R", b"C", b"A", b"E"
_TIME: Final = Struct("<Q")

Body = TypeVar("Body")


class RingFileHeader(msgspec.Struct, frozen=True):
    """The life that wrote the file, and what was in force when it began."""

    life: Header
    view: View | None
    regular: View | None
    addresses: list[tuple[int, bytes]]
    is_torn_off: bool
    """Something before it is missing, because the disk refused it."""


class DeliveryRows(NamedTuple):
    """Deliveries of one configuration, as rows of tape.py."""

    time_us: int
    rows: memoryview


class InstalledView(NamedTuple):
    """A configuration was installed."""

    time_us: int
    view: View


class LifeEnd(NamedTuple):
    time_us: int
    how: str


RingFileFrame = DeliveryRows | InstalledView | AddressNumber | LifeEnd


class RingFile(NamedTuple):
    path: Path
    header: RingFileHeader
    frames: Iterator[RingFileFrame]


class RingFileWriter:
    """Writes the ring files of one life, one after the other. `tape` knows what is in force when one begins."""

    def __init__(self, directory: Path, life: Header, tape: DeliveryLog) -> None:
        self._directory = directory
        self._life = life
        self._tape = tape
        self._file: Appender | None = None
        self._lost = False
        self.began_us = 0

    @property
    def current(self) -> str:
        return self._file.path.name if self._file is not None else ""

    @property
    def size(self) -> int:
        return self._file.size if self._file is not None else 0

    def write(self, now_us: int, pieces: Iterable[Piece]) -> bool:
        """Append what was taken from the tape; False if the disk refuses."""
        if self._file is not None and self._file.append(b"".join(_frame_of(now_us, piece) for piece in pieces)):
            return True
        return self.skip()

    def begin(self, now_us: int) -> bool:
        """Begin a file and end the one before. The tape must be empty. False if the disk refuses."""
        self.end()
        tape = self._tape
        addresses = sorted((number, address) for address, number in tape.addresses.items())
        header = RingFileHeader(self._life, tape.view, tape.regular, addresses, self._lost)
        try:
            self._file = Appender(self._directory / segment_name(self._life, RING_FILES))
        except OSError:
            return False
        self._life = msgspec.structs.replace(self._life, number=self._life.number + 1)
        self.began_us = now_us
        if self._file.append(MAGIC + frame(KIND_HEADER, msgspec.msgpack.encode(header))):
            self._lost = False
            return True
        with suppress(OSError):
            self._file.discard()
        self._file = None
        return False

    def skip(self) -> bool:
        """What was taken from the tape is not written: the file ends here."""
        self.end()
        self._lost = True
        return False

    def over(self, now_us: int, how: str) -> None:
        if self._file is not None:
            self._file.append(frame(_END, msgspec.msgpack.encode((now_us, how))))
        self.end()

    def end(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _frame_of(now_us: int, piece: Piece) -> bytes:
    if isinstance(piece, bytes):
        return frame(_ROWS, _TIME.pack(now_us) + piece)
    if isinstance(piece, AddressNumber):
        return frame(_ADDRESS, msgspec.msgpack.encode(piece))
    return frame(_CONF, msgspec.msgpack.encode((now_us, piece)))


def read_ring_file(path: Path) -> RingFile:
    """A ring file up to its last whole frame. Any other file raises TraceError."""
    content = path.read_bytes()
    if not content.startswith(MAGIC):
        raise TraceError(f"{path.name}: byte 0: not a ring file")
    frames = whole_frames(content, len(MAGIC))
    kind, body = next(frames, (b"", memoryview(b"")))
    if kind != KIND_HEADER:
        raise TraceError(f"{path.name}: byte {len(MAGIC)}: the header is cut off")
    return RingFile(path, _decoded(path, body, RingFileHeader), _frames(path, frames))


def _frames(path: Path, frames: Iterator[tuple[bytes, memoryview]]) -> Iterator[RingFileFrame]:
    for kind, body in frames:
        if kind == _ROWS and len(body) >= _TIME.size:
            yield DeliveryRows(_TIME.unpack_from(body)[0], body[_TIME.size :])
        elif kind == _CONF:
            yield _decoded(path, body, InstalledView)
        elif kind == _ADDRESS:
            yield _decoded(path, body, AddressNumber)
        elif kind == _END:
            yield _decoded(path, body, LifeEnd)


def _decoded(path: Path, body: memoryview, kind: type[Body]) -> Body:
    try:
        return msgspec.msgpack.decode(body, type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise TraceError(f"{path.name}: no {kind.__name__.lower()}: {error}") from error


# --- tidying ----------------------------------------------------------------------------------------------------------

KEPT: Final = "kept"
"""Where exports around changes of the view go."""
EXPORTING: Final = ".exporting-"
"""Prefix of an incomplete export."""
MB: Final = 1 << 20


class FlightLimits(NamedTuple):
    """How much is kept, and when; docs/watching.md says what each is good for."""

    seal_s: int = 10
    minutes: int = 5
    films_mb: int = 64
    kept_mb: int = 256
    digests_hours: int = 24
    before_s: int = 30
    after_s: int = 10
    free_mb: int = 256


class Tidied(NamedTuple):
    """What a look at the directory found and left."""

    bytes: int
    kept: int
    free_bytes: int


class _FileFacts(NamedTuple):
    written_s: float
    size: int


class Tidier:
    """Tidies one node's directory; `tidy` is called now and then."""

    def __init__(self, directory: Path, name: str, limits: FlightLimits) -> None:
        self._directory = directory
        self._begins = f"{RING_FILES.prefix}{quote(name, safe='')}-"
        self._limits = limits
        self._known: dict[str, _FileFacts] = {}

    def tidy(self, current: frozenset[str], now_s: float) -> Tidied:
        """Delete what is too old or too much of this node, never a file that is being written (`current`)."""
        mine = [name for name in _names(self._directory) if name.startswith(self._begins) and name not in current]
        ring_files = [name for name in mine if name.endswith(RING_FILES.suffix)]
        digests = [name for name in mine if name.endswith(DIGESTS.suffix)]
        kept = [f"{KEPT}/{name}" for name in _names(self._directory / KEPT) if name[:1].isdigit()]
        self._look_at([*ring_files, *digests, *kept])
        limits = self._limits
        self._keep_newest(ring_files, limits.films_mb * MB - RING_FILE_BYTES, now_s - limits.minutes * 60)
        self._keep_newest(digests, limits.kept_mb * MB, now_s - limits.digests_hours * 3600)
        self._keep_newest(kept, limits.kept_mb * MB, 0)
        total = sum(found.size for found in self._known.values()) + sum(_found(self._directory / name).size for name in current)
        left = sum(name in self._known for name in kept)
        return Tidied(total, left, shutil.disk_usage(self._directory).free)

    def _look_at(self, names: Iterable[str]) -> None:
        """Remember size and time of these files and of no others."""
        known = self._known
        self._known = {name: known.get(name) or _found(self._directory / name) for name in names}

    def _keep_newest(self, names: Iterable[str], bytes_max: int, since_s: float) -> None:
        stays = 0
        for (written_s, size), name in sorted(((self._known[name], name) for name in names), reverse=True):
            if written_s >= since_s and stays + size <= bytes_max:
                stays += size
            elif _delete(self._directory / name):
                del self._known[name]


def _names(directory: Path) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError:
        return []


def _found(path: Path) -> _FileFacts:
    """Zeros for what has gone meanwhile. A directory has the size of its files."""
    try:
        stat = path.stat()
        size = sum(file.stat().st_size for file in path.iterdir()) if path.is_dir() else stat.st_size
    except OSError:
        return _FileFacts(0.0, 0)
    return _FileFacts(stat.st_mtime, size)


def _delete(path: Path) -> bool:
    try:
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    except OSError:
        return False
    return True


# --- flight -----------------------------------------------------------------------------------------------------------

FRAME_BYTES: Final = 64 << 10
"""Rows on the tape that are written at once,"""
FRAME_US: Final = 200_000
"""or when they are so old."""
CHECKPOINTS_MAX: Final = 4096
"""Checkpoints of all processes between two writes; more are dropped."""
EVENTS_MAX: Final = 16_384
"""Events of one write; more are a Gap."""
RING_FILES_KEPT: Final = 5
"""Ring files that share the minutes that are kept: one is deleted at a time."""
SECOND_US: Final = 1_000_000


class Keep(NamedTuple):
    """An export to make: around the change to this view, between these times."""

    view: ViewId
    from_us: int
    to_us: int


class Flight(Observer):
    """The flight recorder of one life, from before its node starts. `life` is the first header of its segments."""

    kinds = frozenset({Delivered, Configure, Checkpoint})
    keeps_evidence = True

    def __init__(self, directory: Path, life: Header, limits: FlightLimits, now_us: int) -> None:
        self.directory = directory
        self.tape = DeliveryLog()
        self.limits = limits
        self.paused = ""
        self.dropped = 0
        self._digests = SegmentWriter(directory, life, naming=DIGESTS)
        self._recorder = Recorder(life.node, self, EVENTS_MAX)
        self._ring_files = RingFileWriter(directory, life, self.tape)
        self._ring_files.begin(now_us)
        self._now_us = self._written_us = self._sealed_us = now_us
        self._checkpoints: list[Checkpoint] = []
        self._changes: list[tuple[int, ViewId]] = []
        self._view: View | None = None
        self._closed = False

    @property
    def node(self) -> NodeId:
        return self._recorder.node

    @property
    def current(self) -> frozenset[str]:
        """Files that are being written."""
        return frozenset({self._digests.current, self._ring_files.current} - {""})

    def observe(self, now_us: int, outputs: Sequence[NodeOutput]) -> None:
        """Called for every turn of a busy ring."""
        self._now_us = now_us
        tape = self.tape
        for output in outputs:
            kind = type(output)
            if kind is Delivered:
                tape.add(output)  # type: ignore[arg-type]  # `kind` says what it is, and isinstance is not free
            elif kind is Configure:
                tape.configured(output.view)  # type: ignore[union-attr, arg-type]
            elif kind is Checkpoint:
                self._checkpoint(output)  # type: ignore[arg-type]

    def flush(self) -> None:
        if self._now_us - self._written_us >= FRAME_US or self.tape.size >= FRAME_BYTES:
            self._write(self._now_us)

    def look(self, now_us: int) -> Keep | None:
        """Called now and then: seal digests that are old enough; return the export that is due, if one is."""
        if self._closed:
            return None
        self._write(now_us)
        if not self._digests.current:
            self._sealed_us = now_us
        elif now_us - self._sealed_us >= self.limits.seal_s * SECOND_US:
            self._digests.seal()
            self._sealed_us = now_us
        return self._due(now_us)

    def _checkpoint(self, checkpoint: Checkpoint) -> None:
        """Keep a checkpoint until what its process had been delivered, which is still on the tape, is written."""
        if len(self._checkpoints) < CHECKPOINTS_MAX:
            self._checkpoints.append(checkpoint)
        else:
            self.dropped += 1

    def close(self, now_us: int, how: str) -> None:
        """The life is over; `how` says in which way."""
        if self._closed:
            return
        self._closed = True
        self._write(now_us)
        self._recorder.close(now_us, how)
        self._digests.close()
        self._ring_files.over(now_us, how)

    def write(self, events: Sequence[Event]) -> bool:
        """The sink of the recorder of digests."""
        taken = not self.paused and self._digests.write(events)
        self.dropped += 0 if taken else sum(not isinstance(event, Gap) for event in events)
        return taken

    def _write(self, now_us: int) -> None:
        self._written_us = now_us
        pieces, digests = self.tape.take(now_us)
        if pieces and (self.paused or not self._ring_files.write(now_us, pieces)):
            self.dropped += len(pieces)
            self._ring_files.skip()
        if not self.paused and (not self._ring_files.current or self._is_full(now_us)):
            self._ring_files.begin(now_us)
        if (digests or self._checkpoints) and not self._digests.current and self._view is not None:
            self._recorder.observe(now_us, [Configure(self._view)])
        for digest in digests:
            self._record(now_us, digest)
        checkpoints, self._checkpoints = self._checkpoints, []
        self._recorder.observe(now_us, checkpoints)
        self._recorder.flush()

    def _record(self, now_us: int, digest: View | PrefixDigest) -> None:
        if not isinstance(digest, View):
            self._recorder.prefix(now_us, digest)
            return
        self._view = digest
        self._recorder.observe(now_us, [Configure(digest)])
        if digest.id.is_regular:
            self._changes.append((now_us, digest.id))

    def _is_full(self, now_us: int) -> bool:
        age_max_us = self.limits.minutes * 60 * SECOND_US // RING_FILES_KEPT
        return self._ring_files.size > RING_FILE_BYTES or now_us - self._ring_files.began_us > age_max_us

    # --- around changes of the view ---------------------------------------------------------------------------------

    def _due(self, now_us: int) -> Keep | None:
        """Changes that follow each other closely are kept together."""
        if not self._changes:
            return None
        before_us, after_us = self.limits.before_s * SECOND_US, self.limits.after_s * SECOND_US
        (first_us, _), (last_us, view) = self._changes[0], self._changes[-1]
        if now_us < min(last_us + after_us, first_us + before_us + after_us):
            return None
        self._changes.clear()
        return Keep(view, first_us - before_us, now_us)


def forget_half_exported(directory: Path) -> None:
    """Remove what a killed export left behind. Call it while no export runs there."""
    for aside in (directory / KEPT).glob(f"{EXPORTING}*"):
        shutil.rmtree(aside, ignore_errors=True)
