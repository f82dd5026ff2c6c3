"""Snapshots of a replicated object as files in the replica's directory: `snapshots/PLACE`.

    chunk*  end      chunk: length (4 bytes), bytes;      end: length 0, digest of all before (16 bytes)

1. A file has its name when it is complete and synced. The two newest are kept: one may be on its way to another replica.
2. The first chunk is the replica's own: the agreed clock, and the results of client keys. The others are the object's.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import IO, Final

from transis.trace.files import make_directory, publish
from transis.types.errors import StoreError, plainly

KEPT: Final = 2
CHUNK_MAX: Final = 1 << 30
LENGTH: Final = struct.Struct(">I")
DIGEST_SIZE: Final = 16
END: Final = LENGTH.pack(0)


class SnapshotFiles:
    def __init__(self, directory: Path) -> None:
        self._directory = directory / "snapshots"

    def path(self, place: int) -> Path:
        return self._directory / f"{place}"

    def aside(self, place: int) -> Path:
        return self._directory / f".{place}.part"

    def begin(self, place: int) -> SnapshotFile:
        make_directory(self._directory)
        return SnapshotFile(self.aside(place))

    def publish(self, place: int) -> None:
        """The file aside is complete."""
        self.path(place).unlink(missing_ok=True)
        publish(self.aside(place), self.path(place))

    def keep_newest(self) -> None:
        places = sorted((int(path.name) for path in self._directory.glob("[0-9]*")), reverse=True)
        for place in places[KEPT:]:
            self.path(place).unlink(missing_ok=True)
        for part in self._directory.glob(".*.part"):
            if places and int(part.stem[1:]) <= places[0]:
                part.unlink(missing_ok=True)

    def read(self, place: int) -> Iterator[bytes]:
        """The chunks, after the digest was compared."""
        path = self.path(place)
        try:
            with path.open("rb") as file:
                for _ in _chunks(file, path):
                    pass
            with path.open("rb") as file:
                yield from _chunks(file, path)
        except OSError as error:
            raise StoreError(f"a snapshot cannot be read: {plainly(error)}. Have this replica replaced by a new one") from error


class SnapshotFile:
    """One that is being written."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")
        self._digest = blake2b(digest_size=DIGEST_SIZE)

    def __enter__(self) -> SnapshotFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, chunk: bytes) -> None:
        if chunk:
            self._write(LENGTH.pack(len(chunk)))
            self._write(chunk)

    def finish(self) -> None:
        self._write(END)
        self._file.write(self._digest.digest())

    def _write(self, content: bytes) -> None:
        self._digest.update(content)
        self._file.write(content)


def _chunks(file: IO[bytes], path: Path) -> Iterator[bytes]:
    digest = blake2b(digest_size=DIGEST_SIZE)
    while True:
        head = file.read(LENGTH.size)
        length = LENGTH.unpack(head)[0] if len(head) == LENGTH.size else CHUNK_MAX + 1
        digest.update(head)
        if not length:
            break
        chunk = file.read(length) if length <= CHUNK_MAX else b""
        if len(chunk) < length:
            raise _damaged(path)
        digest.update(chunk)
        yield chunk
    if file.read() != digest.digest():
        raise _damaged(path)


def _damaged(path: Path) -> StoreError:
    return StoreError(f"{path} is damaged. Keep the directory aside, and have this replica replaced by a new one")
