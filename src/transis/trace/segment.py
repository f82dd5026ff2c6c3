"""Segments: append-only files of a node's events, chained so that a missing one is noticed; and the canonical digest.

    segment = MAGIC, header frame, batch frames ..., footer frame when sealed
    frame   = u32 length of payload | u32 crc32 of payload | payload = one byte for the kind, then msgpack
    batch   = one msgpack array of (number of the kind, event)

1. One flush of the recorder is one write of whole frames; a crash cuts off at most the last one.
2. A footer seals a segment, which is never touched again. The next segment names its digest, so that a reader can distinguish
   missing, cut and open segments.
3. The writer never stalls and never raises for a failing disk: it takes nothing, returns False, and the recorder writes a Gap.
4. The table of kinds is append-only: a number never changes its meaning. Fields are only added at the end of an event.
5. Decoding checks every type; bytes that are not a batch raise TraceError and nothing else.
6. The digest of a history is the same in every process and under every hash seed: traces in order of node id, events in their own
   order, each with the number of its kind. msgpack encodes tuples of integers and strings in exactly one way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from struct import Struct
from typing import Any, Final, NamedTuple
from urllib.parse import quote
from zlib import crc32

import msgspec

from transis import __version__
from transis.trace.events import (
    CheckpointEvent,
    ClientDelivery,
    ClientLeft,
    ClientLife,
    Conf,
    Delivery,
    End,
    Event,
    Fault,
    Gap,
    GroupConf,
    History,
    NoteEvent,
    Prefix,
    Refuse,
    ReplicaStep,
    Sent,
    Submit,
)
from transis.trace.files import Appender, rename
from transis.types.config import Config
from transis.types.errors import TraceError
from transis.types.ids import NodeId

# --- rows -------------------------------------------------------------------------------------------------------------

KINDS: Final[tuple[type[Event], ...]] = (
    *(Submit, Refuse, Sent, Delivery, Conf, End, Fault, NoteEvent, Gap),
    *(GroupConf, ClientDelivery, ClientLeft, ClientLife),
    *(Prefix, CheckpointEvent),
    ReplicaStep,
)
"""The number of a kind is its index. The second row came with schema 2, the third with schema 3. Replicas have traces of their
own, so no node's trace has the last one, and no reader of nodes' traces misses it."""

NUMBERS: Final[dict[type[Any], int]] = {kind: number for number, kind in enumerate(KINDS)}

_ENCODER: Final = msgspec.msgpack.Encoder()
_BATCH: Final = msgspec.msgpack.Decoder(list[tuple[int, msgspec.Raw]])
_DECODERS: Final = tuple(msgspec.msgpack.Decoder(kind) for kind in KINDS)


def encode_rows(events: Sequence[Event]) -> bytes:
    return _ENCODER.encode([(NUMBERS[type(event)], event) for event in events])


def decode_rows(batch: bytes | memoryview) -> list[Event]:
    """The events of a batch."""
    return [decode_row(number, row) for number, row in split_rows(batch)]


def split_rows(batch: bytes | memoryview) -> list[tuple[int, msgspec.Raw]]:
    """The rows of a batch, each with the number of its kind, not decoded. Unknown kinds, of a later version, are skipped."""
    try:
        return [row for row in _BATCH.decode(batch) if 0 <= row[0] < len(_DECODERS)]
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise TraceError(f"no batch of events: {error}") from error


def decode_row(number: int, row: msgspec.Raw) -> Event:
    try:
        return _DECODERS[number].decode(row)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise TraceError(f"no batch of events: {error}") from error


# --- segment ----------------------------------------------------------------------------------------------------------

MAGIC: Final = b"transis trace\n"
SCHEMA: Final = 3
"""Version of header, rows and footer. Readers accept this one and the previous one. 2 added events of client processes,
3 added digests of deliveries and of application states."""

SUFFIX: Final = ".trace"
CONVERTED: Final = "segments"
"""The table that every conversion to Parquet writes last: with it, the segment is converted."""

LIVE_RUN: Final = "live"
"""The run of every real node: all daemons and embedded nodes of a cluster are in one run."""

SEGMENT_BYTES: Final = 128 * 1024 * 1024
"""A segment is sealed beyond this size: large enough for columnar conversion, small enough to move."""

FRAME_EVENTS_MAX: Final = 16_384
"""Events per frame: bounds what a reader must hold to check one checksum."""

FRAME: Final = Struct(">II")
KIND_HEADER: Final = b"H"
KIND_BATCH: Final = b"B"
KIND_FOOTER: Final = b"F"


class Naming(NamedTuple):
    """Prefix and suffix of file names, and the extra suffix of a file that is being written."""

    prefix: str
    suffix: str
    unfinished: str = ""


TRACES: Final = Naming("", SUFFIX)
DIGESTS: Final = Naming("life-", ".digests", ".open")
"""Digests of a running node. The `.open` suffix hides a growing file from Spark."""


class Header(msgspec.Struct, frozen=True):
    """Which node wrote a segment, and the digest of the previous one."""

    cluster: str
    run: str
    node: NodeId
    schema: int = SCHEMA
    number: int = 1
    previous: str = ""
    engine: str = "totem"
    mode: str = "evs"
    build: str = ""
    order: str = ""
    """The order of an engine that has a choice of orders; empty on the ring, which has none."""


def live_header(config: Config, node: NodeId) -> Header:
    """The first header of a real node."""
    order = config.order if config.engine == "lansis" else ""
    return Header(config.cluster, LIVE_RUN, node, engine=config.engine, mode=config.guarantees, build=__version__, order=order)


class Footer(msgspec.Struct, frozen=True):
    """The seal: what the segment holds, and the digest of every byte before this frame."""

    first_lseq: int
    last_lseq: int
    events: int
    digest: str
    closed: bool = False
    """True on the last segment of a run that reached quiescence."""


class SegmentWriter:
    """A sink for the recorder that writes segments into a directory."""

    def __init__(self, directory: Path, header: Header, limit_bytes: int = SEGMENT_BYTES, naming: Naming = TRACES) -> None:
        self._directory = directory
        self._header = header
        self._limit_bytes = limit_bytes
        self._naming = naming
        self._file: Appender | None = None
        self._sha = sha256()
        self._first_lseq = self._last_lseq = self._events = 0
        self._done = False

    def write(self, events: Sequence[Event]) -> bool:
        """Append one batch; False, with nothing written, if the disk refuses."""
        if self._done or not events:
            return not events
        opening = b"" if self._file is not None else self._opening()
        if self._file is None and not self._open():
            return False
        if not self._append(opening + b"".join(_frames(events))):
            return False
        self._first_lseq = self._first_lseq or events[0].lseq
        self._last_lseq = events[-1].lseq
        self._events += len(events)
        if self._file is not None and self._file.size >= self._limit_bytes:
            self._seal(closed=False)
        return True

    def close(self, closed: bool = False) -> None:
        """Seal the last segment; `closed` means that the run reached quiescence."""
        if self._file is None and not self._done and self._open():
            self._append(self._opening())
        self._seal(closed)
        self._done = True

    def seal(self) -> None:
        """Seal the open segment, if there is one; the next event opens another."""
        self._seal(closed=False)

    @property
    def current(self) -> str:
        """The name of the open file, or an empty string."""
        return self._file.path.name if self._file is not None else ""

    def release(self) -> None:
        """Close the file without sealing it, as the end of a process would."""
        if self._file is not None:
            self._file.close()
            self._file = None
        self._done = True

    def _opening(self) -> bytes:
        return MAGIC + frame(KIND_HEADER, msgspec.msgpack.encode(self._header))

    def _open(self) -> bool:
        try:
            self._file = Appender(self._directory / (segment_name(self._header, self._naming) + self._naming.unfinished))
        except OSError:
            return False
        self._first_lseq = self._last_lseq = self._events = 0
        self._sha = sha256()
        return True

    def _append(self, content: bytes) -> bool:
        """A partial write is undone; if that fails, this segment ends here, torn."""
        file = self._file
        assert file is not None
        if file.append(content):
            self._sha.update(content)
            return True
        if file.is_torn:
            file.close()
            self._next_segment(self._sha.hexdigest())
        elif file.size == 0:
            with suppress(OSError):
                file.discard()
            self._file = None
        return False

    def _seal(self, closed: bool) -> None:
        if self._file is None:
            return
        footer = Footer(self._first_lseq, self._last_lseq, self._events, self._sha.hexdigest(), closed)
        digest = footer.digest
        if self._append(frame(KIND_FOOTER, msgspec.msgpack.encode(footer))) and self._file is not None:
            finish(self._file, self._naming)
            self._next_segment(digest)

    def _next_segment(self, previous: str) -> None:
        self._file = None
        self._header = msgspec.structs.replace(self._header, number=self._header.number + 1, previous=previous)


def finish(file: Appender, naming: Naming) -> None:
    """Close a complete file and give it its final name. If the rename fails, the next life repeats it."""
    file.close()
    if naming.unfinished:
        with suppress(OSError):
            rename(file.path, file.path.with_name(file.path.name.removesuffix(naming.unfinished)))


def segment_name(header: Header, naming: Naming = TRACES) -> str:
    """Names sort in the order of segments. The node's name is quoted, because it may hold any printable character."""
    return f"{naming.prefix}{life_name(header.node)}-{header.number:06d}{naming.suffix}"


