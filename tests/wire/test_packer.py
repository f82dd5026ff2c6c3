"""Bursts of Lansis out of the Outbox: one kind each, behind the engine's prefix, and read again by the Assembler."""

from __future__ import annotations

from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.naive_reassembly import by_datagram
from tests.wire.samples import ANN, VIEW
from transis.lansis.packets import Nack, encode_acks
from transis.types.ids import DatagramClass, RingTag, Service
from transis.types.outputs import Delivered, Lane, OutboundRun, Phase
from transis.wire.burst import Burst, DataHeader, encode_data, read_bursts
from transis.wire.outbox import Filled, Outbox
from transis.wire.reassembly import Assembler

BODY = 324
SMALL = encode_acks(7, [], [])
LARGE = encode_acks(7, [(rank, 9) for rank in range(100)], [Nack(3, 1, 5)] * 32)
"""Several datagrams of acknowledgements."""
STRONGEST = {
    DatagramClass.BASIC: Service.BASIC,
    DatagramClass.CAUSAL: Service.CAUSAL,
    DatagramClass.ORDERED: Service.AGREED,
    DatagramClass.SAFE: Service.SAFE,
}


def run(process: int, payloads: list[bytes], service: Service = Service.AGREED, first: int = 1) -> OutboundRun:
    return OutboundRun(process, b"group", service, first, payloads)


def outbox_with(*runs: OutboundRun, lane: Lane = Lane.APPLICATION) -> Outbox:
    outbox = Outbox(BODY, 1 << 24)
    for one in runs:
        assert outbox.submit(lane, one, None) == len(one.payloads)
    return outbox


def bursts_of(outbox: Outbox, permit: int, prefix: bytes) -> list[Filled]:
    filled: list[Filled] = []
    while outbox.has_work():
        burst = outbox.fill_burst(permit, prefix)
        assert burst is not None, "what can be sent is sent"
        filled.append(burst)
    assert outbox.fill_burst(permit, prefix) is None
    return filled


def stamped(filled: Filled, first_seq: int) -> Burst:
    datagrams = [
        encode_data(DataHeader(one.klass, RingTag(8, 1), 0, first_seq + at, 0, 5, 6, one.index, one.last, False), one.body)
        for at, one in enumerate(filled.datagrams)
    ]
    (burst,), rejections = read_bursts(datagrams)
    assert not rejections
    burst.check()
    return burst


def read(filled: list[Filled], piece: int = 64) -> list[Delivered]:
    """What an Assembler makes of them, fed with pieces of so many datagrams."""
    assembler = Assembler()
    delivered: list[Delivered] = []
    seq = 1
    for number, one in enumerate(filled, 1):
        burst = stamped(one, seq)
        for first in range(seq, seq + len(burst), piece):
            part = burst.slice(first, min(first + piece - 1, burst.last_seq))
            delivered += assembler.feed(part, ANN, VIEW, Phase.REGULAR, False, 1000 * number + first - seq)
        seq += len(burst)
    assert not assembler.rejections
    return delivered


def messages(delivered: list[Delivered]) -> list[tuple[int, int, bytes]]:
    return [
        (run.process.number, run.first_counter + at, bytes(payload))
        for run in delivered
        for at, payload in enumerate(run.payloads)
    ]


runs = st.lists(
    st.tuples(st.integers(1, 3), st.sampled_from(Service), st.lists(st.integers(0, 900), min_size=1, max_size=4)), max_size=12
)


