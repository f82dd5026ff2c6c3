"""What clients are told, in which order, and what their mistakes lead to."""

from __future__ import annotations

import pytest

from tests.sessions.hosting import Alone, send_to
from transis.sessions.frames import (
    BATCH_BYTES,
    SESSION_VERSION,
    Answer,
    Ask,
    Bye,
    Changed,
    Credit,
    Done,
    Goodbye,
    Hello,
    Join,
    Joined,
    Leave,
    Left,
    NotJoined,
    NotSent,
    Send,
    Stream,
    Welcome,
    decode_value,
    encode_frame,
    payload_cost,
)
from transis.sessions.host import SessionPolicy
from transis.sessions.session import REQUESTS_MAX
from transis.types.config import Window
from transis.types.errors import ConfigError, UsageError
from transis.types.ids import ProcessId, Service
from transis.types.limits import MESSAGE_MAX, RUN_MESSAGES_MAX
from transis.types.outputs import GroupLeft, Lane, Refused, Room, RunIds, Stopped
from transis.types.views import Address, PrivateName, group_id
from transis.wire.items import encode_address


def kinds(alone: Alone, process: int) -> list[str]:
    return [type(frame).__name__ for frame in alone.seen[process]]


# --- beginnings ---------------------------------------------------------------------------------------------------------------


def test_a_client_is_welcomed_with_its_name_and_window() -> None:
    alone = Alone()
    process = alone.connect(label="trader")
    alone.take()
    assert alone.seen[process] == [Welcome(SESSION_VERSION, "tests", ProcessId(alone.node.id, process), 1 << 20)]
    (status,) = alone.host.sessions()
    assert (status.process, status.label, status.groups) == (process, "trader", ())


def test_another_version_is_refused_with_both() -> None:
    alone = Alone()
    with pytest.raises(UsageError, match=f"version {SESSION_VERSION} .* the client 99: install the same release"):
        alone.host.connect(0, Hello(99, "", 1))


def test_there_are_only_so_many_sessions() -> None:
    alone = Alone(SessionPolicy(sessions_max=2))
    first, _ = alone.connect(), alone.connect()
    with pytest.raises(UsageError, match="2 sessions are open"):
        alone.connect()
    alone.host.forget(alone.now, first)
    assert alone.connect() == 3


@pytest.mark.parametrize("field", ["send_window", "queue_max", "patience_us", "sessions_max", "total_max", "trickle_us"])
def test_a_wrong_limit_is_named(field: str) -> None:
    with pytest.raises(ConfigError, match=rf"sessions\.{field} = 0: must be from"):
        SessionPolicy(**{field: 0}).validated()


def test_the_total_has_room_for_one_queue() -> None:
    with pytest.raises(ConfigError, match=r"total_max = 1048576: .*at least sessions.queue_max"):
        SessionPolicy(total_max=1 << 20).validated()


# --- groups -------------------------------------------------------------------------------------------------------------------


def test_joined_comes_before_the_first_view_and_left_is_the_last_word() -> None:
    alone = Alone()
    process = alone.member("x")
    alone.say(process, Leave("x"))
    alone.settle()
    assert kinds(alone, process) == ["Welcome", "Joined", "Changed", "Left"]
    assert alone.seen[process][-1] == Left("x", "left")


def test_members_see_each_other_come_and_go() -> None:
    alone = Alone()
    first, second = alone.member("x"), alone.member("x")
    alone.host.forget(alone.now, second)
    alone.settle()
    views = [frame.view for frame in alone.seen[first] if isinstance(frame, Changed)]
    assert [[member.number for member in view.members] for view in views] == [[first], [first, second], [first]]
    assert views[-1].cause.what == "disconnect"
    assert kinds(alone, first).count("Joined") == 1


@pytest.mark.parametrize("name", ["", "x" * 129, "tab\t"])
def test_a_bad_name_is_not_joined(name: str) -> None:
    alone = Alone()
    process = alone.member(name)
    (answer,) = alone.tail(process, NotJoined)
    assert isinstance(answer, NotJoined)
    assert answer.name == name
    assert "is not a group name" in answer.why