def life_name(node: NodeId) -> str:
    """The part of a segment's name that all segments of a life share, without the prefix."""
    return f"{quote(node.name, safe='')}-{node.incarnation}-{node.boot:016x}"


def frame(kind: bytes, body: bytes) -> bytes:
    payload = kind + body
    return FRAME.pack(len(payload), crc32(payload)) + payload


def whole_frames(content: bytes | memoryview, place: int = 0) -> Iterator[tuple[bytes, memoryview]]:
    """Kind and body of every frame from `place` on, up to the first cut or damaged one."""
    view = memoryview(content)
    while place + FRAME.size < len(view):
        length, checksum = FRAME.unpack_from(view, place)
        payload = view[place + FRAME.size : place + FRAME.size + length]
        if not length or len(payload) < length or crc32(payload) != checksum:
            return
        yield bytes(payload[:1]), payload[1:]
        place += FRAME.size + length


def _frames(events: Sequence[Event]) -> list[bytes]:
    return [
        frame(KIND_BATCH, encode_rows(events[start : start + FRAME_EVENTS_MAX]))
        for start in range(0, len(events), FRAME_EVENTS_MAX)
    ]


# --- digest -----------------------------------------------------------------------------------------------------------


def digest(history: History) -> str:
    """SHA-256, in hexadecimal, of everything in a history."""
    total = sha256(_bytes((history.closed, history.promises, len(history.nodes))))
    for trace in sorted(history.nodes, key=lambda trace: trace.node):
        total.update(_bytes(trace.node))
        total.update(events_digest(trace.events))
    return total.hexdigest()


def events_digest(events: Sequence[Event]) -> bytes:
    """SHA-256 of one node's events."""
    kinds = bytes(NUMBERS[type(event)] for event in events)
    total = sha256(_bytes((len(events), kinds)))
    total.update(_bytes(events))
    return total.digest()


def _bytes(value: object) -> bytes:
    return msgspec.msgpack.encode(value)
