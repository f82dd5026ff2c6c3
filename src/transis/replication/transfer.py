"""A snapshot goes to another replica: the file, piece by piece, by private messages.

    provider: Begin(snapshot, size) →     receiver: Want(place, start) →     provider: Piece(place, start, data) → ... until size

1. The receiver asks for each piece, so the provider remembers nothing and is never faster than the receiver's disk.
2. What was begun and does not come is given up when another one begins. The machine asks anew in each view.
3. A replicated log has no state beside its log: its snapshot is an empty file.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Final

import msgspec

from transis.prsl.actions import Counter
from transis.prsl.log import Snapshot
from transis.replication.snapshots import SnapshotFiles
from transis.types.errors import Rejection, plainly
from transis.types.ids import ProcessId

SNAPSHOT: Final = b"\x02"
"""In front of these messages. No message of the machine begins so: they are arrays of msgpack."""

PIECE: Final = 256 << 10


class _Layout(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Fields are identified by position."""


class Begin(_Layout, frozen=True, tag=1):
    snapshot: Snapshot
    size: Counter


class Want(_Layout, frozen=True, tag=2):
    place: Counter
    start: Counter


class Piece(_Layout, frozen=True, tag=3):
    place: Counter
    start: Counter
    data: Annotated[bytes, msgspec.Meta(max_length=PIECE)]


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Begin | Want | Piece)

Tell = Callable[[ProcessId, bytes], None]


class SnapshotTransfer:
    def __init__(self, files: SnapshotFiles, tell: Tell, received: Callable[[Snapshot], None]) -> None:
        self.trouble = ""
        self._files = files
        self._tell = tell
        self._received = received
        self._provider: ProcessId | None = None
        self._begun: Begin | None = None
        self._has = 0

    def send(self, to: ProcessId, snapshot: Snapshot) -> None:
        path = self._files.path(snapshot.base.place)
        self._say(to, Begin(snapshot, path.stat().st_size if path.exists() else 0))

    def hear(self, sender: ProcessId, payload: bytes) -> None:
        message = _decode(payload)
        match message:
            case Want(place, start):
                self._say(sender, Piece(place, start, _read(self._files.path(place), start)))
            case Begin():
                self._begin(sender, message)
            case Piece():
                self._take(sender, message)

    def _say(self, to: ProcessId, message: Begin | Want | Piece) -> None:
        self._tell(to, SNAPSHOT + _encoder.encode(message))

    # --- receiving ------------------------------------------------------------------------------------------------------

    def _begin(self, sender: ProcessId, begin: Begin) -> None:
        if self._begun == begin and self._provider == sender:
            return
        self._provider, self._begun, self._has = sender, begin, 0
        if begin.size:
            with self._files.begin(begin.snapshot.base.place):
                pass
        self._go_on(begin)

    def _take(self, sender: ProcessId, piece: Piece) -> None:
        begun = self._begun
        if begun is None or (sender, piece.place, piece.start) != (self._provider, begun.snapshot.base.place, self._has):
            return
        if not piece.data:
            self._begun = None
            return
        try:
            with self._files.aside(piece.place).open("r+b") as file:
                file.seek(piece.start)
                file.write(piece.data)
        except OSError as error:
            self.trouble, self._begun = f"a snapshot cannot be written: {plainly(error)}", None
            return
        self._has += len(piece.data)
        self._go_on(begun)

    def _go_on(self, begun: Begin) -> None:
        place = begun.snapshot.base.place
        if self._has < begun.size:
            assert self._provider is not None
            self._say(self._provider, Want(place, self._has))
            return
        self._begun, self.trouble = None, ""
        if begun.size:
            self._files.publish(place)
        self._received(begun.snapshot)


def _decode(payload: bytes) -> Begin | Want | Piece | Rejection:
    try:
        message: Begin | Want | Piece = _decoder.decode(payload[1:])
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        return Rejection("snapshot", str(error))
    return message


def _read(path: Path, start: int) -> bytes:
    """Nothing if the file is gone meanwhile."""
    try:
        with path.open("rb") as file:
            return os.pread(file.fileno(), PIECE, start)
    except OSError:
        return b""
