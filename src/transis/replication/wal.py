"""What SQLite does not say of its write-ahead log: that commits in it were lost.

1. SQLite takes the log up to the first frame that is not whole, and forgets the rest, as it must after a power cut. But each of
   our commits is synced before the next one is written. So if frames of a later commit are there, the one before it was whole
   once: its disk has damaged what it had synced, and this replica would forget what it promised to others.
2. While a directory is open a file says so. If it is still there and the log is not, somebody took the log away, or it was found
   damaged, and SQLite has thrown it away.
3. Nothing tells that the last commit is damaged, or that the end of the log was cut off: a power cut may look the same.

The log: a header of 32 bytes (page size at 8, salts at 16, checksum at 24), then frames with a header of 24 bytes each (size of
the database behind a commit at 4, else 0; salts at 8), and a page.
"""

from __future__ import annotations

import struct
from contextlib import suppress
from pathlib import Path
from typing import Final

from transis.trace.files import sync

OPEN: Final = "open"
"""The file that is there while a directory is open, and after a crash."""

_HEADER: Final = 32
_FRAME: Final = 24
_LITTLE: Final = 0x377F0682
"""The first number of a log whose checksums are over little-endian words; one more: big-endian."""
_WORD: Final = 1 << 32


def wal_of(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def mark_open(directory: Path) -> None:
    (directory / OPEN).touch()
    sync(directory)


def mark_closed(directory: Path) -> None:
    """Before SQLite takes its log away. It needs no room on the disk; one that cannot be written to keeps the log, too."""
    with suppress(OSError):
        (directory / OPEN).unlink(missing_ok=True)
        sync(directory)


def missing_beside(path: Path) -> str:
    """Which part of a database is missing, before SQLite makes a new one; empty if all is there."""
    wal = wal_of(path)
    has_wal = wal.exists()
    if has_wal and wal.stat().st_size and not (path.exists() and path.stat().st_size):
        return f"{path.name} is missing or empty, and {wal.name} is not"
    if not has_wal and path.exists() and path.with_name(OPEN).exists():
        return f"{wal.name} is missing, and with it the newest commits"
    return ""


def damaged_in(path: Path, whole: int) -> str:
    """What is wrong with the log of this database, of which SQLite found so many frames whole; empty if nothing is."""
    wal = wal_of(path)
    size = wal.stat().st_size if wal.exists() else 0
    if size < _HEADER + _FRAME:
        return ""
    with wal.open("rb") as file:
        header = file.read(_HEADER)
        if not _is_whole(header):
            return f"the beginning of {wal.name} is damaged"
        page, salts, commits = struct.unpack_from(">I", header, 8)[0], header[16:24], 0
        for frame in range(whole, (size - _HEADER) // (_FRAME + page)):
            file.seek(_HEADER + frame * (_FRAME + page))
            head = file.read(_FRAME)
            if head[8:16] == salts and commits:
                return f"{wal.name} is damaged at frame {whole}, and what was committed behind it is lost"
            commits += head[8:16] == salts and head[4:8] != bytes(4)
    return ""


def _is_whole(header: bytes) -> bool:
    order = "<" if struct.unpack_from(">I", header)[0] == _LITTLE else ">"
    first = second = 0
    for one, two in struct.iter_unpack(f"{order}II", header[:24]):
        first = (first + one + second) % _WORD
        second = (second + two + first) % _WORD
    return header[24:] == struct.pack(">II", first, second)