def test_joining_twice_is_refused_and_the_first_stands() -> None:
    alone = Alone()
    process = alone.connect()
    alone.say(process, Join("x"), Join("x"))
    alone.settle()
    alone.say(process, Join("x"))
    alone.settle()
    refused = NotJoined("x", "this session joined 'x' already")
    assert [frame for frame in alone.seen[process] if isinstance(frame, NotJoined)] == [refused, refused]
    assert kinds(alone, process).count("Joined") == 1
    assert alone.host.sessions()[0].groups == ("x",)


def test_leaving_what_one_is_not_in_is_nothing() -> None:
    alone = Alone()
    process = alone.connect()
    alone.say(process, Leave("x"), Leave("y" * 500))
    alone.settle()
    assert kinds(alone, process) == ["Welcome"]


def test_requests_about_one_name_are_answered_one_by_one() -> None:
    """Asked all at once, even before the node runs: each gets its answer, in turn."""
    alone = Alone(start=False)
    process = alone.connect()
    alone.say(process, Join("x"), Leave("x"), Join("x"), Leave("x"), Join("x"))
    alone.start()
    alone.settle(40)
    stream = [type(frame).__name__ for frame in alone.seen[process] if isinstance(frame, Changed | Left)]
    assert stream == ["Changed", "Left", "Changed", "Left", "Changed"]
    assert kinds(alone, process).count("Joined") == 3
    assert alone.host.sessions()[0].groups == ("x",)


def test_who_is_put_out_may_join_again() -> None:
    alone = Alone()
    process = alone.member("x")
    alone.hear(GroupLeft(process, group_id("x"), "x", "another group has the same hash"))
    alone.take()
    assert alone.seen[process][-1] == Left("x", "another group has the same hash")
    assert alone.host.sessions()[0].groups == ()


def test_requests_without_answers_are_bounded() -> None:
    alone = Alone(start=False)
    process = alone.connect()
    alone.say(process, *(Join(f"g{number}") for number in range(REQUESTS_MAX + 1)))
    alone.take()
    (why,) = alone.goodbyes(process)
    assert f"{REQUESTS_MAX} of its joins and leaves have no answer" in why


def test_more_requests_than_the_node_takes_at_once_are_made_in_the_end() -> None:
    alone = Alone(start=False)
    many = [alone.connect() for _ in range(3)]
    for process in many:
        alone.say(process, *(Join(f"g{number}") for number in range(2000)))
    alone.start()
    alone.settle(240)
    assert [kinds(alone, process).count("Joined") for process in many] == [2000] * 3


# --- messages -----------------------------------------------------------------------------------------------------------------


def test_messages_reach_members_once_and_in_order() -> None:
    alone = Alone()
    one, two, three = alone.member("x"), alone.member("x", "y"), alone.member("y")
    alone.say(one, Send(encode_address(Address((group_id("x"), group_id("y")))), Service.SAFE, [b"1", b"2"], 0))
    alone.send(three, "x", b"3")
    alone.settle()
    assert alone.payloads(one) == alone.payloads(two) == [b"1", b"2", b"3"]
    assert alone.payloads(three) == [b"1", b"2"]
    (frame,) = [frame for frame in alone.seen[three] if isinstance(frame, Stream)]
    assert (frame.sender, frame.service, frame.first) == (ProcessId(alone.node.id, one), Service.SAFE, 1)
    assert alone.seen[one].count(Done(1, 2, frame.view)) == 1
    assert alone.seen[three].count(Done(1, 1, frame.view)) == 1


def test_a_process_is_reached_by_its_private_name() -> None:
    alone = Alone()
    one, two = alone.connect(), alone.connect()
    alone.say(one, Send(encode_address(Address((), (PrivateName(500, two),))), Service.AGREED, [b"psst"], 0))
    alone.settle()
    assert (alone.payloads(one), alone.payloads(two)) == ([], [b"psst"])


