"""From ordered bursts back to messages: one incremental parser per sender, and messages that are still in fragments.

1. However the datagrams of a visit are grouped into bursts, the messages and their places come out the same. A `Delivered` holds
   the messages of one run that one feed completed; its `parts`, by datagram, are the same for any grouping.
2. Basic messages are whole in the last datagram of their visit, which on the ring is the only one. It is parsed alone,
   early or at its place, and never touches the parser of its sender's ordered stream. Datagrams before it hold ACKS only.
3. A datagram that is not the expected next of its visit ends that visit here: the parser waits for the next one. So
   does a malformed stream. Both are counted by name in `rejections`.
4. Partial messages die with their regular view (`reset`), never later (trap 1).
5. A message of a stronger service than the datagram's class promises comes from a broken sender and is malformed.
6. ACKS are skipped: the engine has read them before the burst comes here.

And each message once (`DeliveredNumbers`): a sender's own numbers say which of its messages came already, wherever others put
them in the order. In an honest cluster none comes twice, and this is a look at one number a run. A member that breaks the
protocol may send another's message again, under another number of the order. Of each process the spans of numbers that were
delivered are kept, in order; most processes have one, which grows. What was delivered longest ago is forgotten first.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, islice
from typing import Final, NamedTuple, TypeVar

from transis.types.errors import Rejection
from transis.types.ids import DatagramClass, NodeId, ProcessId, RingTag, Service, Stretch, ViewId
from transis.types.limits import EVENT_US_MAX, KNOWN_NAMES_MAX
from transis.types.outputs import Delivered, Note, Phase
from transis.wire.burst import Burst
from transis.wire.items import AcksAt, Fragment, FragmentAt, Incomplete, Payloads, Run, RunAt, endings, read_item, split_address

PARTIALS_MAX: Final = 16
"""Messages of one sender of which only some fragments have come: twice what an Outbox starts in a lane."""

_STRONGEST: Final = {
    DatagramClass.BASIC: Service.BASIC,
    DatagramClass.CAUSAL: Service.CAUSAL,
    DatagramClass.ORDERED: Service.AGREED,
    DatagramClass.SAFE: Service.SAFE,
}


class _Context(NamedTuple):
    """What all messages of one feed share."""

    burst: Burst
    sender: NodeId
    view: ViewId
    phase: Phase
    early: bool
    place_seq: int


class _Visit:
    """The parser of one sender's visit stream.

    `chunks` is what was received and not yet used. It starts with an item's header or, if `run` is set, with the payloads of that
    run. Nothing can be parsed before it has grown to `need` bytes.
    """

    __slots__ = ("chunks", "need", "next_index", "next_seq", "ring", "run", "size")

    def __init__(self, ring: RingTag, seq: int) -> None:
        self.ring = ring
        self.next_seq = seq
        self.next_index = 0
        self.run: Run | None = None
        self.chunks: list[bytes | memoryview] = []
        self.size = 0
        self.need = 1

    def keep(self, rest: bytes, run: Run | None, need: int) -> None:
        self.run = run
        self.chunks = [rest] if rest else []
        self.size = len(rest)
        self.need = need


class _Partial(NamedTuple):
    """A message of which only some fragments have come; memory grows only with the bytes received."""

    expected: Fragment
    shares: list[bytes]


class _Malformed(Exception):
    """Carries a rejection out of the parsing of one stream; never leaves this file."""

    def __init__(self, field: str) -> None:
        super().__init__(field)
        self.field = field


class _Placer:
    """Gives messages of one feed their places, in stream order."""

    __slots__ = ("_bounds", "_context", "_datagram", "_in_order", "_index", "_strongest", "delivered", "stream")

    def __init__(self, stream: bytes, bounds: Sequence[int], context: _Context) -> None:
        self.stream = memoryview(stream)
        self.delivered: list[Delivered] = []
        self._bounds = bounds
        self._context = context
        self._strongest = _STRONGEST[context.burst.klass]
        self._in_order = context.burst.klass >= DatagramClass.ORDERED
        self._datagram = -1
        self._index = 0

    def place_run(self, run: Run, position: int) -> int:
        """Deliver the messages of the run that have arrived; return how many."""
        datagram, counts = endings(run, position, self._bounds)
        done = sum(counts)
        if done:
            self._deliver(run, self._stretches(datagram, counts), Payloads(self.stream, position, run, 0, done))
        return done

    def place_message(self, run: Run, payload: memoryview, position: int) -> None:
        """Deliver one message that ends at `position`, put together from fragments."""
        datagram, counts = endings(run, position, self._bounds)
        if counts:
            self._deliver(run, self._stretches(datagram, counts), (payload,))

    def _stretches(self, datagram: int, counts: Sequence[int]) -> list[Stretch]:
        """Places of messages that end in this datagram and the next ones, after the places already given."""
        index = self._index if datagram == self._datagram else 0
        seq, last = self._context.place_seq + datagram, len(counts) - 1
        self._datagram, self._index = datagram + last, counts[last] if last else index + counts[0]
        stretches = [(seq + ahead, 0, count) for ahead, count in enumerate(counts) if count]
        if index:
            stretches[0] = (seq, index, counts[0])
        return stretches

    def _deliver(self, run: Run, stretches: list[Stretch], payloads: Sequence[memoryview]) -> None:
        if run.service > self._strongest:
            raise _Malformed("class")
        burst, sender, view, phase, early, _ = self._context
        header = burst.header
        self.delivered.append(
            Delivered(
                ProcessId(sender, run.process),
                run.address,
                run.service,
                run.first_counter,
                payloads,
                view,
                phase,
                stretches,
                early,
                header.time_us,
                header.timestamp,
                self._in_order and run.service is not Service.BASIC,
                run.event_us,
            )
        )


class Assembler:
    """Turns bursts that left the order into deliveries. Fed in delivery order; see the rules above."""

    __slots__ = ("_partials", "_visits", "rejections")

    def __init__(self) -> None:
        self.rejections: Counter[str] = Counter()
        self._visits: dict[NodeId, _Visit] = {}
        self._partials: dict[NodeId, dict[tuple[int, int], _Partial]] = {}

    def reset(self) -> None:
        """A regular view begins: nothing partial survives."""
        self._visits.clear()
        self._partials.clear()

    def feed(self, burst: Burst, sender: NodeId, view: ViewId, phase: Phase, early: bool, place_seq: int) -> list[Delivered]:
        """`place_seq` is where the engine put the burst's first datagram in its order."""
        assert not burst.encapsulated, "recovery unwraps bursts before they are delivered"
        context = _Context(burst, sender, view, phase, early, place_seq)
        if burst.klass is DatagramClass.BASIC:
            return self._feed_basic(context)
        assert not early, "only basic datagrams are delivered before their place"
        visit = self._visit(burst, sender)
        return [] if visit is None else self._feed_visit(visit, context)

    def _feed_basic(self, context: _Context) -> list[Delivered]:
        delivered: list[Delivered] = []
        burst = context.burst
        for ahead, body in enumerate(burst.bodies()):
            seq, stream = burst.first_seq + ahead, bytes(body)
            alone = context._replace(burst=burst.slice(seq, seq), place_seq=context.place_seq + ahead)
            if not alone.burst.ends_visit:
                continue
            placer = _Placer(stream, (len(stream),), alone)
            try:
                self._parse_basic(placer, stream)
            except _Malformed as malformed:
                self.rejections[malformed.field] += 1
            delivered.extend(placer.delivered)
        return delivered

    @staticmethod
    def _parse_basic(placer: _Placer, stream: bytes) -> None:
        position = 0
        while position < len(stream):
            item = read_item(stream, position)
            if isinstance(item, AcksAt):
                position = item.end
                continue
            if not isinstance(item, RunAt):
                raise _Malformed("basic")
            position = item.position + item.run.size
            if position > len(stream):
                raise _Malformed("truncated")
            placer.place_run(item.run, item.position)

    def _visit(self, burst: Burst, sender: NodeId) -> _Visit | None:
        """The visit that this burst continues, or None if an earlier part of it was missed."""
        visit = self._visits.get(sender)
        header = burst.header
        if header.index == 0:
            if visit is not None:
                self.rejections["unfinished"] += 1
            visit = self._visits[sender] = _Visit(burst.ring, burst.first_seq)
        elif visit is None:
            self.rejections["headless"] += 1
            return None
        elif (header.index, burst.first_seq, burst.ring) != (visit.next_index, visit.next_seq, visit.ring):
            self.rejections["gap"] += 1
            del self._visits[sender]
            return None
        visit.next_index += len(burst)
        visit.next_seq += len(burst)
        return visit

    def _feed_visit(self, visit: _Visit, context: _Context) -> list[Delivered]:
        bodies = context.burst.bodies()
        ends = context.burst.ends_visit
        carried = visit.size
        visit.chunks.extend(bodies)
        visit.size += sum(map(len, bodies))
        if visit.size < visit.need and not ends:
            return []
        stream = b"".join(visit.chunks)
        bounds = list(accumulate(map(len, bodies), initial=carried))[1:]
        placer = _Placer(stream, bounds, context)
        try:
            self._parse(visit, placer, stream, context.sender)
            if ends and (visit.size or visit.run is not None):
                raise _Malformed("truncated")
        except _Malformed as malformed:
            self.rejections[malformed.field] += 1
            ends = True
        if ends:
            del self._visits[context.sender]
        return placer.delivered

    def _parse(self, visit: _Visit, placer: _Placer, stream: bytes, sender: NodeId) -> None:
        """Consume all whole messages and fragments, and keep the rest for the next feed."""
        position = 0
        run = visit.run
        while True:
            if run is not None:
                done = placer.place_run(run, position)
                if done < run.count:
                    start = position + (run.end_of(done - 1) if done else 0)
                    rest = run.after(done)
                    return visit.keep(stream[start:], rest, rest.end_of(0))
                position += run.size
                run = None
            item = read_item(stream, position)
            if isinstance(item, Rejection):
                raise _Malformed(item.field)
            if isinstance(item, Incomplete):
                return visit.keep(stream[position:], None, len(stream) - position + 1)
            if isinstance(item, RunAt):
                run, position = item
                continue
            if isinstance(item, AcksAt):
                position = item.end
                continue
            end = item.position + item.fragment.length
            if end > len(stream):
                return visit.keep(stream[position:], None, end - position)
            self._add_fragment(placer, sender, item, stream[item.position : end])
            position = end

    def _add_fragment(self, placer: _Placer, sender: NodeId, item: FragmentAt, share: bytes) -> None:
        fragment = item.fragment
        partials = self._partials.setdefault(sender, {})
        key = (fragment.process, fragment.counter)
        if fragment.offset == 0:
            partials.pop(key, None)
            if len(partials) >= PARTIALS_MAX:
                self.rejections["partials"] += 1
                return
            partials[key] = _Partial(fragment, [])
        partial = partials.get(key)
        if partial is None or not _continues(partial.expected, fragment):
            partials.pop(key, None)
            self.rejections["fragment"] += 1
            return
        partial.shares.append(share)
        after = fragment._replace(offset=fragment.offset + fragment.length)
        if after.offset < after.total:
            partials[key] = partial._replace(expected=after)
            return
        del partials[key]
        whole = memoryview(b"".join(partial.shares))
        size = fragment.address_size
        address, event_us = split_address(bytes(whole[:size])) if fragment.timed else (bytes(whole[:size]), 0)
        if event_us > EVENT_US_MAX:
            raise _Malformed("time")
        run = Run(fragment.process, fragment.service, address, fragment.counter, 1, 0, (), event_us)
        placer.place_message(run, whole[size:], item.position + fragment.length)


