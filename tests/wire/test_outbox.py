"""The Outbox: bounds, lanes, turns, fragments, restart and what is bound to a view."""

from __future__ import annotations

import pytest

from tests.wire.naive_reassembly import feed, flattened, whole_bursts
from tests.wire.samples import BOB, VIEW
from transis.types.errors import MessageTooLarge, UsageError
from transis.types.ids import DatagramClass, Service
from transis.types.limits import ADDRESS_MAX, MESSAGE_MAX, RUN_MESSAGES_MAX
from transis.types.outputs import Lane, OutboundRun, RunIds
from transis.wire.outbox import FilledDatagram, Outbox
from transis.wire.reassembly import Assembler

BODY = 324
APPLICATION, CONTROL = Lane.APPLICATION, Lane.CONTROL


def run(process: int, payloads: list[bytes], first: int = 1, service: Service = Service.AGREED) -> OutboundRun:
    return OutboundRun(process, b"group", service, first, payloads)


def processes(filled: list[FilledDatagram]) -> list[int]:
    """The processes of the messages that ended, in order."""
    return [ids.process for one in filled for ids in one.ended for _ in range(ids.count)]


def drained(outbox: Outbox, permit: int) -> list[list[FilledDatagram]]:
    fills: list[list[FilledDatagram]] = []
    while outbox.has_work():
        fills.append(outbox.fill(permit))
        assert fills[-1]
    return fills


def test_a_lane_takes_what_fits_and_says_when_there_is_room_again() -> None:
    outbox = Outbox(BODY, 1000)
    assert outbox.submit(APPLICATION, run(1, [bytes(96)] * 20), None) == 9
    assert outbox.was_refused(APPLICATION)
    assert outbox.submit(CONTROL, run(2, [bytes(96)] * 2), None) == 2
    assert outbox.take_room() == []
    while not (rooms := outbox.take_room()):
        assert outbox.fill(1)
    assert rooms == [APPLICATION]
    assert outbox.backlog() <= 500
    assert not outbox.was_refused(APPLICATION)
    assert outbox.take_room() == []


def test_room_is_named_only_when_the_message_left_out_would_fit() -> None:
    outbox = Outbox(BODY, 1000)
    assert outbox.submit(APPLICATION, run(1, [bytes(400)]), None) == 1
    assert outbox.submit(APPLICATION, run(2, [bytes(700)]), None) == 0
    assert outbox.take_room() == []
    outbox.fill(10)
    assert outbox.take_room() == [APPLICATION]
    assert outbox.submit(APPLICATION, run(2, [bytes(700)]), None) == 1


def test_a_message_larger_than_the_limit_is_taken_alone() -> None:
    outbox = Outbox(BODY, 1000)
    assert outbox.submit(APPLICATION, run(1, [bytes(5000), b"next"]), None) == 1
    assert outbox.submit(APPLICATION, run(1, [b"next"], 2), None) == 0
    drained(outbox, 3)
    assert outbox.take_room() == [APPLICATION]


def test_empty_messages_are_bounded_too() -> None:
    outbox = Outbox(BODY, 1000)
    assert 0 < outbox.submit(APPLICATION, run(1, [b""] * 4000), None) < 300


def test_wrong_runs_are_usage_errors() -> None:
    outbox = Outbox(BODY, 1000)
    with pytest.raises(MessageTooLarge):
        outbox.submit(APPLICATION, run(1, [bytes(MESSAGE_MAX + 1)]), None)
    with pytest.raises(UsageError):
        outbox.submit(APPLICATION, run(1, []), None)
    with pytest.raises(UsageError):
        outbox.submit(APPLICATION, OutboundRun(1, bytes(ADDRESS_MAX + 1), Service.SAFE, 1, [b"x"]), None)
    assert not outbox.has_work()


