"""Outbox -> datagrams -> any bursts -> Assembler, against the naive twin: everything arrives, once, at one place."""

from __future__ import annotations

from collections import Counter, defaultdict

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.wire.naive_reassembly import Message, NaiveReader, Placed, copied, feed, flattened, ids_of, stamped
from transis.types.ids import DatagramClass, Service
from transis.types.limits import EVENT_US_MAX
from transis.types.outputs import Delivered, Lane, OutboundRun
from transis.wire.burst import Burst, read_bursts
from transis.wire.outbox import FilledDatagram, Outbox
from transis.wire.reassembly import Assembler

lanes = st.sampled_from(Lane)
sizes = st.sampled_from((0, 0, 1, 7, 30, 64, 200, 2000))
BODIES = (56, 64, 100, 324, 1212)


@st.composite
def submissions(draw: st.DrawFn) -> tuple[Lane, int, bytes, Service, list[bytes], int]:
    """Lane decides the process, as in a node: a process speaks in one lane."""
    lane = draw(lanes)
    size, count = draw(sizes), draw(st.integers(1, 40))
    lengths = [size] * count if draw(st.booleans()) else draw(st.lists(sizes, min_size=1, max_size=6))
    payloads = [bytes((number % 251,)) * length for number, length in enumerate(lengths)]
    process = draw(st.integers(0, 2)) + 10 * lane
    address = draw(st.sampled_from((b"", b"group", b"many groups" * 20)))
    return lane, process, address, draw(st.sampled_from(Service)), payloads, draw(st.sampled_from((0, 1, EVENT_US_MAX)))


class Sender:
    """An Outbox, what was given to it, and the fills it made."""

    def __init__(self, body: int) -> None:
        self.outbox = Outbox(body, 1 << 20)
        self.body = body
        self.submitted: list[Message] = []
        self.fills: list[tuple[int, list[FilledDatagram]]] = []
        self._counters: Counter[int] = Counter()
        self._seq = 1

    def submit(self, lane: Lane, process: int, address: bytes, service: Service, payloads: list[bytes], event_us: int) -> None:
        first = self._counters[process] + 1
        taken = self.outbox.submit(lane, OutboundRun(process, address, service, first, payloads, event_us), None)
        self._counters[process] += taken
        for step in range(taken):
            self.submitted.append(Message(process, first + step, service, address, payloads[step], event_us))

    def fill(self, permit: int) -> None:
        filled = self.outbox.fill(permit)
        assert len(filled) <= permit
        assert all(len(one.body) <= self.body for one in filled)
        self.fills.append((self._seq, filled))
        self._seq += len(filled)


def naive_reading(sender: Sender) -> list[Placed]:
    reader = NaiveReader()
    placed: list[Placed] = []
    for seq, filled in sender.fills:
        basic = [one for one in filled if one.klass is DatagramClass.BASIC]
        for step, one in enumerate(basic):
            placed += reader.read(seq + step, [one.body])
        ordered = [one.body for one in filled[len(basic) :]]
        if ordered:
            placed += reader.read(seq + len(basic), ordered)
    return placed


def in_pieces(burst: Burst, data: st.DataObject) -> list[Burst]:
    pieces: list[Burst] = []
    first = burst.first_seq
    while first <= burst.last_seq:
        last = data.draw(st.integers(first, burst.last_seq))
        pieces.append(burst.slice(first, last))
        first = last + 1
    return pieces


def assembled(sender: Sender, data: st.DataObject | None) -> list[Delivered]:
    """What a receiver delivers: from whole bursts, or from bursts cut wherever `data` says."""
    assembler = Assembler()
    deliveries: list[Delivered] = []
    for turn, (seq, filled) in enumerate(sender.fills):
        bursts, _ = read_bursts(stamped(filled, seq, turn))
        pieces = bursts if data is None else [piece for burst in bursts for piece in in_pieces(burst, data)]
        deliveries += feed(assembler, pieces)
    assert assembler.rejections == Counter()
    return deliveries


@settings(max_examples=60)
@given(st.data(), st.sampled_from(BODIES), st.lists(submissions(), min_size=1, max_size=12))
def test_everything_arrives_in_the_same_places_whatever_the_bursts(
    data: st.DataObject, body: int, given_runs: list[tuple[Lane, int, bytes, Service, list[bytes], int]]
) -> None:
    sender = Sender(body)
    for submission in given_runs:
        sender.submit(*submission)
        if data.draw(st.booleans()):
            sender.fill(data.draw(st.sampled_from((1, 2, 5, 30))))
    while sender.outbox.has_work():
        sender.fill(data.draw(st.sampled_from((1, 3, 50))))
        assert sender.fills[-1][1], "an Outbox with work and a permit sends something"
    assert sender.outbox.backlog() == 0

    whole = assembled(sender, None)
    assert copied(assembled(sender, data)) == copied(whole)
    assert flattened(whole) == naive_reading(sender)
    assert Counter(placed.message for placed in flattened(whole)) == Counter(sender.submitted)
    assert [ids for _, filled in sender.fills for one in filled for ids in one.ended] == ids_of(whole)
    check_classes(sender)
    check_order(sender, flattened(whole))


def check_classes(sender: Sender) -> None:
    for _, filled in sender.fills:
        for one in filled:
            safe = any(ids.service is Service.SAFE for ids in one.ended)
            assert (one.klass is DatagramClass.SAFE) == safe
            assert one.klass is not DatagramClass.BASIC or {ids.service for ids in one.ended} == {Service.BASIC}
        ordered = [one for one in filled if one.klass is not DatagramClass.BASIC]
        assert filled == [one for one in filled if one.klass is DatagramClass.BASIC] + ordered
        assert [one.index for one in ordered] == list(range(len(ordered)))
        assert [one.last for one in ordered] == [False] * (len(ordered) - 1) + [True] * bool(ordered)
        assert all(len(one.body) == sender.body for one in ordered[:-1])


def check_order(sender: Sender, placed: list[Placed]) -> None:
    """Ordered services keep each process's order; basic promises none."""
    counters: dict[int, list[int]] = defaultdict(list)
    for one in placed:
        if one.message.service is not Service.BASIC:
            counters[one.message.process].append(one.message.counter)
    for process, seen in counters.items():
        assert seen == sorted(seen), f"process {process} out of order"
