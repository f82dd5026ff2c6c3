"""Ring files: what a tape held, in files of a few MiB, enough for the last minutes. The oldest are deleted, so they go round.

    ring file = MAGIC, header frame, then frames as in segment.py:
                R rows of one configuration (time u64, then rows of tape.py) | C a configuration
                A the address that a number stands for | E how the life ended

1. A ring file stands alone: its header has the configuration in force, the last regular one, whose members the senders are, and
   the numbers of addresses. So the oldest can be deleted at any time.
2. Whole frames are written, unsynced; after a crash a file is read up to its last whole frame. The writer never raises for a
   failing disk: it takes nothing and returns False. The file ends there, and the next one says that something is missing.
3. A new file begins when the tape is empty, or when the configuration in force would differ from that of its first rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple, TypeVar

import msgspec

from transis.trace.files import Appender
from transis.trace.segment import KIND_HEADER, Header, Naming, frame, segment_name, whole_frames
from transis.trace.tape import AddressNumber, DeliveryLog, Piece
from transis.types.errors import TraceError
from transis.types.views import View

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
