"""Journals: acknowledged before published.

Journals: what an archiver has taken and not published yet, on disk in the order it came.

    journal = MAGIC, header frame, frames ..., END       frames.py; the header tells the mark of the others, and has none
    frame   = one self-contained Arrow IPC stream: schema, dictionaries and rows; where no row has any of the rare columns (most
              frames are messages only), they are left out

1. One append is one frame. What a crash cuts off is at most the last one, and nobody was told that it is safe.
2. What was appended before a `sync` that returned is acknowledged: a power cut does not lose it, and the header is safe before.
3. A disk that takes only a part of a frame has taken nothing: the journal is cut back to the last whole one.
4. A frame that is not whole ends a journal, as a crash does, unless whole ones are behind it: then the disk damaged it. These are
   read as well, for rows are numbered and a hole in them shows. Damage is counted and never raised.
5. A journal of which a sync failed acknowledges nothing any more: the kernel tells once of writes that it lost.
6. Format 1, which had no marks, is read still. What is behind a frame that is not whole there counts as damage.

The frames of a journal, such that nothing which a message holds is ever taken for one.

    frame = mark, u32 length of payload, u32 checksum, payload = one byte for the kind, then the body

The mark is drawn at random for each journal: nobody who sends messages knows it, and behind a frame that is not whole the next
one is found by it. The checksum is that of the mark, of the place in the file, and of the payload, so that a copy of a part of a
journal inside of a message of that very journal is no frame either. Journals of format 1 have no mark, which is an empty one
here: there the length alone says where the next frame begins, and nothing is searched for.
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

from transis.archive.rows import COMMON, RARE, STREAM
from transis.trace.files import sync
from transis.trace.segment import FRAME
from transis.types.errors import ArchiveError

# --- frames -----------------------------------------------------------------------------------------------------------

MARK_BYTES: Final = 8
UNMARKED: Final = b""

FRAME_MAX: Final = 1 << 30
"""No frame is so long: a length beyond it is not one."""

CHUNK: Final = 1 << 20
"""What is searched at a time."""


def frame(mark: bytes, place: int, kind: bytes, body: bytes) -> bytes:
    """To be written at this place of the file."""
    payload = kind + body
    return mark + FRAME.pack(len(payload), _checksum(mark, place, payload)) + payload


def size_of(mark: bytes, payload: bytes) -> int:
    return len(mark) + FRAME.size + len(payload)


def payload_at(file: BufferedReader, place: int, mark: bytes) -> bytes | None:
    """Of the whole frame that begins there, if one does."""
    length, checksum = _head_at(file, place, mark)
    if not 0 < length <= FRAME_MAX:
        return None
    payload = file.read(length)
    return payload if len(payload) == length and _checksum(mark, place, payload) == checksum else None


def next_frame(file: BufferedReader, bad: int, mark: bytes) -> int | None:
    """Where the next whole frame begins behind one that is not."""
    if mark:
        places = _places_of(file, mark, bad + 1)
    else:
        places = iter([bad + FRAME.size + _head_at(file, bad, mark)[0]])
    return next((place for place in places if payload_at(file, place, mark) is not None), None)


def _head_at(file: BufferedReader, place: int, mark: bytes) -> tuple[int, int]:
    """Length and checksum; no length where no frame can begin. The payload is read next."""
    file.seek(place)
    head = file.read(len(mark) + FRAME.size)
    if len(head) < len(mark) + FRAME.size or not head.startswith(mark):
        return 0, 0
    length, checksum = FRAME.unpack_from(head, len(mark))
    return length, checksum


def _checksum(mark: bytes, place: int, payload: bytes) -> int:
    return crc32(payload, crc32(mark + place.to_bytes(8)) if mark else 0)


def _places_of(file: BufferedReader, mark: bytes, start: int) -> Iterator[int]:
    """Read and not mapped: a disk that cannot read is then an error, and not the end of the process."""
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

JOURNAL_FORMAT: Final = 2
READABLE: Final = (1, JOURNAL_FORMAT)

HEADER_MAX: Final = 1024
"""Bytes in front of the first frame with rows, at most. No value of a message is so near to the beginning of a file: the schema
of the first frame alone is longer."""

ROWS_BEGIN: Final = KIND_ROWS + b"\xff\xff\xff\xff"
"""How the payload of every frame with rows begins: its kind, and the mark of an Arrow message."""


class UnreadableJournal(ArchiveError):
    """A journal that is gone, or that the disk does not give: it may do so another time."""


class OtherFormat(ArchiveError):
    """A journal that another release can read."""


class JournalHeader(msgspec.Struct, frozen=True):
    """Whose rows a journal holds. The names of files say the same; this is for people who find one somewhere else."""

    cluster: str
    group: str
    archiver: str
    life: int
    number: int
    mark: bytes = UNMARKED
    format: int = JOURNAL_FORMAT


class Journal:
    """A file that is being written. Raises OSError where the disk refuses."""

    def __init__(self, path: Path, header: JournalHeader, fdatasync: Callable[[int], None] = os.fdatasync) -> None:
        """A new file: one that is there belongs to another life."""
        self.path = path
        self.size = 0
        self._fdatasync = fdatasync
        self._is_doubtful = False
        self._mark = os.urandom(MARK_BYTES)
        self._file = FileIO(path, "x")
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

    def append(self, table: pa.Table) -> None:
        """One frame. Of one that the disk refuses nothing is there."""
        if all(table[name].null_count == table.num_rows for name, _ in RARE):
            table = table.select([name for name, _ in COMMON])
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
        """Nothing more comes; where it lies. A disk without room for the mark at the end may keep the rest."""
        try:
            with suppress(OSError):
                self._write_frame(KIND_END, b"")
            self.sync()
        finally:
            self.release()
        return self.path

    def release(self) -> None:
        """Close the file as the end of a process does: what was appended is there."""
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
    """Where the frames of a journal begin, and the mark that they have."""

    place: int
    mark: bytes


class JournalReader:
    """The tables that were appended, as far as they are whole. When all was read, `damaged_bytes` says how much of what was
    written is not. Raises Unreadable where the disk refuses, and OtherFormat."""

    def __init__(self, path: Path) -> None:
        self.damaged_bytes = 0
        self.group: str | None = None
        """What the header says, if it is whole."""
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

    # --- the beginning ----------------------------------------------------------------------------------------------

    def _start(self, file: BufferedReader) -> _Start | None:
        """None if there are no frames, or none that can be told from what messages hold."""
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
            text = f"{self._path} is a journal of format {its_format}, this release reads {' and '.join(map(str, READABLE))}"
            raise OtherFormat(f"{text}: start an archiver of the release that wrote it, or move it away")
        header = msgspec.convert(fields, JournalHeader)
        self.group = header.group
        return header.mark


def _found_start(file: BufferedReader) -> _Start | None:
    """Of a journal whose header is not whole, if its first frame is: that one has the mark, too."""
    file.seek(0)
    head = file.read(HEADER_MAX + MARK_BYTES + FRAME.size + len(ROWS_BEGIN))
    place = head.find(ROWS_BEGIN) - FRAME.size - MARK_BYTES
    mark = head[max(0, place) :][:MARK_BYTES]
    return _Start(place, mark) if place > 0 and payload_at(file, place, mark) is not None else None


def _size(file: BufferedReader) -> int:
    return os.fstat(file.fileno()).st_size


def _table(body: memoryview) -> pa.Table | None:
    """With the columns that were left out; None if these are no rows of an archive."""
    try:
        with pa.ipc.open_stream(body) as reader:
            table = reader.read_all()
    except (pa.ArrowException, OSError):  # Arrow says the latter of a stream that is too short.
        return None
    if table.schema == STREAM:
        return table
    if table.schema != pa.schema(COMMON):
        return None
    rare = [pa.nulls(table.num_rows, kind) for _, kind in RARE]
    return pa.table([*table.columns, *rare], schema=STREAM)