def test_a_held_lane_keeps_its_messages_and_control_goes_on() -> None:
    outbox = Outbox(BODY, 1000)
    outbox.submit(APPLICATION, run(1, [b"later"]), None)
    outbox.hold(APPLICATION)
    assert (outbox.has_work(), outbox.backlog(), outbox.fill(5)) == (False, 0, [])
    outbox.submit(CONTROL, run(2, [b"now"]), None)
    assert processes(outbox.fill(5)) == [2]
    outbox.open(APPLICATION)
    assert outbox.backlog() > 0
    assert processes(outbox.fill(5)) == [1]


def test_control_goes_first() -> None:
    outbox = Outbox(BODY, 10_000)
    outbox.submit(APPLICATION, run(1, [b"x"] * 5), None)
    outbox.submit(CONTROL, run(2, [b"y"] * 2), None)
    assert processes(outbox.fill(1)) == [2, 2, 1, 1, 1, 1, 1]


def test_without_a_permit_nothing_leaves() -> None:
    outbox = Outbox(BODY, 1000)
    outbox.submit(APPLICATION, run(1, [b"x"]), None)
    assert outbox.fill(0) == []
    assert outbox.has_work()


def test_many_small_submits_share_a_run() -> None:
    outbox = Outbox(BODY, 10_000)
    for counter in range(1, 11):
        outbox.submit(APPLICATION, run(1, [b"12345678"], counter), None)
    (filled,) = outbox.fill(5)
    assert filled.ended == (RunIds(1, 1, 10, Service.AGREED, b"group"),)


def test_a_run_longer_than_a_header_may_say_is_cut() -> None:
    outbox = Outbox(BODY, 1 << 20)
    assert outbox.submit(APPLICATION, run(1, [b""] * (RUN_MESSAGES_MAX + 5)), None) == RUN_MESSAGES_MAX + 5
    (filled,) = outbox.fill(1)
    assert [ids.count for ids in filled.ended] == [RUN_MESSAGES_MAX, 5]


def test_a_large_message_does_not_hold_up_others() -> None:
    """The small ones of process 2 leave in the next turn, not after a whole megabyte of process 1."""
    outbox = Outbox(BODY, 1 << 21)
    outbox.submit(APPLICATION, run(1, [bytes(1 << 20)]), None)
    outbox.fill(10)
    outbox.submit(APPLICATION, run(2, [b"quick"]), None)
    assert processes(outbox.fill(10)) == [2]
    assert processes([one for filled in drained(outbox, 50) for one in filled]) == [1]


