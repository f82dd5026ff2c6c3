"""Journals: what an archiver has taken and not published yet, on disk in the order it came.

    journal = MAGIC, header frame, frames ...            frames as in a trace (trace/segment.py)
    frame   = one self-contained Arrow IPC stream: schema, dictionaries and rows; where no row has any of the rare columns (most
              frames are messages only), they are left out

1. One append is one frame. What a crash cuts off is at most the last one, and nobody was told that it is safe.
2. What was appended before a `sync` that returned is acknowledged: a power cut does not lose it.
3. A disk that takes only a part of a frame has taken nothing: the journal is cut back to the last whole one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import IO, Final
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

    def __init__(self, path: Path, header: JournalHeader) -> None:
        """A new file: one that is there belongs to another life."""
        self.path = path
        self.size = 0
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
        os.fdatasync(self._file.fileno())

    def seal(self) -> Path:
        """Nothing more comes; where it lies."""
        try:
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


def read_journal(path: Path) -> Iterator[pa.Table]:
    """The tables that were appended, up to the first frame that is not whole. Raises ArchiveError for what is no journal."""
    with path.open("rb") as file:
        magic = file.read(len(MAGIC))
        if not MAGIC.startswith(magic):
            raise ArchiveError(f"{path} is no journal of an archive: move it away")
        for kind, body in _whole_frames(file):
            if kind == KIND_ROWS:
                with pa.ipc.open_stream(body) as reader:
                    yield _whole_table(reader.read_all())


def _whole_table(table: pa.Table) -> pa.Table:
    """With the columns that were left out."""
    if table.num_columns == len(STREAM):
        return table
    rare = [pa.nulls(table.num_rows, kind) for _, kind in RARE]
    return pa.table([*table.columns, *rare], schema=STREAM)


def _whole_frames(file: IO[bytes]) -> Iterator[tuple[bytes, memoryview]]:
    while len(head := file.read(FRAME.size)) == FRAME.size:
        length, checksum = FRAME.unpack(head)
        if not 0 < length <= FRAME_MAX:
            return
        payload = file.read(length)
        if len(payload) < length or crc32(payload) != checksum:
            return
        yield payload[:1], memoryview(payload)[1:]
