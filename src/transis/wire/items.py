"""What is inside data datagrams: runs of messages, fragments of large messages, addresses.

A *visit stream* is the concatenation of the bodies of one sender's ordered datagrams in one token visit; it is cut into
datagrams blindly, so item headers and messages straddle them. It is a sequence of items, big-endian:

    RUN       kind u8 (1 uniform, 2 mixed) | service u8 | process u32 | first counter u64 | count u16 | address size u16
              | address | one length u32 (uniform) or one for each message (mixed) | payloads
    FRAGMENT  kind u8 (3) | service u8 | process u32 | counter u64 | address size u16 | total u32 | offset u32 | length u32
              | bytes
    ACKS      kind u8 (4) | dep u64 | acks u8 | nacks u8 | 9 bytes for each ack | 11 for each nack

A run or fragment whose kind has the bit TIMED (16) has 8 more bytes behind its address, and the address size counts them: when
its messages were sent, by the wall clock of their sender, in microseconds since 1970.

ACKS stand first in the bursts of Lansis, whose engine reads them (lansis/packets.py); this file knows only their size.

1. A fragmented message is cut from its address followed by its payload, so that an address longer than a datagram needs no
   second mechanism and fragments do not repeat it; `total` counts both.
2. A message *ends* in the datagram that carries the byte before its end in the stream; for an empty message that is the byte
   before it. Sender and receivers both use `endings` to tell where, so they cannot disagree.
3. Runs end within their visit; only a fragmented message may continue in the next.
4. Messages are not copied: `Payloads` cuts one out of the stream of its visit when somebody looks at it.
5. The first byte of an address tells an application's messages from the groups' own, and those with attributes (a key, headers)
   in their payloads from those without; an empty address names no group. Addresses are sorted and unique, so equal addresses are
   equal bytes and share a run. Any bytes become an address or a rejection.
6. `VisitWriter` appends items while there is room, then cuts the stream blindly: all datagrams but the last are full, so
   the kernel can segment such a burst by itself (GSO).
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from operator import sub
from typing import Final, NamedTuple, overload

from transis.types.errors import Rejection, UsageError
from transis.types.ids import DatagramClass, Service
from transis.types.limits import ADDRESS_MAX, EVENT_US_MAX, MESSAGE_MAX, RUN_MESSAGES_MAX
from transis.types.outputs import RunIds
from transis.types.views import ADDRESSED_GROUPS_MAX, ADDRESSED_PROCESSES_MAX, Address, GroupId, PrivateName
from transis.wire.burst import COUNTER_MAX

# --- items ------------------------------------------------------------------------------------------------------------

UNIFORM: Final = 1
MIXED: Final = 2
FRAGMENT: Final = 3
ACKS: Final = 4
TIMED: Final = 16
LENGTH_SIZE: Final = 4

_RUN: Final = struct.Struct(">BBIQHH")
_FRAGMENT: Final = struct.Struct(">BBIQHIII")
_LENGTH: Final = struct.Struct(">I")
_TIME: Final = struct.Struct(">Q")
_ACKS: Final = struct.Struct(">BQBB")
ACK_SIZE: Final = 9
NACK_SIZE: Final = 11
_SERVICES: Final = {int(service): service for service in Service}
RUN_HEAD_SIZE: Final = _RUN.size
FRAGMENT_HEAD_SIZE: Final = _FRAGMENT.size
ACKS_HEAD_SIZE: Final = _ACKS.size


class Run:
    """A run's header: process, service, address, and where each message ends, counted from the first payload byte.

    `length` is that of every message, or None when they differ; then `ends` has the end of each. `event_us` is when they were
    sent, by the wall clock of their sender, or 0 if it did not say.
    """

    __slots__ = ("address", "count", "ends", "event_us", "first_counter", "length", "process", "service")

    def __init__(
        self,
        process: int,
        service: Service,
        address: bytes,
        first_counter: int,
        count: int,
        length: int | None,
        ends: Sequence[int] = (),
        event_us: int = 0,
    ) -> None:
        self.process = process
        self.service = service
        self.address = address
        self.first_counter = first_counter
        self.count = count
        self.length = length
        self.ends = ends
        self.event_us = event_us

    @property
    def size(self) -> int:
        """Bytes of all payloads."""
        return self.end_of(self.count - 1)

    def end_of(self, message: int) -> int:
        return self.ends[message] if self.length is None else self.length * (message + 1)

    def ended_by(self, position: int) -> int:
        """How many messages end at or before this position, which is not negative."""
        if self.length is None:
            return bisect_right(self.ends, position)
        return min(self.count, position // self.length) if self.length else self.count

    def after(self, done: int) -> Run:
        """The run without its first `done` messages."""
        ends: Sequence[int] = ()
        if self.length is None:
            base = self.ends[done - 1] if done else 0
            ends = [end - base for end in self.ends[done:]]
        first, count = self.first_counter + done, self.count - done
        return Run(self.process, self.service, self.address, first, count, self.length, ends, self.event_us)

    def ids(self, first: int, end: int) -> RunIds:
        return RunIds(self.process, self.first_counter + first, end - first, self.service, self.address)


class Fragment(NamedTuple):
    """`address_size` counts the time of a timed message, too."""

    process: int
    service: Service
    counter: int
    address_size: int
    total: int
    offset: int
    length: int
    timed: bool = False


class RunAt(NamedTuple):
    """A run whose payloads begin at `position` of the stream."""

    run: Run
    position: int


class FragmentAt(NamedTuple):
    """A fragment whose bytes begin at `position` of the stream."""

    fragment: Fragment
    position: int


class AcksAt(NamedTuple):
    """Acknowledgements that end before `end` of the stream."""

    end: int


class Incomplete(NamedTuple):
    """The stream ends within an item's header, or within acknowledgements, which are all header."""