def test_runs_that_go_on_share_a_frame_up_to_its_size() -> None:
    alone = Alone(SessionPolicy(send_window=16 << 20))
    process = alone.member("x")
    sent = [bytes([number % 251]) * 1000 for number in range(1000)]
    alone.send(process, "x", *sent[:600])
    alone.send(process, "x", *sent[600:])
    alone.settle()
    frames = [frame for frame in alone.seen[process] if isinstance(frame, Stream)]
    assert alone.payloads(process) == sent
    assert len(frames) < 20
    assert all(payload_cost(frame.payloads) < BATCH_BYTES + 2000 for frame in frames)
    assert [frame.first for frame in frames] == [1 + sum(len(f.payloads) for f in frames[:at]) for at in range(len(frames))]
    for frame in frames:
        assert sum(count for _, _, count in frame.stretches) == len(frame.payloads)
    places = [(seq, index) for frame in frames for seq, index, _ in frame.stretches]
    assert places == sorted(set(places))


def test_a_change_of_service_or_address_ends_a_frame() -> None:
    alone = Alone()
    process = alone.member("x", "y")
    alone.send(process, "x", b"1")
    alone.send(process, "x", b"2", service=Service.SAFE)
    alone.send(process, "y", b"3", service=Service.SAFE)
    alone.settle()
    frames = [frame for frame in alone.seen[process] if isinstance(frame, Stream)]
    assert [(frame.first, frame.service, frame.payloads) for frame in frames] == [
        (1, Service.AGREED, [b"1"]),
        (2, Service.SAFE, [b"2"]),
        (3, Service.SAFE, [b"3"]),
    ]


def test_a_frame_is_made_and_encoded_once_for_all_its_recipients() -> None:
    alone = Alone()
    one, two = alone.member("x"), alone.member("x")
    alone.send(one, "x", b"shared")
    alone.deaf = {one, two}
    alone.settle()
    ours, theirs = alone.host.take(one)[-1], alone.host.take(two)[-1]
    assert ours is theirs
    assert ours.data is theirs.data
    assert ours.data == encode_frame(ours.frame)


def test_messages_wait_for_a_node_that_does_not_run_yet() -> None:
    alone = Alone(start=False)
    process = alone.connect()
    alone.say(process, Join("x"))
    alone.send(process, "x", b"early")
    assert alone.host.sessions()[0].unsent_bytes > 0
    alone.start()
    alone.settle()
    assert [(done.first, done.count) for done in alone.seen[process] if isinstance(done, Done)] == [(1, 1)]


def test_a_full_node_takes_from_everybody_in_turn() -> None:
    """Three who have a lot and one who has a little: the little one is not last."""
    alone = Alone(window=Window(outbox_bytes=128 * 1024))
    watcher = alone.member("x")
    many = [alone.connect() for _ in range(3)]
    few = alone.connect()
    for process in many:
        alone.send(process, "x", *[b"m" * 1000] * 900)
    alone.send(few, "x", b"few")
    alone.settle(60)
    got = alone.payloads(watcher)
    assert len(got) == 2701
    assert got.index(b"few") < 1000


def test_a_small_message_does_not_overtake_who_waits() -> None:
    alone = Alone(window=Window(outbox_bytes=64 * 1024))
    first, second = alone.connect(), alone.connect()
    alone.send(first, "x", *[bytes(1000)] * 100)
    alone.send(second, "x", b"it would fit")
    assert [status.unsent_bytes > 0 for status in alone.host.sessions()] == [True, True]
    alone.settle()
    assert [status.sent for status in alone.host.sessions()] == [100, 1]