def _continues(expected: Fragment, fragment: Fragment) -> bool:
    """All fields but the length, which differs between fragments, must be as the fragments before promised."""
    return expected._replace(length=fragment.length) == fragment


# --- each message once -------------------------------------------------------------------------------------------------

K = TypeVar("K")
V = TypeVar("V")

PROCESSES_MAX: Final = 16_384
"""Processes of one life of a node that are remembered: more than a node has at a time."""
SPANS_MAX: Final = 64
"""Spans of one process that are remembered. Refused messages leave gaps, a few at each change of the view."""

Spans = list[tuple[int, int]]
"""First number, and the number behind the last."""


class DeliveredNumbers:
    """`note` tells an operator."""

    def __init__(self, note: Callable[[Note], None]) -> None:
        self.rejections: Counter[str] = Counter()
        self._note = note
        self._known: dict[NodeId, dict[int, Spans]] = {}

    def fresh(self, sender: NodeId, delivered: Sequence[Delivered]) -> list[Delivered]:
        """Of runs of one sender, what was not delivered before; it is remembered."""
        found: list[Delivered] = []
        known = self._known.get(sender)
        if known is None:
            known = _remember(self._known, sender, {}, KNOWN_NAMES_MAX)
        for run in delivered:
            first, behind = run.first_counter, run.first_counter + len(run.payloads)
            spans = known.get(run.process.number)
            if spans is None:
                _remember(known, run.process.number, [(first, behind)], PROCESSES_MAX)
                found.append(run)
            elif spans[-1][1] <= first:
                _extend(spans, first, behind)
                found.append(run)
            else:
                found += self._rest(spans, run)
        return found

    def _rest(self, spans: Spans, run: Delivered) -> list[Delivered]:
        first, behind = run.first_counter, run.first_counter + len(run.payloads)
        missing = list(_missing(spans, run, first, behind))
        again = len(run.payloads) - sum(len(part.payloads) for part in missing)
        if again:
            self.rejections["repeated"] += again
            if self.rejections["repeated"] == again:
                why = f"{again} of the messages from {first} to {behind - 1} of {run.process} were delivered before"
                self._note(Note("rejected", (("field", "repeated"), ("why", why))))
        return missing


