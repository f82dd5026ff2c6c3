"""Stream frames on disk, first in, first out: what arrives while an application cannot take it, without a bound on memory.

A nameless temporary file, made when the first frame comes and gone with the spool; nothing in it outlives the process. Frames
lie in it as they do on a socket.
"""

from __future__ import annotations

import os
import tempfile
from collections import deque
from typing import IO, Final

from transis.sessions.frames import NODE_FRAMES, FrameReader, StreamFrame, encode_frame
from transis.types.errors import InternalError, Rejection

BLOCK: Final = 256 * 1024


class Spool:
    """`size` is what lies in the file and was not read yet; `in_memory` how many bytes of it were read ahead."""

    def __init__(self, directory: str | None = None) -> None:
        self._directory = directory
        self._file: IO[bytes] | None = None
        self._reader = FrameReader(NODE_FRAMES)
        self._ready: deque[StreamFrame] = deque()
        self._read = self._written = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def size(self) -> int:
        return self._written - self._read

    def append(self, frame: StreamFrame) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile(dir=self._directory, prefix="transis-", buffering=0)  # noqa: SIM115  # Kept open.
        data, end = memoryview(encode_frame(frame)), self._written
        while data:
            done = os.pwrite(self._file.fileno(), data, end)
            end += done
            data = data[done:]
        self._written = end  # Not before: half a frame, on a disk that is full, is none.
        self._count += 1

    def popleft(self) -> StreamFrame:
        assert self._count > 0
        while not self._ready:
            self._read_block()
        self._count -= 1
        frame = self._ready.popleft()
        if not self._count:
            self.clear()
        return frame

    def _read_block(self) -> None:
        assert self._file is not None
        data = os.pread(self._file.fileno(), BLOCK, self._read)
        frames = self._reader.feed(data)
        if not data or isinstance(frames, Rejection):
            raise InternalError("what was written to a temporary file is not what is read from it")
        self._read += len(data)
        self._ready.extend(frames)

    def clear(self) -> None:
        """Forget everything and give the disk its room back."""
        if self._file is not None:
            self._file.close()
        self._file = None
        self._reader = FrameReader(NODE_FRAMES)
        self._ready.clear()
        self._read = self._written = self._count = 0