def test_a_large_message_is_not_kept_out_by_small_ones() -> None:
    """It fits only when the node is empty, and somebody else always has something for it."""
    alone = Alone(window=Window(outbox_bytes=64 * 1024))
    watcher, big, small = alone.member("x"), alone.connect(), alone.connect()
    alone.send(small, "x", *[b"s" * 1000] * 900)
    alone.send(big, "x", b"b" * 200_000)
    turns = 0
    while b"b" * 200_000 not in alone.payloads(watcher):
        alone.settle(1)
        turns += 1
        assert turns < 40, "the large message waits for ever"
        (unsent,) = [status.unsent_bytes for status in alone.host.sessions() if status.process == small]
        alone.send(small, "x", *[b"s" * 1000] * max(1, (900_000 - unsent) // 1016))
        assert alone.host.sessions()[2].unsent_bytes > 500_000
    assert alone.goodbyes(small) == []


# --- mistakes -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("send", "why"),
    [
        (Send(b"nonsense", Service.AGREED, [b"x"], 0), "sent to bytes that are not an address"),
        (Send(b"\x02", Service.AGREED, [b"x"], 0), "sent to bytes that are not an address"),
        (send_to("x", [bytes(MESSAGE_MAX + 1)]), f"more than {MESSAGE_MAX} bytes: split it"),
        (send_to("x", []), "0 messages at once"),
        (send_to("x", [b""] * (RUN_MESSAGES_MAX + 1)), f"1 to {RUN_MESSAGES_MAX} are allowed"),
    ],
    ids=["no address", "the groups' own address", "too large", "none", "too many"],
)
def test_a_send_that_cannot_be_ends_the_session_and_no_other(send: Send, why: str) -> None:
    """Refusing just the one would make the client's numbers and the node's differ for ever."""
    alone = Alone()
    good, bad = alone.member("x"), alone.member("x")
    alone.say(bad, send, send_to("x", [b"after"]))
    alone.send(good, "x", b"fine")
    alone.settle()
    assert why in alone.goodbyes(bad)[0]
    assert isinstance(alone.seen[bad][-1], Goodbye)
    assert alone.payloads(good) == [b"fine"]
    assert [status.process for status in alone.host.sessions()] == [good]
    last = [frame.view for frame in alone.seen[good] if isinstance(frame, Changed)][-1]
    assert [member.number for member in last.members] == [good]


def test_sending_without_credit_ends_the_session() -> None:
    alone = Alone(SessionPolicy(send_window=4096), start=False)
    process = alone.connect()
    alone.send(process, "x", bytes(10_000))
    assert alone.goodbyes(process) == []
    alone.send(process, "x", b"")
    alone.take()
    assert "sent without credit" in alone.goodbyes(process)[0]


def test_hello_twice_ends_the_session() -> None:
    alone = Alone()
    process = alone.connect()
    alone.say(process, Hello(SESSION_VERSION, "", 1), Join("x"))
    alone.take()
    assert alone.goodbyes(process) == ["it said Hello twice: a session begins once"]
    assert alone.host.sessions() == []


def test_frames_for_nobody_are_dropped() -> None:
    alone = Alone()
    alone.say(77, Join("x"), send_to("x", [b"?"]), Bye())
    alone.host.disconnect(alone.now, 77, "why not")
    alone.host.forget(alone.now, 77)
    assert alone.host.take(77) == []
    assert alone.host.ready() == []


# --- questions ----------------------------------------------------------------------------------------------------------------


def test_statistics_are_plain_values() -> None:
    alone = Alone()
    process = alone.member("x")
    alone.send(process, "x", b"1", b"2")
    alone.settle()
    alone.say(process, Ask(7, "statistics"))
    alone.take()
    answer = alone.seen[process][-1]
    assert isinstance(answer, Answer)
    value = decode_value(answer.value)
    assert (answer.number, answer.why) == (7, "")
    assert (value["session"]["sent"], value["session"]["received"], value["session"]["groups"]) == (2, 2, ["x"])
    assert value["node"]["groups"] == 1


def test_an_unknown_question_is_answered_with_the_known_ones() -> None:
    alone = Alone()
    process = alone.connect()
    alone.say(process, Ask(1, "meaning"))
    alone.take()
    why = "'meaning' is not a question that this node can answer: ask for 'statistics' or 'about'"
    assert alone.seen[process][-1] == Answer(1, b"", why)


def test_who_asks_and_never_reads_is_ended() -> None:
    alone = Alone()
    process = alone.connect()
    for number in range(200_000):
        alone.host.receive(alone.now, process, Ask(number, "?"))
        if alone.host.over():
            break
    assert alone.host.over() == [process]
    assert "asks and does not read" in str(alone.host.take(process)[-1].frame)


# --- ends ---------------------------------------------------------------------------------------------------------------------


def test_bye_sends_what_was_sent_and_then_leaves() -> None:
    alone = Alone(window=Window(outbox_bytes=32 * 1024))
    watcher, leaver = alone.member("x"), alone.member("x")
    alone.send(leaver, "x", *[b"last" * 100] * 500)
    alone.say(leaver, Bye(), Join("late"))
    assert alone.host.sessions()[1].unsent_bytes > 0
    alone.settle(40)
    assert alone.goodbyes(leaver) == ["the client said Bye"]
    assert alone.payloads(watcher) == [b"last" * 100] * 500
    view = [frame.view for frame in alone.seen[watcher] if isinstance(frame, Changed)][-1]
    assert [member.number for member in view.members] == [watcher]


def test_bye_and_a_closed_connection_still_send_everything() -> None:
    alone = Alone(window=Window(outbox_bytes=32 * 1024))
    watcher, leaver = alone.member("x"), alone.member("x")
    alone.send(leaver, "x", *[b"last" * 100] * 500)
    alone.say(leaver, Bye())
    alone.host.forget(alone.now, leaver)
    assert [status.process for status in alone.host.sessions()] == [watcher]
    alone.settle(40)
    assert len(alone.payloads(watcher)) == 500
    assert (alone.host.over(), alone.host.ready()) == ([], [])
    assert leaver not in {process for process, frames in alone.seen.items() if any(isinstance(f, Goodbye) for f in frames)}


def test_a_lost_connection_loses_what_the_node_did_not_take() -> None:
    alone = Alone(window=Window(outbox_bytes=32 * 1024))
    watcher, lost = alone.member("x"), alone.member("x")
    alone.send(lost, "x", *[b"lost" * 100] * 500)
    alone.host.forget(alone.now, lost)
    alone.settle(40)
    assert 0 < len(alone.payloads(watcher)) < 500


def test_disconnect_says_why() -> None:
    alone = Alone()
    process = alone.member("x")
    alone.host.disconnect(alone.now, process, "because")
    assert alone.host.over() == [process]
    alone.settle()
    assert alone.goodbyes(process) == ["because"]
    assert alone.host.over() == []


def test_what_the_node_refuses_is_not_sent() -> None:
    alone = Alone()
    process = alone.connect()
    alone.hear(Refused(RunIds(process, 4, 2, Service.AGREED), "the configuration changed"))
    alone.take()
    assert alone.seen[process][-1] == NotSent(4, 2, "the configuration changed")


def test_a_node_that_stops_tells_everybody() -> None:
    alone = Alone(window=Window(outbox_bytes=2048))
    one, two = alone.member("x"), alone.member("x")
    alone.send(one, "x", *[bytes(1000)] * 10)
    taken = alone.host.sessions()[0].sent
    assert taken < 10
    alone.hear(Stopped("left"), Room(Lane.APPLICATION))
    alone.take()
    assert alone.seen[one][-2:] == [
        NotSent(taken + 1, 10 - taken, "the node has stopped: left"),
        Goodbye("the node has stopped: left"),
    ]
    assert alone.goodbyes(two) == ["the node has stopped: left"]
    with pytest.raises(UsageError, match="the node has stopped: left"):
        alone.connect()


def test_joined_is_not_credit() -> None:
    """Answers cross a stream that has no credit at all."""
    alone = Alone()
    process = alone.member("x", credit=1)
    assert kinds(alone, process) == ["Welcome", "Joined", "Changed"]
    alone.say(process, Join("y"))
    alone.settle()
    assert alone.seen[process][-1] == Joined("y")
    alone.say(process, Credit(1 << 20))
    alone.take()
    assert isinstance(alone.seen[process][-1], Changed)
