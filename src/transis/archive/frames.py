"""The frames of a journal, such that nothing which a message holds is ever taken for one.

    frame = mark, u32 length of payload, u32 checksum, payload = one byte for the kind, then the body

The mark is drawn at random for each journal: nobody who sends messages knows it, and behind a frame that is not whole the next
one is found by it. The checksum is that of the mark, of the place in the file, and of the payload, so that a copy of a part of a
journal inside of a message of that very journal is no frame either. Journals of format 1 have no mark, which is an empty one
here: there the length alone says where the next frame begins, and nothing is searched for.
"""

from __future__ import annotations

from collections.abc import Iterator
from io import BufferedReader
from typing import Final
from zlib import crc32

from transis.trace.segment import FRAME

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