def _remember(known: dict[K, V], key: K, value: V, most: int) -> V:
    """Remember one more; if there are too many, forget the one that came first."""
    if len(known) >= most:
        del known[next(iter(known))]
    known[key] = value
    return value


def _extend(spans: Spans, first: int, behind: int) -> None:
    """Numbers behind all others."""
    last = spans[-1]
    if last[1] == first:
        spans[-1] = last[0], behind
    else:
        spans.append((first, behind))
        del spans[:-SPANS_MAX]


def _missing(spans: Spans, run: Delivered, first: int, behind: int) -> Iterator[Delivered]:
    """The parts of the run that fill gaps between the spans: all of it, if a message of another service overtook it."""
    gaps = list(_gaps(spans, first, behind))
    for start, end in gaps:
        insort(spans, (start, end))
    _join(spans)
    if gaps == [(first, behind)]:
        yield run
        return
    for start, end in gaps:
        yield from _part(run, start, end)


def _gaps(spans: Spans, first: int, behind: int) -> Iterator[tuple[int, int]]:
    for start, end in spans:
        if start >= behind:
            break
        if first < start:
            yield first, start
        first = max(first, end)
    if first < behind:
        yield first, behind


def _join(spans: Spans) -> None:
    """Spans that touch become one."""
    joined: Spans = [spans[0]]
    for start, end in islice(spans, 1, None):
        if joined[-1][1] == start:
            joined[-1] = joined[-1][0], end
        else:
            joined.append((start, end))
    spans[:] = joined[-SPANS_MAX:]


def _part(run: Delivered, start: int, end: int) -> Iterator[Delivered]:
    """The messages from `start` on and before `end`, by the datagrams that they end in."""
    for part in run.parts():
        (seq, index, count), at = part.stretches[0], part.first_counter
        low, high = max(start, at), min(end, at + count)
        if low < high:
            payloads = part.payloads[low - at : high - at]
            stretch = (seq, index + low - at, high - low)
            yield part._replace(first_counter=low, payloads=payloads, stretches=(stretch,))