@given(runs, st.integers(1, 6), st.sampled_from([b"", SMALL, LARGE]), st.integers(1, 3))
def test_everything_leaves_once_in_bursts_of_one_kind_and_in_order(
    drawn: list[tuple[int, Service, list[int]]], permit: int, prefix: bytes, piece: int
) -> None:
    counters = dict.fromkeys((1, 2, 3), 1)
    sent: list[OutboundRun] = []
    for process, service, sizes in drawn:
        sent.append(run(process, [bytes([process]) * size for size in sizes], service, counters[process]))
        counters[process] += len(sizes)
    filled = bursts_of(outbox_with(*sent), permit, prefix)
    delivered = read(filled, piece)
    expected = [(one.process, one.first_counter + at, load) for one in sent for at, load in enumerate(one.payloads)]
    assert sorted(messages(delivered)) == sorted(expected)
    weak = {(one.process, one.first_counter + at) for one in sent for at in range(len(one.payloads)) if one.service == 0}
    for process in (1, 2, 3):
        strong = [counter for who, counter, _ in messages(delivered) if who == process and (who, counter) not in weak]
        assert strong == sorted(strong), "all but basic messages of a process keep their order, across kinds"
    for burst in filled:
        assert {one.klass for one in burst.datagrams} == {burst.klass}
        assert [one.index for one in burst.datagrams] == list(range(len(burst.datagrams)))
        assert [one.last for one in burst.datagrams] == [False] * (len(burst.datagrams) - 1) + [True]
        assert b"".join(one.body for one in burst.datagrams).startswith(prefix)
        room = max(permit, 1 + -(-len(prefix) // BODY)) if burst.klass else 1 + -(-len(prefix) // BODY)
        assert len(burst.datagrams) <= room
        services = {ids.service for one in burst.datagrams for ids in one.ended}
        assert all(service <= STRONGEST[burst.klass] for service in services)
        assert (burst.klass is DatagramClass.SAFE) == (Service.SAFE in services)


def test_places_are_those_of_the_originated_ids() -> None:
    (burst,) = bursts_of(outbox_with(run(1, [bytes(200)] * 5)), 8, SMALL)
    ended = [(at, ids.first_counter, ids.count) for at, one in enumerate(burst.datagrams) for ids in one.ended]
    delivered = by_datagram(read([burst]))
    assert [(one.place.seq - 1000, one.first_counter, len(one.payloads)) for one in delivered] == ended
    assert all(one.ordered for one in delivered)


@pytest.mark.parametrize(
    ("service", "klass", "ordered"),
    [
        (Service.BASIC, DatagramClass.BASIC, False),
        (Service.CAUSAL, DatagramClass.CAUSAL, False),
        (Service.AGREED, DatagramClass.ORDERED, True),
        (Service.SAFE, DatagramClass.SAFE, True),
    ],
)
def test_each_service_has_its_class(service: Service, klass: DatagramClass, ordered: bool) -> None:
    (burst,) = bursts_of(outbox_with(run(1, [b"one", b"two"], service)), 4, SMALL)
    assert burst.klass is klass
    assert [(one.service, one.ordered) for one in read([burst])] == [(service, ordered)]


def test_a_basic_message_too_large_for_a_datagram_travels_as_causal_and_has_no_place_in_the_order() -> None:
    filled = bursts_of(outbox_with(run(1, [bytes(2000)], Service.BASIC)), 3, SMALL)
    assert {burst.klass for burst in filled} == {DatagramClass.CAUSAL}
    assert [one.ordered for one in read(filled)] == [False]


def test_the_kinds_take_turns() -> None:
    many = [bytes(250)] * 6
    outbox = outbox_with(run(1, many, Service.BASIC), run(2, many, Service.CAUSAL), run(3, many, Service.AGREED))
    kinds = [burst.klass for burst in bursts_of(outbox, 1, b"")]
    assert kinds[:9] == [DatagramClass.BASIC, DatagramClass.CAUSAL, DatagramClass.ORDERED] * 3


def test_who_has_another_kind_at_its_head_is_passed_over_and_keeps_its_order() -> None:
    outbox = outbox_with(run(1, [b"agreed"]), run(1, [b"causal"], Service.CAUSAL, 2), run(2, [b"first"], Service.CAUSAL))
    filled = bursts_of(outbox, 4, b"")
    assert [messages(read([burst])) for burst in filled] == [[(2, 1, b"first")], [(1, 1, b"agreed")], [(1, 2, b"causal")]]


def test_control_goes_first_within_a_kind_and_a_held_lane_waits() -> None:
    outbox = outbox_with(run(1, [b"later"]))
    outbox.submit(Lane.CONTROL, run(0, [b"sooner"]), None)
    outbox.hold(Lane.APPLICATION)
    held = outbox.fill_burst(4, SMALL)
    assert held is not None
    assert messages(read([held])) == [(0, 1, b"sooner")]
    assert outbox.fill_burst(4, SMALL) is None
    outbox.submit(Lane.CONTROL, run(0, [b"again"], first=2), None)
    outbox.open(Lane.APPLICATION)
    both = outbox.fill_burst(4, SMALL)
    assert both is not None
    assert messages(read([both])) == [(0, 2, b"again"), (1, 1, b"later")]


def test_processes_share_the_bursts_of_a_kind() -> None:
    outbox = outbox_with(*(run(process, [bytes(60)] * 400) for process in (1, 2, 3)))
    filled = bursts_of(outbox, 8, SMALL)
    order = [process for process, _, _ in messages(read(filled))]
    longest = max(len(list(stretch)) for _, stretch in groupby(order[: len(order) // 2]))
    assert longest * 60 <= 3 * 4 * BODY, "no process has more than a few turns in a row while others wait"


@pytest.mark.parametrize("size", [0, 200, BODY - 27])
def test_a_basic_message_is_read_from_the_last_datagram_alone(size: int) -> None:
    for prefix in (b"", SMALL, LARGE, encode_acks(1, [(rank, 1) for rank in range(20)], [])):
        (burst,) = bursts_of(outbox_with(run(1, [bytes(size)], Service.BASIC)), 1, prefix)
        whole = stamped(burst, 10)
        assert b"".join(one.body for one in burst.datagrams).startswith(prefix)
        last = whole.slice(whole.last_seq, whole.last_seq)
        (alone,) = Assembler().feed(last, ANN, VIEW, Phase.REGULAR, True, 77)
        assert (alone.place, alone.early, messages([alone])) == ((77, 0), True, [(1, 1, bytes(size))])
        assembler = Assembler()
        for seq in range(whole.first_seq, whole.last_seq):
            assert assembler.feed(whole.slice(seq, seq), ANN, VIEW, Phase.REGULAR, True, seq) == []
        assert not assembler.rejections


def test_a_new_view_starts_what_was_half_sent_again() -> None:
    outbox = outbox_with(run(1, [bytes(3000)]), run(2, [bytes(3000)], Service.CAUSAL))
    before = [outbox.fill_burst(2, SMALL), outbox.fill_burst(2, SMALL)]
    assert {burst.klass for burst in before if burst is not None} == {DatagramClass.CAUSAL, DatagramClass.ORDERED}
    assert outbox.restart() > 0
    assert sorted(messages(read(bursts_of(outbox, 2, SMALL)))) == [(1, 1, bytes(3000)), (2, 1, bytes(3000))]


def test_nothing_is_filled_without_a_permit() -> None:
    outbox = outbox_with(run(1, [b"x"]))
    assert outbox.fill_burst(0, SMALL) is None
    assert outbox.has_work()
