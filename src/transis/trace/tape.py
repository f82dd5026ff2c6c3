"""The delivery log, packed, with prefix digests.

The tape: everything that a node delivers, packed as it comes, at a small part of what the recorder costs.

One *stretch* is open at a time: consecutive runs of one process, service and address in one configuration, whose counters go on.
Each run continues it or ends it; when it ends it becomes one row, and one step of the prefix digests.

    row = ROW, then for every datagram but the last how many messages end in it (u8, or u16 if one does not fit),
          then, unless their places go on one by one, the place of every datagram but the first (u64)

From a row every Delivery comes back (`runs_of`) but for sizes, and for the stamps of its later datagrams, which are those of the
first. What the groups say among themselves (processes from PROCESSES_MAX on) is left out, as the recorder leaves it out.

Rules of this file:
1. No clock and no file: the tape is fed inside the node, and whoever has both calls `take`.
2. Steps are counted by feeds: a run of any length and of any number of messages is one step, and a number for each datagram.
3. Nothing is kept that holds payloads: a burst is freed when its application is done with it, as without a tape.

Prefix digests: two sums that say which messages a node delivered in a configuration, and in which order.

The i-th ordered message of a configuration, from 0, has an id = h(process, service) + counter * K. A(n) is the sum of the first n
ids, B(n) the sum of (i + 1) * id, both modulo a prime. Two nodes with equal (configuration, n) must have equal sums.

1. However deliveries are cut into runs, the sums are the same, for a whole stretch of one process is added in closed form. A
   chain of hashes would have to see equal cuts. A swap of two messages at i and j changes B by (i - j) times the difference of
   their ids, which is never 0.
2. Digests are recorded at multiples of a power of two that follows the traffic: whatever two nodes choose, they share every
   multiple of the larger one. That makes about one digest a second at any rate, and one for every message when there are few.
3. They find bugs, not enemies: a node that lies can lie in any digest.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from operator import itemgetter
from struct import Struct
from typing import Final, NamedTuple

from transis.types.ids import Place, ProcessId, Service, ViewId
from transis.types.outputs import Delivered
from transis.types.views import PROCESSES_MAX, View

# --- prefix -----------------------------------------------------------------------------------------------------------

PRIME: Final = (1 << 61) - 1
"""A prime of Mersenne: sums fit 64 bits with a sign."""
FACTOR: Final = 0x1F3D5B79A2C4E687
"""K: what the next counter of a process adds to an id."""
STEP_MAX: Final = 1 << 20
TOO_OFTEN_US: Final = 500_000
"""If digests follow each other faster than this, the step grows."""
TOO_SELDOM_US: Final = 2_000_000
"""After this long without a digest, the step shrinks."""

_SENDER: Final = Struct("<QIB")


class Digest(NamedTuple):
    """The sums of the first `count` messages of a configuration."""

    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody wants of sums
    a: int
    b: int


EMPTY: Final = Digest(0, 0, 0)


def head_of(boot: int, number: int, service: Service) -> int:
    """h: what all messages of a process and a service have in common; 60 bits."""
    digest = blake2b(_SENDER.pack(boot, number, service), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 4


def after(before: Digest, head: int, first: int, count: int) -> Digest:
    """The sums with `count` more messages of one process, whose counters begin with `first`."""
    at, a, b = before
    identity, above = head + first * FACTOR, at + 1
    ones = count * (count - 1) // 2
    squares = ones * (2 * count - 1) // 3
    more_a = count * identity + FACTOR * ones
    more_b = above * more_a + identity * ones + FACTOR * squares
    return Digest(at + count, (a + more_a) % PRIME, (b + more_b) % PRIME)


class Prefixes:
    """The sums of the configuration in force."""

    __slots__ = ("_last", "_recorded", "_recorded_us", "step", "sums")

    def __init__(self) -> None:
        self.sums = self._last = EMPTY
        self._recorded = 0
        self._recorded_us = 0
        self.step = 1

    def add(self, head: int, first: int, count: int) -> list[Digest]:
        """Add a stretch of messages; return the digests to record for positions in it: at most two, however long it is."""
        before = self.sums
        self.sums = after(before, head, first, count)
        every = max(self.step, 1 << (count.bit_length() - 1)) if count else self.step
        start = before.count // every * every + every
        digests = [after(before, head, first, place - before.count) for place in range(start, self.sums.count + 1, every)]
        if digests:
            self._recorded += len(digests)
            self._last = digests[-1]
        return digests

    def end(self) -> Digest:
        """The configuration is over: its last sums. What comes now belongs to the next one."""
        sums, self.sums, self._last = self.sums, EMPTY, EMPTY
        return sums

    def pace(self, now_us: int) -> list[Digest]:
        """Called now and then with the time: the step follows how often digests were recorded.

        After a while without any, return the present one: other nodes rest there too.
        """
        recorded, self._recorded = self._recorded, 0
        if recorded:
            if now_us - self._recorded_us < TOO_OFTEN_US:
                self.step = min(STEP_MAX, self.step << recorded.bit_length())
            self._recorded_us = now_us
        elif now_us - self._recorded_us > TOO_SELDOM_US:
            self.step = max(1, self.step >> 1)
            self._recorded_us = now_us
            if self.sums != self._last:
                self._last = self.sums
                return [self.sums]
        return []


# --- tape -------------------------------------------------------------------------------------------------------------

ROW: Final = Struct("<QQQQQqIIIIHBB")
"""Boot of the sender, first counter, place, origin_us, timestamp, tpos; process, messages, index of the place, datagrams; number
of the address; service, flags."""
ORDERED, CONSECUTIVE, WIDE = 1, 2, 4
"""Flags of a row."""
DATAGRAMS_MAX: Final = 4096
"""A stretch is ended at this length, which bounds what is open."""
ADDRESSES_MAX: Final = 4096
"""Addresses that have a number at a time; then numbers are given anew."""
HEADS_MAX: Final = 65_536
"""Senders whose `head_of` is remembered."""


_COUNT: Final = itemgetter(2)
"""Of a Stretch."""


class AddressNumber(NamedTuple):
    """From here on the number stands for this address."""

    number: int
    address: bytes


class PrefixDigest(NamedTuple):
    """A digest to be recorded; `last` means that the configuration ended there."""

    conf: ViewId
    regular: ViewId
    sums: Digest
    last: bool


Piece = bytes | View | AddressNumber
"""Rows of one configuration, a configuration, or what a number stands for in the rows that follow."""


class Drained(NamedTuple):
    pieces: list[Piece]
    digests: list[View | PrefixDigest]


class TapedRow(NamedTuple):
    """A stretch as it was packed."""

    boot: int
    first: int
    seq: int
    origin_us: int
    timestamp: int
    tpos: int
    number: int
    messages: int
    place_index: int
    datagrams: int
    address: int
    service: Service
    flags: int
    rest: memoryview


class TapedRun(NamedTuple):
    """Messages of a stretch that end in one datagram."""

    first: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody wants of a run
    place: Place
    tpos: int


_Head = tuple[ProcessId, bytes, Service, int, int, int, int, int, bool]
"""What the runs of a stretch have in common, and where it begins: process, address, service, first counter, seq and index of the
first place, origin_us, timestamp, ordered."""


class DeliveryLog:
    """Fed run by run; emptied by `take`."""

    def __init__(self) -> None:
        self.view: View | None = None
        self.regular: View | None = None
        self.addresses: dict[bytes, int] = {}
        self._head: _Head | None = None
        self._process: ProcessId | None = None
        self._next = self._next_seq = -1
        self._counts: list[int] = []
        self._ramps: list[list[int]] = []  # Places that go on one by one: the first, and how many.
        self._tpos = 0
        self._heads: dict[tuple[int, int, Service], int] = {}
        self._prefixes = Prefixes()
        self._rows = bytearray()
        self._pieces: list[Piece] = []
        self._digests: list[View | PrefixDigest] = []
        self.messages = 0

    # --- fed --------------------------------------------------------------------------------------------------------

    def add(self, run: Delivered) -> None:
        """Called for every burst of a busy cluster, so fields are taken by their numbers."""
        process, counter, stretches = run[0], run[3], run[7]
        (seq, index, _), last_seq, datagrams = stretches[0], stretches[-1][0], len(stretches)
        is_next = counter == self._next and not index and process == self._process and self._goes_on(run)
        if not is_next and not self._begin(run):
            return
        self._counts += map(_COUNT, stretches)
        if last_seq - seq != datagrams - 1:  # Messages longer than a datagram leave places out.
            self._ramps += [[stretch[0], 1] for stretch in stretches]
        elif seq == self._next_seq:
            self._ramps[-1][1] += datagrams
        else:
            self._ramps.append([seq, datagrams])
        self._next, self._next_seq = counter + len(run[4]), last_seq + 1

    def configured(self, view: View) -> None:
        self._end_stretch()
        self._end_rows()
        if self.view is not None:
            self._record(self._prefixes.end(), last=True)
        if view.id.is_regular:
            self.regular = view
            self._tpos = 0
        self.view = view
        self._pieces.append(view)
        self._digests.append(view)

    # --- emptied by the flight recorder -----------------------------------------------------------------------------

    @property
    def size(self) -> int:
        """Bytes of rows that wait to be taken."""
        return len(self._rows)

    def take(self, now_us: int) -> Drained:
        """What was fed since; it tells the digests how much time has passed."""
        self._end_stretch()
        self._end_rows()
        for sums in self._prefixes.pace(now_us):
            self._record(sums)
        taken = Drained(self._pieces, self._digests)
        self._pieces, self._digests = [], []
        return taken

    def _goes_on(self, run: Delivered) -> bool:
        """Does it agree with the open stretch in everything that a row says once?"""
        head = self._head
        assert head is not None, "an open stretch has a process"
        return head[1] == run[1] and head[2] is run[2] and head[8] is run[11] and len(self._counts) < DATAGRAMS_MAX

    def _begin(self, run: Delivered) -> bool:
        """Begin a stretch; False for the groups' own messages, which are in none."""
        self._end_stretch()
        process, address, service, first, _, _, _, stretches, _, origin_us, timestamp, ordered, _ = run
        if process[1] >= PROCESSES_MAX:
            return False
        seq, index, _ = stretches[0]
        self._head = (process, address, service, first, seq, index, origin_us, timestamp, ordered)
        self._process = process
        return True

    def _end_stretch(self) -> None:
        """One row, and one step of the digests."""
        head = self._head
        if head is None:
            return
        (node, number), address, service, counter, seq, index, origin_us, timestamp, ordered = head
        datagrams, ramps, messages = len(self._counts), self._ramps, self._next - counter
        counts = _packed_counts(self._counts[:-1])
        flags = ordered * ORDERED + (len(ramps) == 1) * CONSECUTIVE + (len(counts) >= datagrams) * WIDE
        tpos = self._tpos if ordered else -1
        known = self._number_of(address)
        who = (node.boot, counter, seq, origin_us, timestamp, tpos, number, messages, index, datagrams)
        self._rows += ROW.pack(*who, known, service, flags)
        self._rows += counts
        if len(ramps) > 1:
            self._rows += _packed("Q", [seq for start, count in ramps for seq in range(start, start + count)][1:])
        if ordered:
            self._tpos += messages
            for sums in self._prefixes.add(self._head_of(node.boot, number, service), counter, messages):
                self._record(sums)
        self.messages += messages
        self._head, self._process, self._counts, self._ramps = None, None, [], []
        self._next = self._next_seq = -1

    def _end_rows(self) -> None:
        if self._rows:
            self._pieces.append(bytes(self._rows))
            self._rows.clear()

    def _record(self, sums: Digest, last: bool = False) -> None:
        if self.view is not None:
            self._digests.append(PrefixDigest(self.view.id, self.view.regular, sums, last))

    def _number_of(self, address: bytes) -> int:
        known = self.addresses.get(address)
        if known is None:
            if len(self.addresses) >= ADDRESSES_MAX:
                self.addresses.clear()
            known = self.addresses[address] = len(self.addresses)
            self._end_rows()
            self._pieces.append(AddressNumber(known, address))
        return known

    def _head_of(self, boot: int, number: int, service: Service) -> int:
        sender = (boot, number, service)
        known = self._heads.get(sender)
        if known is None:
            if len(self._heads) >= HEADS_MAX:
                self._heads.clear()
            known = self._heads[sender] = head_of(*sender)
        return known


