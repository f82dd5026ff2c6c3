"""From the segments of a directory to one history, with findings about the evidence itself.

1. The quality of the evidence comes before guarantees, or a bug of the recorder would look like a bug of a protocol. What is
   missing becomes a Gap in the trace, so that obligations that touch it are pending.
2. A cut or missing file is a finding, because a crash or a broken disk can cause it; if even the header is cut off, reading that
   one file raises TraceCutOff. A file that was never a segment is a TraceError.
3. Addresses are decoded here a second time, on purpose: a trace is judged without the code under judgement. Bytes that are not an
   address are for nobody, as they are for groups. Layout: one byte 1, the number of groups, the number of processes, then the
   groups (64-bit hashes) and the processes (64-bit boot id of the node, 32-bit number), all big-endian.
4. Nodes, processes and views are written out in full in tables, so that two lives never share a name.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from mmap import mmap
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple, TypeVar
from zlib import crc32

import msgspec

from transis.trace.events import Event, Gap, History, NodeTrace
from transis.trace.segment import FRAME, KIND_BATCH, KIND_FOOTER, KIND_HEADER, MAGIC, SCHEMA, SUFFIX, Footer, Header, decode_rows
from transis.types.errors import TraceCutOff, TraceError
from transis.types.ids import NodeId, ProcessId, ViewId
from transis.types.views import ADDRESSED_GROUPS_MAX, ADDRESSED_PROCESSES_MAX, Address, GroupId, GroupViewId, PrivateName

# --- reader -----------------------------------------------------------------------------------------------------------

CHAIN_BROKEN: Final = "chain broken"
DENSITY: Final = "density"
DROPPED: Final = "dropped"
MISSING: Final = "missing segment"
STILL_OPEN: Final = "still open"
TRUNCATED: Final = "truncated tail"
UNKNOWN_VERSION: Final = "unknown version"
MIXED: Final = "mixed runs"

ACCEPTED: Final = (SCHEMA - 1, SCHEMA)

FOOTER_BYTES_MAX: Final = 512
"""A footer is three numbers, a digest and a flag, less than half of this."""

Body = TypeVar("Body")
Given = TypeVar("Given")
Buffer = bytes | bytearray | memoryview | mmap


class Finding(NamedTuple):
    """A problem with the evidence, not with the protocol."""

    what: str
    file: str
    detail: str


class Segment(NamedTuple):
    """One file, read up to its last whole frame."""

    name: str
    header: Header
    events: list[Event]
    footer: Footer | None
    digest: str
    torn_bytes: int


class Reading(NamedTuple):
    history: History
    findings: list[Finding]


def read_history(directory: Path) -> History:
    """The history of a directory of segments; `read_trace` also says what is wrong with the evidence."""
    return read_trace(directory).history


def read_trace(directory: Path) -> Reading:
    names = sorted(path for path in directory.glob(f"*{SUFFIX}") if path.is_file()) if directory.is_dir() else []
    if not names:
        raise TraceError(f"{directory}: holds no trace segment (*{SUFFIX})")
    findings: list[Finding] = []
    lives: dict[NodeId, list[Segment]] = {}
    for path in names:
        try:
            segment = read_segment(path)
        except TraceCutOff as error:
            findings.append(Finding(TRUNCATED, path.name, str(error)))
            continue
        if segment.header.schema in ACCEPTED:
            lives.setdefault(segment.header.node, []).append(segment)
        else:
            findings.append(Finding(UNKNOWN_VERSION, path.name, unknown_version(segment.header)))
    nodes = [NodeTrace(node, _life(lives[node], findings)) for node in sorted(lives)]
    return Reading(_history(nodes, lives, findings), findings)


def read_segment(path: Path) -> Segment:
    """Read one segment. A torn tail is accepted and counted; any other broken frame is a TraceError with its offset."""
    return parse_segment(path.name, path.read_bytes())


def parse_segment(name: str, content: Buffer) -> Segment:
    """The same for bytes from any source."""
    frames = read_frames(name, content)
    events = [event for place, body in frames.batches for event in decode_at(name, place, decode_rows, body)]
    return Segment(name, frames.header, events, frames.footer, frames.digest, frames.torn_bytes)


class Frames(NamedTuple):
    """The frames of a segment with correct checksums; batches are not decoded yet."""

    header: Header
    batches: list[tuple[int, memoryview]]
    """The offset and the rows of each batch."""
    footer: Footer | None
    digest: str
    torn_bytes: int


def read_frames(name: str, content: Buffer) -> Frames:
    """Check every frame without copying. If the schema is unknown, only the header is read."""
    view = memoryview(content)
    _require_magic(name, view)
    header: Header | None = None
    footer: Footer | None = None
    batches: list[tuple[int, memoryview]] = []
    place = digested = len(MAGIC)
    while footer is None and (length := _whole_frame(name, view, place)):
        kind, body = bytes(view[place + FRAME.size : place + FRAME.size + 1]), view[place + FRAME.size + 1 : place + length]
        if header is None:
            header = _decode(name, place, kind == KIND_HEADER, body, Header)
            if header.schema not in ACCEPTED:
                break
        elif kind == KIND_FOOTER:
            footer = _decode(name, place, True, body, Footer)
        elif kind == KIND_BATCH:  # Later versions may add other kinds of frames.
            batches.append((place, body))
        place += length
        digested = digested if footer else place
    if header is None:
        raise TraceCutOff(f"{name}: byte {place}: the header is cut off")
    return Frames(header, batches, footer, sha256(view[:digested]).hexdigest(), len(view) - place)


def read_seal(tail: bytes) -> Footer | None:
    """The footer at the end of `tail`, the last FOOTER_BYTES_MAX bytes of a file; the rest of the file is not needed."""
    for place in range(max(0, len(tail) - FOOTER_BYTES_MAX), len(tail) - FRAME.size):
        length, checksum = FRAME.unpack_from(tail, place)
        payload = tail[place + FRAME.size :]
        if length == len(payload) and payload[:1] == KIND_FOOTER and crc32(payload) == checksum:
            return msgspec.msgpack.decode(payload[1:], type=Footer)
    return None


def decode_at(name: str, place: int, decode: Callable[[Given], Body], given: Given) -> Body:
    """Decode, and add the offset to the message of an error."""
    try:
        return decode(given)
    except TraceError as error:
        raise TraceError(f"{name}: byte {place}: {error}") from error


def unknown_version(header: Header) -> str:
    return f"schema {header.schema}, this reader knows {' and '.join(map(str, ACCEPTED))}"


def _require_magic(name: str, content: memoryview) -> None:
    begin = bytes(content[: len(MAGIC)])
    if not any(content) or (len(begin) < len(MAGIC) and MAGIC.startswith(begin)):
        raise TraceCutOff(f"{name}: byte 0: the file is {'cut off' if content else 'empty'}")
    if begin != MAGIC:
        raise TraceError(f"{name}: byte 0: not a trace segment")


def _whole_frame(name: str, content: memoryview, place: int) -> int:
    """Size of the frame at `place`, or 0 if the file ends, or was cut, before the end of the frame."""

    if place + FRAME.size > len(content):
        return 0
    length, checksum = FRAME.unpack_from(content, place)
    end = place + FRAME.size + length
    if end > len(content) or not any(content[place:]):
        return 0
    if length and crc32(content[place + FRAME.size : end]) == checksum:
        return FRAME.size + int(length)
    if end == len(content):
        return 0  # A power cut lost some pages of the last frame.
    raise TraceError(f"{name}: byte {place}: a damaged frame in the middle of the file")


def _decode(name: str, place: int, expected: bool, body: memoryview, kind: type[Body]) -> Body:
    if not expected:
        raise TraceError(f"{name}: byte {place}: {kind.__name__.lower()} expected")
    try:
        return msgspec.msgpack.decode(body, type=kind)
    except (msgspec.MsgspecError, ValueError) as error:
        raise TraceError(f"{name}: byte {place}: no {kind.__name__.lower()}: {error}") from error


def _life(segments: list[Segment], findings: list[Finding]) -> list[Event]:
    """The events of one life, with a Gap wherever some are missing."""
    segments.sort(key=lambda segment: segment.header.number)
    before: Segment | None = None
    events: list[Event] = []
    for segment in segments:
        findings += _link(before, segment)
        findings += _seal(segment, last=segment is segments[-1])
        events += segment.events
        before = segment
    return _with_gaps(events, segments[0].name, findings)


def _link(before: Segment | None, segment: Segment) -> list[Finding]:
    expected = 1 if before is None else before.header.number + 1
    number = segment.header.number
    if number != expected:
        missing = f"segments {expected} to {number - 1} are not there" if number > expected else f"segment {number} twice"
        return [Finding(MISSING, segment.name, missing)]
    if segment.header.previous != ("" if before is None else before.digest):
        return [Finding(CHAIN_BROKEN, segment.name, "it does not follow the segment before it")]
    return []


def _seal(segment: Segment, last: bool) -> list[Finding]:
    found = []
    if segment.torn_bytes:
        found.append(Finding(TRUNCATED, segment.name, f"{segment.torn_bytes} bytes at its end are no whole frame"))
    footer = segment.footer
    if footer is None:
        # A cut segment that is followed by another is still covered by the digest that the next header holds.
        if last:
            found.append(Finding(STILL_OPEN, segment.name, "not sealed: its node is still writing, or was cut off"))
    elif footer.digest != segment.digest or footer.events != len(segment.events):
        found.append(Finding(CHAIN_BROKEN, segment.name, "its content is not what its seal says"))
    return found


def _with_gaps(events: list[Event], name: str, findings: list[Finding]) -> list[Event]:
    whole: list[Event] = []
    expected = 1
    for event in events:
        if event.lseq != expected:
            if isinstance(event, Gap) and (event.first_lseq, event.last_lseq) == (expected, event.lseq - 1):
                findings.append(Finding(DROPPED, name, f"the recorder dropped events {expected} to {event.last_lseq}"))
            else:
                findings.append(Finding(DENSITY, name, f"event {expected} expected, {event.lseq} found"))
                whole.append(Gap(expected, event.time_us, expected, max(expected, event.lseq - 1)))
        whole.append(event)
        expected = event.lseq + 1
    return whole


def _history(nodes: list[NodeTrace], lives: dict[NodeId, list[Segment]], findings: list[Finding]) -> History:
    lasts = [segments[-1] for segments in lives.values()]
    closed = bool(lasts) and all(last.footer is not None and last.footer.closed for last in lasts)
    runs = sorted({(last.header.cluster, last.header.run, last.header.mode, last.header.engine) for last in lasts})
    if len(runs) > 1:
        findings.append(Finding(MIXED, lasts[0].name, f"{len(runs)} runs, modes or engines in one directory"))
    return History(nodes, closed, *runs[0][2:]) if runs else History(nodes, closed)


# --- addresses --------------------------------------------------------------------------------------------------------

KINDS: Final = (1, 3)
HEAD: Final = Struct(">BBB")
GROUP: Final = Struct(">Q")
PROCESS: Final = Struct(">QI")
NOBODY: Final = Address()


def read_address(address: bytes) -> Address:
    """The groups and processes that a run is addressed to; nobody if the bytes are not an address."""
    if len(address) < HEAD.size:
        return NOBODY
    kind, groups, processes = HEAD.unpack_from(address)
    split = HEAD.size + groups * GROUP.size
    if kind not in KINDS or len(address) != split + processes * PROCESS.size:
        return NOBODY
    if groups > ADDRESSED_GROUPS_MAX or processes > ADDRESSED_PROCESSES_MAX:
        return NOBODY
    named = tuple(GroupId(group) for (group,) in GROUP.iter_unpack(address[HEAD.size : split]))
    private = tuple(PrivateName(*name) for name in PROCESS.iter_unpack(address[split:]))
    if sorted(set(named)) != list(named) or sorted(set(private)) != list(private):
        return NOBODY
    return Address(named, private)


# --- naming -----------------------------------------------------------------------------------------------------------


def node_name(node: NodeId) -> str:
    """Name, incarnation and boot id: unique to one life, even after a state directory was copied."""
    return f"{node.name}/{node.incarnation}/{node.boot:016x}"


def view_name(view: ViewId) -> str:
    return f"{'R' if view.is_regular else 'T'}{view.seq}@{node_name(view.rep)}"


def process_name(process: ProcessId) -> str:
    return f"{node_name(process.node)}#{process.number}"


def group_view_name(view: GroupViewId) -> str:
    return f"{view_name(view.configuration)}+{view.place.seq}.{view.place.index}"