INCOMPLETE: Final = Incomplete()


def endings(run: Run, position: int, bounds: Sequence[int]) -> tuple[int, list[int]]:
    """The datagram in which the first message of the run ends, and how many messages end in it, in the next one and so on.

    `bounds` has the stream position after each datagram. Messages that end beyond the last bound are left out.
    """
    length = run.length
    first = bisect_left(bounds, position + run.end_of(0))
    last = bisect_left(bounds, position + run.size, first)
    if length:
        ended = [(bound - position) // length for bound in bounds[first:last]]
    else:
        ended = [run.ended_by(bound - position) for bound in bounds[first:last]]
    if last < len(bounds):
        ended.append(run.count)
    return first, list(map(sub, ended, [0, *ended]))


def encode_run_head(run: Run, lengths: Sequence[int]) -> bytes:
    """`lengths` has the length of each message; a uniform run ignores it."""
    kind = MIXED if run.length is None else UNIFORM
    address = run.address
    if run.event_us:
        kind, address = kind | TIMED, timed_address(address, run.event_us)
    head = _RUN.pack(kind, run.service, run.process, run.first_counter, run.count, len(address)) + address
    if run.length is None:
        return head + struct.pack(f">{run.count}I", *lengths)
    return head + _LENGTH.pack(run.length)


def encode_fragment_head(fragment: Fragment) -> bytes:
    process, service, counter, address_size, total, offset, length, timed = fragment
    return _FRAGMENT.pack(FRAGMENT | TIMED if timed else FRAGMENT, service, process, counter, address_size, total, offset, length)


def read_item(stream: bytes, position: int) -> RunAt | FragmentAt | AcksAt | Incomplete | Rejection:
    """The item whose header begins at `position`; its payloads need not have arrived yet."""
    if position >= len(stream):
        return INCOMPLETE
    kind = stream[position]
    if kind == ACKS:
        return _pass_acks(stream, position)
    shape = kind & ~TIMED
    if shape == FRAGMENT:
        return _read_fragment(stream, position)
    if shape in (UNIFORM, MIXED):
        return _read_run(stream, position)
    return Rejection("item", f"an item of kind {kind}")


def _read_run(stream: bytes, position: int) -> RunAt | Incomplete | Rejection:
    start = position + _RUN.size
    if start > len(stream):
        return INCOMPLETE
    kind, service, process, counter, count, address_size = _RUN.unpack_from(stream, position)
    if service not in _SERVICES or not 1 <= counter <= COUNTER_MAX:
        return Rejection("run", f"service {service}, first counter {counter}")
    timed = kind & TIMED
    if not 1 <= count <= RUN_MESSAGES_MAX or not _fits(address_size, timed):
        return Rejection("run", f"{count} messages, {address_size} bytes of address")
    lengths = start + address_size
    uniform = kind & ~TIMED == UNIFORM
    payloads = lengths + LENGTH_SIZE * (1 if uniform else count)
    if payloads > len(stream):
        return INCOMPLETE
    found = struct.unpack_from(f">{(payloads - lengths) // LENGTH_SIZE}I", stream, lengths)
    if max(found) > MESSAGE_MAX:
        return Rejection("run", f"a message of {max(found)} bytes")
    address, event_us = split_address(stream[start:lengths]) if timed else (stream[start:lengths], 0)
    if event_us > EVENT_US_MAX:
        return Rejection("time", f"messages of the microsecond {event_us}")
    length, ends = (found[0], ()) if uniform else (None, list(accumulate(found)))
    return RunAt(Run(process, _SERVICES[service], address, counter, count, length, ends, event_us), payloads)


def _fits(address_size: int, timed: int) -> bool:
    """Whether this may be the size of an address, with the time behind it if there is one."""
    return _TIME.size <= address_size <= ADDRESS_MAX + _TIME.size if timed else address_size <= ADDRESS_MAX


def timed_address(address: bytes, event_us: int) -> bytes:
    """An address, and behind it when its messages were sent; as it is if nobody said."""
    return address + _TIME.pack(event_us) if event_us else address


def head_size(address: bytes, event_us: int) -> int:
    """Bytes of the head of a run, without the lengths of its messages."""
    return RUN_HEAD_SIZE + len(address) + (_TIME.size if event_us else 0)


def split_address(timed: bytes) -> tuple[bytes, int]:
    """The address and the time of a timed run or fragment."""
    return timed[: -_TIME.size], _TIME.unpack_from(timed, len(timed) - _TIME.size)[0]


def _read_fragment(stream: bytes, position: int) -> FragmentAt | Incomplete | Rejection:
    start = position + _FRAGMENT.size
    if start > len(stream):
        return INCOMPLETE
    kind, service, process, counter, address_size, total, offset, length = _FRAGMENT.unpack_from(stream, position)
    if service not in _SERVICES or not 1 <= counter <= COUNTER_MAX:
        return Rejection("fragment", f"service {service}, counter {counter}")
    timed = kind & TIMED
    if not _fits(address_size, timed) or not address_size <= total <= address_size + MESSAGE_MAX:
        return Rejection("fragment", f"a message of {total} bytes with {address_size} bytes of address")
    if length == 0 or offset + length > total:
        return Rejection("fragment", f"bytes {offset} to {offset + length} of {total}")
    return FragmentAt(Fragment(process, _SERVICES[service], counter, address_size, total, offset, length, timed > 0), start)


def _pass_acks(stream: bytes, position: int) -> AcksAt | Incomplete:
    start = position + _ACKS.size
    if start > len(stream):
        return INCOMPLETE
    _, _, acks, nacks = _ACKS.unpack_from(stream, position)
    end = start + ACK_SIZE * acks + NACK_SIZE * nacks
    return AcksAt(end) if end <= len(stream) else INCOMPLETE


# --- payloads ---------------------------------------------------------------------------------------------------------


class Payloads(Sequence[memoryview]):
    """Messages first..end-1 of a run, cut out of the stream only when somebody looks at them."""

    __slots__ = ("_end", "_first", "_position", "_run", "_stream")

    def __init__(self, stream: memoryview, position: int, run: Run, first: int, end: int) -> None:
        self._stream = stream
        self._position = position
        self._run = run
        self._first = first
        self._end = end

    def __len__(self) -> int:
        return self._end - self._first

    @overload
    def __getitem__(self, index: int) -> memoryview: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[memoryview]: ...
    def __getitem__(self, index: int | slice) -> memoryview | Sequence[memoryview]:
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            assert step == 1, "messages are cut out in their order"
            return Payloads(self._stream, self._position, self._run, self._first + start, self._first + max(start, stop))
        message = self._first + range(len(self))[index]
        return self._stream[self._position + self._start_of(message) : self._position + self._run.end_of(message)]

    def __iter__(self) -> Iterator[memoryview]:
        stream = self._stream
        return iter([stream[start:end] for start, end in pairwise(self._borders())])

    @property
    def size(self) -> int:
        """Bytes of all messages, without cutting any out."""
        return self._start_of(self._end) - self._start_of(self._first)

    def copies(self) -> list[bytes]:
        """Copies of the messages, to be kept longer than the burst they came in."""
        whole = self._stream.obj
        assert isinstance(whole, bytes), "streams are put together from bodies"
        return [whole[start:end] for start, end in pairwise(self._borders())]

    def _borders(self) -> Iterable[int]:
        """Where each message begins, and finally where the last one ends."""
        position, first, length = self._position, self._first, self._run.length
        if length:
            return range(position + first * length, position + self._end * length + 1, length)
        return [position + self._start_of(first), *(position + self._run.end_of(one) for one in range(first, self._end))]

    def _start_of(self, message: int) -> int:
        return self._run.end_of(message - 1) if message else 0


def payload_size(payloads: Sequence[bytes | memoryview]) -> int:
    """Bytes of all payloads; `Payloads` knows it without cutting any out."""
    return payloads.size if isinstance(payloads, Payloads) else sum(map(len, payloads))


# --- address ----------------------------------------------------------------------------------------------------------

APPLICATION_KIND: Final = 1
CONTROL_ADDRESS: Final = b"\x02"
ATTRIBUTED_KIND: Final = 3
_ATTRIBUTED: Final = bytes((ATTRIBUTED_KIND,))

_HEAD: Final = struct.Struct(">BBB")
_GROUP: Final = struct.Struct(">Q")
_PRIVATE: Final = struct.Struct(">QI")


def encode_address(address: Address) -> bytes:
    groups, processes = sorted(set(address.groups)), sorted(set(address.processes))
    if not groups and not processes:
        raise UsageError("a message for nobody: name a group or a process")
    if len(groups) > ADDRESSED_GROUPS_MAX or len(processes) > ADDRESSED_PROCESSES_MAX:
        raise UsageError(
            f"{len(groups)} groups and {len(processes)} processes in one address; at most {ADDRESSED_GROUPS_MAX} and "
            f"{ADDRESSED_PROCESSES_MAX} are allowed: send to a group that has them all"
        )
    parts = [_HEAD.pack(APPLICATION_KIND, len(groups), len(processes)), *(_GROUP.pack(group) for group in groups)]
    return b"".join(parts + [_PRIVATE.pack(*name) for name in processes])


def decode_address(address: bytes) -> Address | Rejection:
    """The address of an application message; an empty one names nobody."""
    if not address:
        return Address()
    if len(address) < _HEAD.size or address[0] not in (APPLICATION_KIND, ATTRIBUTED_KIND):
        return Rejection("address", "bytes that are not an address")
    _, groups, processes = _HEAD.unpack_from(address)
    split = _HEAD.size + groups * _GROUP.size
    if groups > ADDRESSED_GROUPS_MAX or processes > ADDRESSED_PROCESSES_MAX:
        return Rejection("address", "an address of too many groups or processes")
    if len(address) != split + processes * _PRIVATE.size:
        return Rejection("address", "an address whose length does not fit its counts")
    named = tuple(GroupId(group) for (group,) in _GROUP.iter_unpack(address[_HEAD.size : split]))
    private = tuple(PrivateName(*name) for name in _PRIVATE.iter_unpack(address[split:]))
    if list(named) != sorted(set(named)) or list(private) != sorted(set(private)):
        return Rejection("address", "an address that is not sorted and unique")
    return Address(named, private)


def attributed_address(address: bytes) -> bytes:
    """The same for messages whose payloads begin with attributes (client/attributes.py); nobody but clients looks at these."""
    return _ATTRIBUTED + address[1:]


def has_attributes(address: bytes) -> bool:
    return address.startswith(_ATTRIBUTED)


# --- writing ----------------------------------------------------------------------------------------------------------


class FilledDatagram(NamedTuple):
    """A body to be stamped and sent. `ended` has the messages that end in it, in the order in which receivers will see them."""

    klass: DatagramClass
    body: bytes
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody needs here
    last: bool
    ended: tuple[RunIds, ...]


class Filled(NamedTuple):
    """One burst to be stamped and sent: all its datagrams are of one class."""

    klass: DatagramClass
    datagrams: list[FilledDatagram]


class VisitWriter:
    """Collects items up to a capacity. In which datagram each message ends is worked out once, when the stream is cut.

    `prefix` is what the engine puts before the items of a burst; it takes room, and no message ends in it.
    """

    __slots__ = ("_body_max", "_capacity", "_ending", "_parts", "size")

    def __init__(self, body_max: int, datagrams: int, prefix: bytes = b"") -> None:
        self._body_max = body_max
        self._capacity = body_max * datagrams
        self._parts: list[bytes] = [prefix]
        self._ending: list[RunAt] = []
        self.size = len(prefix)
        assert self.size <= self._capacity, f"a prefix of {self.size} bytes in a visit of {self._capacity}"

    @property
    def room(self) -> int:
        return self._capacity - self.size

    def add_run(self, run: Run, payloads: Sequence[bytes]) -> int:
        """Add a run; return how many bytes of the stream it took."""
        head = encode_run_head(run, [len(payload) for payload in payloads] if run.length is None else ())
        self._ending.append(RunAt(run, self.size + len(head)))
        self._parts.append(head)
        self._parts.extend(payloads)
        return self._grow(len(head) + run.size)

    def add_fragment(self, fragment: Fragment, share: bytes, address: bytes) -> int:
        assert len(share) == fragment.length, f"a fragment of {fragment.length} bytes has {len(share)}"
        self._parts.append(encode_fragment_head(fragment))
        self._parts.append(share)
        taken = self._grow(FRAGMENT_HEAD_SIZE + len(share))
        if fragment.offset + fragment.length == fragment.total:
            whole = Run(fragment.process, fragment.service, address, fragment.counter, 1, 0)
            self._ending.append(RunAt(whole, self.size))
        return taken

    def _grow(self, taken: int) -> int:
        self.size += taken
        assert self.size <= self._capacity, f"{self.size} bytes in a visit of {self._capacity}"
        return taken

    @property
    def is_empty(self) -> bool:
        """Whether nothing was added after the prefix."""
        return len(self._parts) == 1

    def ordered(self) -> list[FilledDatagram]:
        """The stream as the datagrams of one visit."""
        bodies, ended = self._cut()
        final = len(bodies) - 1
        return [
            FilledDatagram(_class_of(ids), body, index, index == final, tuple(ids))
            for index, (body, ids) in enumerate(zip(bodies, ended, strict=True))
        ]

    def burst(self, kind: DatagramClass) -> Filled:
        """The stream as one burst: of its kind, or safe if anything safe ends in it."""
        klass = DatagramClass.SAFE if any(run.service is Service.SAFE for run, _ in self._ending) else kind
        bodies, ended = self._cut()
        final = len(bodies) - 1
        return Filled(
            klass,
            [
                FilledDatagram(klass, body, index, index == final, tuple(ids))
                for index, (body, ids) in enumerate(zip(bodies, ended, strict=True))
            ],
        )

    def basic(self) -> FilledDatagram:
        """The stream as one self-contained basic datagram."""
        (body,), (ids,) = self._cut()
        return FilledDatagram(DatagramClass.BASIC, body, 0, True, tuple(ids))

    def _cut(self) -> tuple[list[bytes], list[list[RunIds]]]:
        stream = b"".join(self._parts)
        assert len(stream) == self.size, f"{len(stream)} bytes where {self.size} were counted"
        starts = range(0, self.size, self._body_max)
        bounds = [start + self._body_max for start in starts]
        ended: list[list[RunIds]] = [[] for _ in starts]
        for run, position in self._ending:
            datagram, counts = endings(run, position, bounds)
            first = 0
            for ids, count in zip(ended[datagram:], counts, strict=False):
                if count:
                    ids.append(run.ids(first, first + count))
                    first += count
        return [stream[start : start + self._body_max] for start in starts], ended


def _class_of(ended: Sequence[RunIds]) -> DatagramClass:
    """A datagram counts as safe if a safe message ends in it: only then does anybody wait for it to become safe."""
    safe = any(ids.service is Service.SAFE for ids in ended)
    return DatagramClass.SAFE if safe else DatagramClass.ORDERED