def rows_of(content: bytes | memoryview) -> Iterator[TapedRow]:
    """The rows in these bytes, up to anything that is not a row, which the checksum makes unlikely."""
    content, place = memoryview(content), 0
    while place + ROW.size <= len(content):
        *numbers, datagrams, address, service, flags = ROW.unpack_from(content, place)
        place += ROW.size
        size = (datagrams - 1) * (_count_size(flags) + (0 if flags & CONSECUTIVE else 8))
        if not datagrams or service not in _SERVICES or place + size > len(content):
            return
        rest = content[place : place + size]
        yield TapedRow._make((*numbers, datagrams, address, _SERVICES[service], flags, rest))
        place += size


def runs_of(row: TapedRow) -> Iterator[TapedRun]:
    """The runs of a row, as they were delivered."""
    split = _count_size(row.flags) * (row.datagrams - 1)
    counts = _unpacked("H" if row.flags & WIDE else "B", row.rest[:split])
    seqs: Iterable[int] = range(row.seq, row.seq + row.datagrams)
    if not row.flags & CONSECUTIVE:
        seqs = [row.seq, *_unpacked("Q", row.rest[split:])]
    first, index, tpos = row.first, row.place_index, row.tpos
    for count, seq in zip([*counts, row.messages - sum(counts)], seqs, strict=True):
        yield TapedRun(first, count, Place(seq, index), tpos)
        first, index, tpos = first + count, 0, tpos + count if row.flags & ORDERED else -1


_SERVICES: Final = {int(service): service for service in Service}


def _count_size(flags: int) -> int:
    return 2 if flags & WIDE else 1


def _packed_counts(counts: list[int]) -> bytes:
    """One byte each where they all fit: that is also by far the fastest way to pack numbers."""
    try:
        return bytes(counts)
    except ValueError:
        return _packed("H", counts)


def _packed(kind: str, numbers: list[int]) -> bytes:
    packed = array(kind, numbers)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def _unpacked(kind: str, content: memoryview) -> list[int]:
    numbers = array(kind)
    numbers.frombytes(content)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tolist()
