"""Slow clients: throttled first, ended then, with a sentence that says so; and nobody else notices."""

from __future__ import annotations

import pytest

from tests.sessions.hosting import Alone, send_to
from transis.sessions.frames import Bye, Changed, Credit, Done, Goodbye, Join, Joined, NodeFrame, Stream, cost, payload_cost
from transis.sessions.host import TOO_SLOW, SessionPolicy
from transis.types.outputs import NEVER

SMALL = SessionPolicy(send_window=64 * 1024, queue_max=256 * 1024, total_max=1 << 20, patience_us=1_000_000)
KB = b"k" * (1024 - 16)
"""A message that counts as 1 KiB."""


def credit_given(frames: list[NodeFrame]) -> int:
    return sum(frame.amount for frame in frames if isinstance(frame, Credit))


def fill(alone: Alone, sender: int, kilobytes: int) -> None:
    """In Sends that the sender's window allows."""
    for _ in range(kilobytes // 32):
        alone.send(sender, "x", *[KB] * 32)
        alone.settle(3)


def test_a_client_without_credit_gets_one_frame_too_many_and_then_none() -> None:
    alone = Alone(SMALL)
    slow, quick = alone.member("x", credit=1), alone.member("x")
    fill(alone, quick, 64)
    assert alone.payloads(slow) == []
    alone.say(slow, Credit(2000))
    alone.take()
    taken = alone.payloads(slow)
    assert taken
    alone.settle()
    assert alone.payloads(slow) == taken
    alone.say(slow, Credit(1 << 20))
    alone.take()
    assert alone.payloads(slow) == alone.payloads(quick) == [KB] * 64


def test_credit_that_is_used_up_exactly_is_used_up() -> None:
    alone = Alone(SMALL)
    process, quick = alone.member("x", credit=1), alone.connect()
    for number in range(3):
        alone.send(quick, "x", b"%d" % number)
        alone.settle(3)
    owing = -alone.host.sessions()[0].credit
    alone.say(process, Credit(owing + 17))
    alone.take()
    assert alone.host.sessions()[0].credit == 0
    assert alone.payloads(process) == [b"0"]


def test_too_much_waiting_ends_the_session_with_a_clear_sentence() -> None:
    alone = Alone(SMALL)
    slow, quick = alone.member("x", credit=1), alone.member("x")
    fill(alone, quick, 512)
    (why,) = alone.goodbyes(slow)
    assert why.startswith(TOO_SLOW)
    assert "sessions.queue_max" in why
    assert "bytes waited for this client" in why
    assert alone.payloads(quick) == [KB] * 512
    assert [status.process for status in alone.host.sessions()] == [quick]
    view = [frame.view for frame in alone.seen[quick] if isinstance(frame, Changed)][-1]
    assert [member.number for member in view.members] == [quick]


def test_one_message_larger_than_the_whole_queue_is_still_delivered() -> None:
    alone = Alone(SMALL)
    process = alone.member("x")
    alone.send(process, "x", bytes(3 * SMALL.queue_max))
    alone.settle(20)
    assert alone.payloads(process) == [bytes(3 * SMALL.queue_max)]


def test_a_client_that_takes_nothing_is_ended_when_patience_is() -> None:
    alone = Alone(SMALL)
    hung, quick = alone.member("x", credit=1), alone.member("x")
    alone.send(quick, "x", b"unread")
    alone.settle(3)
    assert alone.host.deadline() <= alone.now + SMALL.patience_us
    alone.step(SMALL.patience_us // 2)
    assert alone.goodbyes(hung) == []
    alone.step(SMALL.patience_us)
    (why,) = alone.goodbyes(hung)
    assert why.startswith(TOO_SLOW)
    assert "more than 1 s are not waited (sessions.patience_us)" in why
    assert alone.host.deadline() == NEVER


def test_any_credit_shows_that_a_client_lives() -> None:
    alone = Alone(SMALL)
    slow, quick = alone.member("x", credit=1), alone.member("x")
    fill(alone, quick, 64)
    for _ in range(6):
        alone.step(SMALL.patience_us * 3 // 4)
        alone.say(slow, Credit(1))
    assert alone.goodbyes(slow) == []


def test_patience_ends_for_each_at_its_own_time() -> None:
    alone = Alone(SMALL)
    one, two, quick = alone.member("x", credit=1), alone.member("x", credit=1), alone.connect()
    alone.send(quick, "x", b"unread")
    alone.settle(3)
    alone.step(SMALL.patience_us // 2)
    alone.say(one, Credit(1))
    alone.step(SMALL.patience_us * 3 // 4)
    assert (len(alone.goodbyes(one)), len(alone.goodbyes(two))) == (0, 1)
    alone.step(SMALL.patience_us)
    assert len(alone.goodbyes(one)) == 1


def test_a_socket_that_is_full_counts_as_much_as_credit_that_is_missing() -> None:
    alone = Alone(SMALL)
    stuck, quick = alone.member("x"), alone.member("x")
    alone.deaf = {stuck}
    alone.send(quick, "x", b"unread")
    alone.settle(3)
    alone.step(SMALL.patience_us + 1)
    alone.deaf = set()
    alone.take()
    assert alone.goodbyes(stuck)[0].startswith(TOO_SLOW)


def test_all_together_are_bounded_and_the_largest_goes() -> None:
    policy = SessionPolicy(send_window=64 * 1024, queue_max=256 * 1024, total_max=300 * 1024)
    alone = Alone(policy)
    quick = alone.connect()
    one, two = alone.member("x", credit=1), alone.member("y", credit=1)
    for _ in range(5):
        alone.send(quick, "x", *[KB] * 30)
        alone.settle(3)
    for _ in range(7):
        alone.send(quick, "y", *[KB] * 30)
        alone.settle(3)
    (why,) = alone.goodbyes(two)
    assert "sessions.total_max" in why
    assert "it had the most" in why
    assert alone.goodbyes(one) == alone.goodbyes(quick) == []
    alone.say(one, Credit(1 << 20))
    alone.take()
    assert alone.payloads(one) == [KB] * 150


def test_what_many_wait_for_is_counted_once() -> None:
    """Ten queues share the same frames: together they are far below the total."""
    alone = Alone(SessionPolicy(send_window=64 * 1024, queue_max=256 * 1024, total_max=256 * 1024))
    behind = [alone.member("x", credit=1) for _ in range(10)]
    quick = alone.connect()
    fill(alone, quick, 160)
    assert all(alone.goodbyes(process) == [] for process in behind)
    assert sum(status.queue_bytes for status in alone.host.sessions()) > alone.host.policy.total_max


def test_waiting_sends_count_too() -> None:
    alone = Alone(SessionPolicy(send_window=4096, queue_max=64 * 1024, total_max=256 * 1024), start=False)
    many = [alone.connect() for _ in range(4)]
    for number, process in enumerate(many):
        alone.send(process, "x", bytes(80_000 + number))
    alone.take()
    assert [bool(alone.goodbyes(process)) for process in many] == [False, False, False, True]


def test_who_said_bye_and_has_the_most_waiting_leaves_nothing_behind() -> None:
    alone = Alone(SessionPolicy(send_window=4096, queue_max=64 * 1024, total_max=256 * 1024), start=False)
    first, second, gone, last = (alone.connect() for _ in range(4))
    for process, size in ((first, 80_000), (second, 80_000), (gone, 90_000)):
        alone.send(process, "x", bytes(size))
    alone.say(gone, Bye())
    alone.host.forget(alone.now, gone)
    alone.send(last, "x", bytes(60_000))
    alone.take()
    assert (alone.host.over(), alone.host.ready()) == ([], [])
    assert [alone.goodbyes(process) for process in (first, second, last)] == [[], [], []]


# --- backpressure -------------------------------------------------------------------------------------------------------------


def test_credit_comes_back_when_the_node_took_the_messages() -> None:
    alone = Alone(SMALL)
    process = alone.connect()
    for _ in range(10):
        alone.send(process, "x", *[KB] * 16)
        alone.settle(3)
    assert credit_given(alone.seen[process]) >= 9 * 16 * 1024
    assert alone.tail(process, Done)


def test_who_is_behind_with_its_stream_sends_in_a_trickle() -> None:
    alone = Alone(SMALL)
    behind, quick = alone.member("x", credit=1), alone.member("x")
    fill(alone, quick, 96)
    alone.send(behind, "x", *[KB] * 64)
    alone.step()
    assert credit_given(alone.seen[behind]) == 0
    given = []
    for _ in range(5):
        alone.step(SMALL.trickle_us)
        amount = credit_given(alone.seen[behind]) - sum(given)
        given.append(amount)
        if amount:
            alone.send(behind, "x", b"!" * 100)
    assert given == [1, 116, 116, 116, 116]
    alone.say(behind, Credit(1 << 20))
    alone.settle(3)
    assert credit_given(alone.seen[behind]) == 64 * 1024 + 5 * 116
    assert alone.goodbyes(behind) == []


def test_a_trickle_that_is_no_longer_needed_gives_nothing() -> None:
    """Behind, caught up, and behind again before the time of the first trickle has come."""
    alone = Alone(SMALL)
    process, quick = alone.member("x", credit=1), alone.connect()
    fill(alone, quick, 96)
    alone.send(process, "x", *[KB] * 64)
    alone.step()
    assert alone.host.deadline() <= alone.now + SMALL.trickle_us
    alone.say(process, Credit(1 << 18))
    alone.step()
    given = credit_given(alone.seen[process])
    assert given == 64 * 1024
    alone.deaf = {process}
    for _ in range(3):
        alone.send(quick, "x", *[KB] * 32)
        alone.step(1_000)
    assert alone.host.sessions()[0].queue_bytes > SMALL.throttle_above
    alone.step(SMALL.trickle_us)
    alone.deaf = set()
    alone.take()
    assert credit_given(alone.seen[process]) == given


def test_sending_from_inside_a_handler_never_stops() -> None:
    """A client that takes a message only after it could send two: its own messages come back to it, and it goes on for ever."""
    alone = Alone(SMALL)
    process = alone.member("x", credit=4096)
    credit, sent, taken = SMALL.send_window, 0, 0
    for _ in range(400):
        alone.step(5_000)
        credit = SMALL.send_window - sent * cost(send_to("x", [KB])) + credit_given(alone.seen[process])
        if credit > 0 and sent < 2 * (taken + 1):
            alone.send(process, "x", KB)
            sent += 1
        elif sent >= 2 * (taken + 1) and taken < len(alone.payloads(process)):
            alone.say(process, Credit(payload_cost(alone.payloads(process)[taken : taken + 1])))
            taken += 1
    assert alone.goodbyes(process) == []
    assert taken > 50
    assert sent > 100


# --- the others ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["queue", "bye", "lost"])
def test_the_end_of_one_leaves_the_others_whole(end: str) -> None:
    alone = Alone(SMALL)
    others = [alone.member("x", "y") for _ in range(3)]
    goner = alone.member("x", credit=1)
    for number in range(20):
        alone.send(others[0], "x", *(b"%d.%d " % (number, at) + KB[10:] for at in range(32)))
        if number == 10 and end == "bye":
            alone.say(goner, Bye())
        if number == 10 and end == "lost":
            alone.host.forget(alone.now, goner)
        alone.settle(3)
    alone.say(others[0], Join("z"))
    alone.settle()
    assert [status.process for status in alone.host.sessions()] == others
    streams = [[frame for frame in alone.seen[one] if isinstance(frame, Stream)] for one in others]
    assert streams[0] == streams[1] == streams[2]
    assert len(alone.payloads(others[0])) == 640
    assert alone.seen[others[0]].count(Joined("z")) == 1
    assert not any(isinstance(frame, Goodbye) for one in others for frame in alone.seen[one])
