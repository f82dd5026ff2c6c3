"""The Assembler where things go wrong: gaps, junk, broken senders, views; and that payloads are cut lazily."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.naive_reassembly import RING, copied, feed, flattened, whole_bursts
from tests.wire.samples import ANN, BOB, VIEW, mutated
from transis.types.ids import DatagramClass, Service
from transis.types.outputs import Lane, OutboundRun, Phase
from transis.wire.burst import Burst, DataHeader, encode_data, read_bursts
from transis.wire.items import Fragment, Run, encode_fragment_head, encode_run_head
from transis.wire.outbox import FilledDatagram, Outbox
from transis.wire.reassembly import PARTIALS_MAX, Assembler

BODY = 64


def filled(payloads: list[bytes], service: Service = Service.AGREED, permit: int = 100) -> list[FilledDatagram]:
    outbox = Outbox(BODY, 1 << 20)
    outbox.submit(Lane.APPLICATION, OutboundRun(1, b"group", service, 1, payloads), None)
    return outbox.fill(permit)


def bursts_of(bodies: list[bytes], klass: DatagramClass = DatagramClass.SAFE, first_seq: int = 1) -> list[Burst]:
    """One visit with these bodies, good or bad."""
    datagrams = [
        encode_data(DataHeader(klass, RING, 0, first_seq + step, 0, 1, 2, step, step == len(bodies) - 1, False), body)
        for step, body in enumerate(bodies)
    ]
    return read_bursts(datagrams)[0]


def cut(stream: bytes) -> list[bytes]:
    return [stream[start : start + BODY] for start in range(0, len(stream), BODY)] or [b""]


def singles(bursts: list[Burst]) -> list[Burst]:
    return [burst.slice(seq, seq) for burst in bursts for seq in range(burst.first_seq, burst.last_seq + 1)]


def head(count: int, length: int, service: Service = Service.AGREED, counter: int = 1) -> bytes:
    return encode_run_head(Run(1, service, b"", counter, count, length), ())


def fragment(offset: int, share: bytes, total: int = 100, counter: int = 1, service: Service = Service.AGREED) -> bytes:
    return encode_fragment_head(Fragment(1, service, counter, 0, total, offset, len(share))) + share


def test_deliveries_carry_what_the_datagram_says() -> None:
    assembler = Assembler()
    (burst,) = whole_bursts(filled([b"one", b"two"]), first_seq=9, turn=5)
    (delivered,) = assembler.feed(burst, BOB, VIEW, Phase.TRANSITIONAL, False, burst.first_seq)
    assert copied([delivered])[0] == (
        (BOB, 1),
        b"group",
        Service.AGREED,
        1,
        (b"one", b"two"),
        VIEW,
        Phase.TRANSITIONAL,
        ((9, 0, 2),),
        False,
        7,
        6,
        True,
        0,
    )


def test_payloads_are_a_sequence() -> None:
    for payloads in ([b"abc"] * 4, [b"a", b"", b"bcd", b"e"], [b""] * 4):
        (delivered,) = feed(Assembler(), bursts_of([b"".join(one.body for one in filled(payloads))]))
        found = delivered.payloads
        assert len(found) == 4
        assert [bytes(one) for one in found] == payloads
        assert [bytes(found[index]) for index in (0, 1, -1)] == [payloads[0], payloads[1], payloads[-1]]
        assert [bytes(one) for one in found[1:3]] == payloads[1:3]
        with pytest.raises(IndexError):
            found[4]


def test_a_lost_datagram_ends_the_visit_and_the_next_visit_is_whole_again() -> None:
    assembler = Assembler()
    first, second = filled([bytes(50)] * 10), filled([b"again"])
    bursts = singles(whole_bursts(first))
    arrived = feed(assembler, bursts[:3] + bursts[4:])
    assert all(one.place.seq <= 3 for one in arrived)
    assert assembler.rejections["gap"] == 1
    assert assembler.rejections["headless"] == len(bursts) - 5
    again = feed(assembler, whole_bursts(second, first_seq=len(bursts) + 1))
    assert [placed.message.payload for placed in flattened(again)] == [b"again"]


def test_a_visit_is_not_continued_by_another_with_a_fitting_index() -> None:
    """What is lost between two visits may leave exactly the expected index: sequence numbers tell them apart."""
    assembler = Assembler()
    first, second = singles(whole_bursts(filled([bytes(50)] * 4))), singles(whole_bursts(filled([bytes(50)] * 4), first_seq=50))
    feed(assembler, first[:2])
    assert feed(assembler, second[2:]) == []
    assert assembler.rejections["gap"] == 1


def test_an_unfinished_visit_is_counted_when_the_next_begins() -> None:
    assembler = Assembler()
    feed(assembler, singles(whole_bursts(filled([bytes(50)] * 4)))[:2])
    feed(assembler, whole_bursts(filled([b"x"]), first_seq=50))
    assert assembler.rejections == Counter(unfinished=1)


def test_basic_datagrams_do_not_disturb_an_ordered_visit() -> None:
    assembler = Assembler()
    ordered = singles(whole_bursts(filled([bytes(50)] * 4)))
    (basic,) = whole_bursts(filled([b"quick"], Service.BASIC), first_seq=90)
    before = feed(assembler, ordered[:2])
    (early,) = assembler.feed(basic, ANN, VIEW, Phase.REGULAR, True, basic.first_seq)
    (at_its_place,) = assembler.feed(basic, ANN, VIEW, Phase.REGULAR, False, basic.first_seq)
    after = feed(assembler, ordered[2:])
    assert (early.early, at_its_place.early) == (True, False)
    assert early.place == at_its_place.place == (90, 0)
    assert sum(len(one.payloads) for one in before + after) == 4
    assert not assembler.rejections


def test_senders_do_not_disturb_each_other() -> None:
    assembler = Assembler()
    bursts = singles(whole_bursts(filled([bytes(50)] * 4)))
    arrived = [
        delivered
        for burst in bursts
        for sender in (ANN, BOB)
        for delivered in assembler.feed(burst, sender, VIEW, Phase.REGULAR, False, burst.first_seq)
    ]
    assert Counter(one.process.node for one in arrived for _ in one.payloads) == {ANN: 4, BOB: 4}


def test_partial_messages_die_with_the_view() -> None:
    """Traps 1: what was begun in one view is not finished in the next."""
    outbox = Outbox(BODY, 1 << 20)
    outbox.submit(Lane.APPLICATION, OutboundRun(1, b"", Service.AGREED, 1, [bytes(300)]), None)
    assembler = Assembler()
    assert feed(assembler, whole_bursts(outbox.fill(3))) == []
    assembler.reset()
    assert feed(assembler, whole_bursts(outbox.fill(3), first_seq=4)) == []
    assert assembler.rejections["fragment"] > 0


@pytest.mark.parametrize(
    ("stream", "name"),
    [
        pytest.param(b"\x00", "item", id="unknown item"),
        pytest.param(b"\x01", "truncated", id="header cut off"),
        pytest.param(head(1, 10) + bytes(9), "truncated", id="payload cut off"),
        pytest.param(head(1, 1 << 25), "run", id="a message too large"),
        pytest.param(head(0, 1), "run", id="a run of nothing"),
        pytest.param(head(5000, 1), "run", id="a run too long"),
        pytest.param(head(1, 1, counter=0), "run", id="counter zero"),
        pytest.param(head(1, 1, counter=1 << 63), "run", id="counter too large"),
        pytest.param(b"\x01\x09" + head(1, 1)[2:], "run", id="unknown service"),
        pytest.param(fragment(0, b""), "fragment", id="an empty fragment"),
        pytest.param(fragment(0, bytes(11), total=10), "fragment", id="a fragment beyond its message"),
        pytest.param(fragment(0, b"x", total=1 << 26), "fragment", id="a fragmented message too large"),
        pytest.param(fragment(0, b"x", counter=0), "fragment", id="a fragment with counter zero"),
        pytest.param(fragment(50, bytes(50)), "fragment", id="a fragment without beginning"),
        pytest.param(fragment(0, bytes(50)) + fragment(49, bytes(50)), "fragment", id="fragments overlap"),
        pytest.param(fragment(0, bytes(50)) + fragment(50, bytes(50), total=101), "fragment", id="the total changes"),
        pytest.param(fragment(0, b"x") + fragment(1, bytes(99), service=Service.SAFE), "fragment", id="the service changes"),
    ],
)
def test_malformed_streams_are_named_and_what_came_before_is_kept(stream: bytes, name: str) -> None:
    good = head(1, 4, counter=7) + b"good"
    for bursts in (bursts_of(cut(good + stream)), singles(bursts_of(cut(good + stream)))):
        assembler = Assembler()
        arrived = flattened(feed(assembler, bursts))
        assert [placed.message.payload for placed in arrived] == [b"good"]
        assert assembler.rejections[name] == 1


@pytest.mark.parametrize(
    ("klass", "service"),
    [
        (DatagramClass.ORDERED, Service.SAFE),
        (DatagramClass.BASIC, Service.AGREED),
        (DatagramClass.BASIC, Service.SAFE),
        (DatagramClass.CAUSAL, Service.AGREED),
    ],
)
def test_a_message_stronger_than_its_datagram_is_not_delivered(klass: DatagramClass, service: Service) -> None:
    assembler = Assembler()
    assert feed(assembler, bursts_of([head(1, 1, service) + b"x"], klass)) == []
    assert assembler.rejections == Counter({"class": 1})


def test_basic_datagrams_hold_whole_runs_only() -> None:
    assembler = Assembler()
    short, fragments = head(2, 5, Service.BASIC) + bytes(9), fragment(0, bytes(10), 20, service=Service.BASIC)
    for body in (short, fragments, b"junk", head(1, 1, Service.BASIC)[:9]):
        assert feed(assembler, bursts_of([body], DatagramClass.BASIC)) == []
    assert assembler.rejections == Counter(truncated=1, basic=3)


def test_messages_in_the_middle_of_their_fragments_are_bounded() -> None:
    assembler = Assembler()
    stream = b"".join(fragment(0, b"x", counter=counter) for counter in range(1, PARTIALS_MAX + 4))
    feed(assembler, bursts_of(cut(stream)))
    assert assembler.rejections == Counter(partials=3)


def test_fragments_of_several_messages_interleave() -> None:
    stream = b"".join(fragment(offset, bytes((counter,)) * 50, counter=counter) for offset in (0, 50) for counter in (1, 2, 3))
    arrived = flattened(feed(Assembler(), bursts_of(cut(stream))))
    assert [placed.message.payload for placed in arrived] == [bytes((counter,)) * 100 for counter in (1, 2, 3)]


def test_a_restarted_message_replaces_what_was_there_of_it() -> None:
    stream = fragment(0, b"a" * 60) + fragment(0, b"b" * 50) + fragment(50, b"b" * 50)
    arrived = flattened(feed(Assembler(), bursts_of(cut(stream))))
    assert [placed.message.payload for placed in arrived] == [b"b" * 100]


valid_streams = st.lists(st.sampled_from((0, 1, 30, 100)), min_size=1, max_size=8).map(
    lambda sizes: b"".join(one.body for one in filled([bytes(size) for size in sizes], permit=3))
)


@given(st.binary(max_size=300) | mutated(valid_streams), st.sampled_from(DatagramClass))
def test_any_stream_gives_the_same_deliveries_whatever_the_bursts(stream: bytes, klass: DatagramClass) -> None:
    whole, single = Assembler(), Assembler()
    bursts = bursts_of(cut(stream), klass)
    assert copied(feed(whole, bursts)) == copied(feed(single, singles(bursts)))
    later = singles(whole_bursts(filled([b"again"]), first_seq=1000))
    assert copied(feed(whole, later)) == copied(feed(single, later)) != []
