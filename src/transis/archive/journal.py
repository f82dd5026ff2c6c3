"""Journals: what an archiver has taken and not yet published, on disk in the order of arrival.

    journal = MAGIC, header frame, frames ..., END   the header holds the mark of the other frames, and has none itself
    frame   = mark, u32 length of payload, u32 checksum, payload = one byte for the kind, then the body
    body    = one self-contained Arrow IPC stream: schema, dictionaries and rows. Where no row has a value in the rare columns
              (most frames hold only messages), these columns are left out.

1. One append is one frame. A crash cuts off at most the last one, which nobody was told is safe.
2. What was appended before a `sync` that returned is acknowledged: a power cut does not lose it, nor the header before it.
3. A disk that takes only a part of a frame has taken nothing: the journal is cut back to the last whole frame.
4. A broken frame ends a journal, as a crash does, unless whole frames follow it: then the disk damaged it. The frames that follow
   are read as well, because rows are numbered and a hole shows. Damage is counted and never raised.
5. The mark is random for each journal and unknown to senders of messages; behind a broken frame, the next one is found by it. The
   checksum covers the mark, the offset in the file and the payload, so that not even a copy of a piece of a journal inside a
   message of that same journal is mistaken for a frame.
6. A journal whose sync failed acknowledges nothing more: the kernel reports lost writes only once.
7. Format 1, which had no marks, can still be read. There the length alone tells where the next frame begins, nothing is searched
   for, and everything behind a broken frame counts as damage.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from io import BufferedReader, FileIO
from pathlib import Path
from typing import Any, Final, NamedTuple
from zlib import crc32

import msgspec
import pyarrow as pa

from transis.archive.rows import COMMON, LATER, SELDOM, STREAM
from transis.process.fork import stays_here
from transis.trace.files import sync
from transis.trace.segment import FRAME
from transis.types.errors import ArchiveError

# --- frames -----------------------------------------------------------------------------------------------------------

MARK_BYTES: Final = 8
UNMARKED: Final = b""

FRAME_MAX: Final = 1 << 30
"""Frames are shorter; a larger length is not a length."""

CHUNK: Final = 1 << 20
"""Bytes searched at a time."""


def frame(mark: bytes, place: int, kind: bytes, body: bytes) -> bytes:
    """The bytes of a frame to be written at offset `place`."""
    payload = kind + body
    return mark + FRAME.pack(len(payload), _checksum(mark, place, payload)) + payload


def size_of(mark: bytes, payload: bytes) -> int:
    return len(mark) + FRAME.size + len(payload)


def payload_at(file: BufferedReader, place: int, mark: bytes) -> bytes | None:
    """The payload of the frame at offset `place`, if a whole one begins there."""
    length, checksum = _head_at(file, place, mark)
    if not 0 < length <= FRAME_MAX:
        return None
    payload = file.read(length)
    return payload if len(payload) == length and _checksum(mark, place, payload) == checksum else None


def next_frame(file: BufferedReader, bad: int, mark: bytes) -> int | None:
    """Where the next whole frame begins behind a broken one."""
    if mark:
        places = _places_of(file, mark, bad + 1)
    else:
        places = iter([bad + FRAME.size + _head_at(file, bad, mark)[0]])
    return next((place for place in places if payload_at(file, place, mark) is not None), None)


def _head_at(file: BufferedReader, place: int, mark: bytes) -> tuple[int, int]:
    """Length and checksum; length 0 if no frame can begin there. Leaves the file at the payload."""
    file.seek(place)
    head = file.read(len(mark) + FRAME.size)
    if len(head) < len(mark) + FRAME.size or not head.startswith(mark):
        return 0, 0
    length, checksum = FRAME.unpack_from(head, len(mark))
    return length, checksum


def _checksum(mark: bytes, place: int, payload: bytes) -> int:
    return crc32(payload, crc32(mark + place.to_bytes(8)) if mark else 0)


def _places_of(file: BufferedReader, mark: bytes, start: int) -> Iterator[int]:
    """Reads instead of mapping the file: a disk error then raises instead of killing the process."""
    while True:
        file.seek(start)
        chunk = file.read(CHUNK)
        at = chunk.find(mark)
        if at >= 0:
            yield start + at
            start += at + 1
        elif len(chunk) < CHUNK:
            return
        else:
            start += CHUNK - len(mark) + 1


# --- journal ----------------------------------------------------------------------------------------------------------

MAGIC: Final = b"transis archive\n"
KIND_HEADER: Final = b"H"
KIND_ROWS: Final = b"A"
KIND_END: Final = b"E"

JOURNAL_FORMAT: Final = 3
READABLE: Final = (1, 2, JOURNAL_FORMAT)

HEADER_MAX: Final = 1024
"""At most so many bytes precede the first frame with rows. No value of a message lies so near the beginning of a file, because
the schema of the first frame alone is longer."""

ROWS_BEGIN: Final = KIND_ROWS + b"\xff\xff\xff\xff"
"""How the payload of every frame with rows begins: its kind, then the marker of an Arrow message."""


class UnreadableJournal(ArchiveError):
    """A journal that is gone, or that the disk cannot read now; it may succeed later."""


class OtherFormat(ArchiveError):
    """A journal in the format of another release."""


class JournalHeader(msgspec.Struct, frozen=True):
    """Whose rows a journal holds. File names say the same; the header is for people who find the file elsewhere."""

    cluster: str
    group: str
    archiver: str
    life: int
    number: int
    mark: bytes = UNMARKED
    format: int = JOURNAL_FORMAT


class Journal:
    """A journal that is being written. Raises OSError if the disk refuses."""

    def __init__(self, path: Path, header: JournalHeader, fdatasync: Callable[[int], None] = os.fdatasync) -> None:
        """Creates the file; one that exists already would belong to another life."""
        self.path = path
        self.size = 0
        self._fdatasync = fdatasync
        self._is_doubtful = False
        self._mark = os.urandom(MARK_BYTES)
        self._file = FileIO(path, "x")
        stays_here(self)
        encoded = msgspec.msgpack.encode(msgspec.structs.replace(header, mark=self._mark))
        try:
            self._write(MAGIC + frame(UNMARKED, len(MAGIC), KIND_HEADER, encoded))
            assert self.size <= HEADER_MAX, "names are short"
            self.sync()
            sync(path.parent)
        except OSError:
            self._file.close()
            path.unlink(missing_ok=True)
            raise

    def descriptors(self) -> list[int]:
        return [] if self._file.closed else [self._file.fileno()]

    def append(self, table: pa.Table) -> None:
        """Append one frame. If the disk refuses it, nothing of it is there."""
        empty = {name for name, _ in SELDOM if table[name].null_count == table.num_rows}
        table = table.select([name for name in STREAM.names if name not in empty])
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        self._write_frame(KIND_ROWS, sink.getvalue().to_pybytes())

    def sync(self) -> None:
        if self._is_doubtful:
            raise OSError(errno.EIO, "a sync of this journal failed before")
        try:
            self._fdatasync(self._file.fileno())
        except OSError:
            self._is_doubtful = True
            raise

    def seal(self) -> Path:
        """Close the journal; returns its path. If the disk has no room for the END frame, the rest still counts."""
        try:
            with suppress(OSError):
                self._write_frame(KIND_END, b"")
            self.sync()
        finally:
            self.release()
        return self.path

    def release(self) -> None:
        """Close the file without sealing it, as the end of a process would."""
        self._file.close()

    def _write_frame(self, kind: bytes, body: bytes) -> None:
        self._write(frame(self._mark, self.size, kind, body))

    def _write(self, content: bytes) -> None:
        rest = memoryview(content)
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError:
            self._file.truncate(self.size)
            self._file.seek(self.size)
            raise
        self.size += len(content)


class _Start(NamedTuple):
    """Where the frames of a journal begin, and their mark."""

    place: int
    mark: bytes


class JournalReader:
    """The appended tables, as far as they are whole; after iterating, `damaged_bytes` counts what is not.

    Raises UnreadableJournal if the disk refuses, and OtherFormat.
    """

    def __init__(self, path: Path) -> None:
        self.damaged_bytes = 0
        self.group: str | None = None
        """The group named in the header, if the header is whole."""
        self._path = path

    def __iter__(self) -> Iterator[pa.Table]:
        self.damaged_bytes = 0
        try:
            with self._path.open("rb") as file:
                yield from self._tables(file)
        except OSError as error:
            raise UnreadableJournal(f"{self._path} cannot be read ({error.strerror or error})") from error

    def _tables(self, file: BufferedReader) -> Iterator[pa.Table]:
        start = self._start(file)
        if start is None:
            return
        for payload in self._payloads(file, *start):
            if payload.startswith(KIND_ROWS):
                table = _table(memoryview(payload)[1:])
                if table is not None:
                    yield table
                else:
                    self.damaged_bytes += size_of(start.mark, payload)

    def _payloads(self, file: BufferedReader, first: int, mark: bytes) -> Iterator[bytes]:
        place: int | None = first
        while place is not None:
            payload = payload_at(file, place, mark)
            if payload is not None:
                yield payload
                place += size_of(mark, payload)
            else:
                bad, place = place, next_frame(file, place, mark)
                end = bad if mark else _size(file)
                self.damaged_bytes += (end if place is None else place) - bad

    # --- header -----------------------------------------------------------------------------------------------------

    def _start(self, file: BufferedReader) -> _Start | None:
        """None if there are no frames, or none that can be distinguished from the content of messages."""
        magic = file.read(len(MAGIC))
        payload = payload_at(file, len(MAGIC), UNMARKED)
        if payload is not None and payload.startswith(KIND_HEADER):
            self.damaged_bytes += 0 if magic == MAGIC else len(MAGIC)
            return _Start(len(MAGIC) + size_of(UNMARKED, payload), self._mark_in(payload[1:]))
        found = _found_start(file)
        is_cut = _size(file) <= HEADER_MAX and (MAGIC.startswith(magic) or not any(magic))
        if not is_cut:
            self.damaged_bytes += _size(file) if found is None else found.place
        return found

    def _mark_in(self, content: bytes) -> bytes:
        fields = msgspec.msgpack.decode(content, type=dict[str, Any])
        its_format = fields.get("format")
        if its_format not in READABLE:
            text = f"{self._path} is a journal of format {its_format}, this release reads {READABLE[0]} to {READABLE[-1]}"
            raise OtherFormat(f"{text}: start an archiver of the release that wrote it, or move the file away")
        header = msgspec.convert(fields, JournalHeader)
        self.group = header.group
        return header.mark


def _found_start(file: BufferedReader) -> _Start | None:
    """The start of a journal with a broken header, if its first frame is whole: that frame holds the mark, too."""
    file.seek(0)
    head = file.read(HEADER_MAX + MARK_BYTES + FRAME.size + len(ROWS_BEGIN))
    place = head.find(ROWS_BEGIN) - FRAME.size - MARK_BYTES
    mark = head[max(0, place) :][:MARK_BYTES]
    return _Start(place, mark) if place > 0 and payload_at(file, place, mark) is not None else None


def _size(file: BufferedReader) -> int:
    return os.fstat(file.fileno()).st_size


def _table(body: memoryview) -> pa.Table | None:
    """The rows, with the columns that were left out or did not exist yet; None if these are not rows of an archive."""
    try:
        with pa.ipc.open_stream(body) as reader:
            table = reader.read_all()
    except (pa.ArrowException, OSError):  # Arrow raises OSError for a stream that is too short.
        return None
    if not all(field.name in STREAM.names and field == STREAM.field(field.name) for field in table.schema):
        return None
    columns = {name: table[name] for name in table.schema.names}
    if any(name not in columns and name not in LATER for name, _ in COMMON):
        return None
    return pa.table([columns.get(field.name, pa.nulls(table.num_rows, field.type)) for field in STREAM], schema=STREAM)