def test_busy_processes_get_equal_shares() -> None:
    outbox = Outbox(BODY, 1 << 22)
    for process, size in ((1, 50), (2, 200), (3, 5000)):
        outbox.submit(APPLICATION, run(process, [bytes(size)] * (200_000 // size)), None)
    sent = {1: 0, 2: 0, 3: 0}
    for _ in range(60):
        for one in outbox.fill(20):
            for ids in one.ended:
                sent[ids.process] += ids.count * {1: 50, 2: 200, 3: 5000}[ids.process]
    assert min(sent.values()) > 0.75 * max(sent.values())


def test_more_large_messages_than_may_be_partial_all_get_through() -> None:
    outbox = Outbox(BODY, 1 << 22)
    for process in range(20):
        outbox.submit(APPLICATION, run(process, [bytes(20_000)]), None)
    fills = drained(outbox, 7)
    assembler = Assembler()
    seq = 1
    arrived: list[int] = []
    for filled in fills:
        arrived += [placed.message.process for placed in flattened(feed(assembler, whole_bursts(filled, seq)))]
        seq += len(filled)
    assert sorted(arrived) == list(range(20))
    assert not assembler.rejections


def test_basic_datagrams_come_first_and_stand_alone() -> None:
    outbox = Outbox(BODY, 1 << 20)
    outbox.submit(APPLICATION, run(1, [bytes(200)] * 3, service=Service.BASIC), None)
    outbox.submit(APPLICATION, run(2, [bytes(200)] * 3), None)
    filled = outbox.fill(10)
    assert [one.klass for one in filled] == [DatagramClass.BASIC] * 3 + [DatagramClass.ORDERED] * 2
    assert [(one.index, one.last) for one in filled[:3]] == [(0, True)] * 3


def test_a_basic_message_too_large_for_a_datagram_travels_in_the_ordered_stream() -> None:
    outbox = Outbox(BODY, 1 << 20)
    outbox.submit(APPLICATION, run(1, [b"a", bytes(BODY), b"b"], service=Service.BASIC), None)
    basic, *ordered = outbox.fill(10)
    assert (basic.klass, [ids.first_counter for ids in basic.ended]) == (DatagramClass.BASIC, [1, 3])
    assert [one.klass for one in ordered] == [DatagramClass.ORDERED] * 2
    assert [ids.first_counter for one in ordered for ids in one.ended] == [2]


def test_neither_kind_starves_the_other_with_a_permit_of_one() -> None:
    outbox = Outbox(BODY, 1 << 20)
    outbox.submit(APPLICATION, run(1, [bytes(200)] * 50, service=Service.BASIC), None)
    outbox.submit(APPLICATION, run(2, [bytes(200)] * 50), None)
    classes = [outbox.fill(1)[0].klass for _ in range(20)]
    assert classes.count(DatagramClass.BASIC) == 10


def test_a_restart_begins_partial_messages_again() -> None:
    outbox = Outbox(BODY, 1 << 20)
    payload = bytes(range(256)) * 20
    outbox.submit(APPLICATION, run(1, [payload, b"after"]), None)
    before = outbox.backlog()
    outbox.fill(3)
    assert outbox.backlog() < before - 2 * BODY
    outbox.restart()
    assert outbox.backlog() == before
    assembler = Assembler()
    arrived = flattened(feed(assembler, whole_bursts(outbox.fill(100))))
    assert [placed.message.payload for placed in arrived] == [payload, b"after"]


def test_messages_bound_to_another_view_are_dropped() -> None:
    outbox = Outbox(BODY, 1 << 20)
    old = VIEW._replace(rep=BOB)
    outbox.submit(CONTROL, run(1, [b"old"] * 2), old)
    outbox.submit(CONTROL, run(1, [b"new"], 3), VIEW)
    outbox.submit(CONTROL, run(2, [bytes(5000), b"old"]), old)
    outbox.submit(APPLICATION, run(3, [b"free"]), None)
    outbox.fill(1)
    dropped = outbox.drop_bound(VIEW)
    assert dropped == [RunIds(2, 1, 2, Service.AGREED, b"group")]
    assert outbox.drop_all() == [RunIds(3, 1, 1, Service.AGREED, b"group")]
    assert (outbox.has_work(), outbox.backlog()) == (False, 0)


def test_drop_bound_keeps_the_rest_in_order() -> None:
    outbox = Outbox(BODY, 1 << 20)
    old = VIEW._replace(seq=4)
    outbox.submit(CONTROL, run(1, [b"a"]), None)
    outbox.submit(CONTROL, run(1, [b"b", b"c"], 2), old)
    outbox.submit(CONTROL, run(1, [b"d"], 4), VIEW)
    assert outbox.drop_bound(VIEW) == [RunIds(1, 2, 2, Service.AGREED, b"group")]
    (filled,) = outbox.fill(5)
    assert [ids.first_counter for ids in filled.ended] == [1, 4]


def test_messages_up_to_the_largest_pass_in_many_visits() -> None:
    outbox = Outbox(1212, 8 << 20)
    payload = bytes(range(256)) * (MESSAGE_MAX // 256)
    assert outbox.submit(APPLICATION, run(1, [payload]), None) == 1
    assembler = Assembler()
    deliveries = []
    seq = 1
    for filled in drained(outbox, 120):
        deliveries += feed(assembler, whole_bursts(filled, seq))
        seq += len(filled)
    (delivered,) = deliveries
    assert delivered.place == (seq - 1, 0)
    assert delivered.payloads[0] == payload
