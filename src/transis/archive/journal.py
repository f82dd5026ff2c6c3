"""Journals: what an archiver has taken and not published yet, on disk in the order it came.

    journal = MAGIC, header frame, frames ..., END       frames as in a trace (trace/segment.py)
    frame   = one self-contained Arrow IPC stream: schema, dictionaries and rows; where no row has any of the rare columns (most
              frames are messages only), they are left out

1. One append is one frame. What a crash cuts off is at most the last one, and nobody was told that it is safe.
2. What was appended before a `sync` that returned is acknowledged: a power cut does not lose it.
3. A disk that takes only a part of a frame has taken nothing: the journal is cut back to the last whole one.
4. A frame that is not whole ends a journal, as a crash does, unless whole ones are behind it: then the disk damaged it. These are
   read as well, for rows are numbered and a hole in them shows.
5. A journal of which a sync failed acknowledges nothing any more: the kernel tells once of writes that it lost.
"""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from io import BufferedReader, FileIO
from pathlib import Path
from typing import Final
from zlib import crc32

import msgspec
import pyarrow as pa

from transis.archive.schema import COMMON, FORMAT, RARE, STREAM
from transis.model.errors import ArchiveError
from transis.trace.durable import sync
from transis.trace.segment import FRAME, frame

MAGIC: Final = b"transis archive\n"
SUFFIX: Final = ".journal"
KIND_HEADER: Final = b"H"
KIND_ROWS: Final = b"A"
KIND_END: Final = b"E"

END: Final = frame(KIND_END, b"")
ROWS_BEGIN: Final = KIND_ROWS + b"\xff\xff\xff\xff"
"""How the payload of every frame with rows begins: its kind, and the mark of an Arrow message."""

FRAME_MAX: Final = 1 << 30
"""No frame is so long: a length beyond it is not one."""


class JournalHeader(msgspec.Struct, frozen=True):
    """Whose rows a journal holds. The names of files say the same; this is for people who find one somewhere else."""

    cluster: str
    group: str
    archiver: str
    life: int
    number: int
    format: int = FORMAT


class Journal:
    """A file that is being written. Raises OSError where the disk refuses."""

    def __init__(self, path: Path, header: JournalHeader, fdatasync: Callable[[int], None] = os.fdatasync) -> None:
        """A new file: one that is there belongs to another life."""
        self.path = path
        self.size = 0
        self._fdatasync = fdatasync
        self._is_doubtful = False
        self._file = FileIO(path, "x")
        try:
            self._write(MAGIC + frame(KIND_HEADER, msgspec.msgpack.encode(header)))
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
        self._write(frame(KIND_ROWS, sink.getvalue().to_pybytes()))

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
                self._write(END)
            self.sync()
        finally:
            self.release()
        return self.path

    def release(self) -> None:
        """Close the file as the end of a process does: what was appended is there."""
        self._file.close()

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


class JournalReader:
    """The tables that were appended, as far as they are whole. When all was read, `damaged_bytes` says how much is not whole and
    has whole frames behind it. Raises ArchiveError for what is no journal."""

    def __init__(self, path: Path) -> None:
        self.damaged_bytes = 0
        self._path = path

    def __iter__(self) -> Iterator[pa.Table]:
        for kind, body in self._frames():
            if kind == KIND_HEADER:
                self._require_format(body)
            elif kind == KIND_ROWS:
                with pa.ipc.open_stream(body) as reader:
                    yield _whole_table(reader.read_all())

    def _frames(self) -> Iterator[tuple[bytes, memoryview]]:
        self.damaged_bytes = 0
        with self._path.open("rb") as file:
            if not MAGIC.startswith(file.read(len(MAGIC))):
                raise ArchiveError(f"{self._path} is no journal of an archive: move it away")
            place: int | None = file.tell()
            while place is not None:
                payload = _payload_at(file, place)
                if payload is not None:
                    yield payload[:1], memoryview(payload)[1:]
                    place += FRAME.size + len(payload)
                else:
                    bad, place = place, _next_frame(file, place)
                    self.damaged_bytes += 0 if place is None else place - bad

    def _require_format(self, header: memoryview) -> None:
        its_format = msgspec.msgpack.decode(header).get("format")
        if its_format != FORMAT:
            text = f"{self._path} is a journal of format {its_format}, this release reads {FORMAT}"
            raise ArchiveError(f"{text}: start an archiver of the release that wrote it, or move it away")


def _whole_table(table: pa.Table) -> pa.Table:
    """With the columns that were left out."""
    if table.num_columns == len(STREAM):
        return table
    rare = [pa.nulls(table.num_rows, kind) for _, kind in RARE]
    return pa.table([*table.columns, *rare], schema=STREAM)


def _payload_at(file: BufferedReader, place: int) -> bytes | None:
    """Of the whole frame that begins there, if one does."""
    file.seek(place)
    head = file.read(FRAME.size)
    if len(head) < FRAME.size:
        return None
    length, checksum = FRAME.unpack(head)
    if not 0 < length <= FRAME_MAX:
        return None
    payload = file.read(length)
    return payload if len(payload) == length and crc32(payload) == checksum else None


def _next_frame(file: BufferedReader, bad: int) -> int | None:
    """Where a whole frame begins behind one that is not: where its length says, or if that is wrong too, where one is found."""
    file.seek(bad)
    head = file.read(FRAME.size)
    if len(head) < FRAME.size:
        return None
    behind = bad + FRAME.size + int(FRAME.unpack(head)[0])
    return behind if _payload_at(file, behind) is not None else _found_frame(file, bad + 1)


def _found_frame(file: BufferedReader, place: int) -> int | None:
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        while found := _like_frames(content, place):
            if _payload_at(file, min(found)) is not None:
                return min(found)
            place = min(found) + 1
    return None


def _like_frames(content: mmap.mmap, start: int) -> list[int]:
    """Where from there on the next ones begin that look like frames, of each kind."""
    rows, end = content.find(ROWS_BEGIN, start + FRAME.size), content.find(END, start)
    return [*([rows - FRAME.size] if rows >= 0 else []), *([end] if end >= 0 else [])]
