"""The memory of sessions: what is counted is what is held, who holds the most is ended, and each session ends once."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.sessions.hosting import Alone, send_to
from transis.sessions.frames import (
    SESSION_VERSION,
    Ask,
    Bye,
    Checkpoint,
    ClientFrame,
    Credit,
    Done,
    Follow,
    Goodbye,
    Hello,
    Join,
    Leave,
    cost,
)
from transis.sessions.host import SessionPolicy
from transis.sessions.session import Unsent
from transis.types.config import Window
from transis.types.errors import UsageError
from transis.types.ids import NodeId, Place, Service, ViewId, ViewKind
from transis.types.limits import RUN_MESSAGES_MAX
from transis.types.outputs import Stopped
from transis.types.views import GroupViewId

KB = 1 << 10
POLICY = SessionPolicy(
    send_window=8 * KB, queue_max=64 * KB, total_max=96 * KB, answers_max=24 * KB, patience_us=1_000_000, sessions_max=8
)
LAST_WORDS = 1024
"""More than a Goodbye counts: what is kept for a session that ended for its memory."""
NAMES = st.sampled_from(["x", "y", "z", "", "n" * 200])
GROUP_VIEW = GroupViewId(ViewId(ViewKind.REGULAR, 8, NodeId("ann", 1, 500)), Place(1, 0))

FRAMES: st.SearchStrategy[ClientFrame] = st.one_of(
    st.builds(Join, NAMES),
    st.builds(Leave, NAMES),
    st.builds(Ask, st.integers(0, 9), st.sampled_from(["statistics", "about", "what?"])),
    st.builds(
        lambda sizes: send_to("x", [bytes(size) for size in sizes]), st.lists(st.integers(0, 9 * KB), min_size=1, max_size=4)
    ),
    st.builds(Credit, st.integers(1, 40_000)),
    st.builds(lambda name: Checkpoint(name, GROUP_VIEW, 0, None, 0, Place(0, 0), b"d"), NAMES),
    st.just(Follow()),
    st.just(Hello(SESSION_VERSION, "", 1)),
    st.just(Bye()),
)
ANY = st.integers(0, 7)


class MemoryMachine(RuleBasedStateMachine):
    """Clients that say anything, read now and then, and go in every way there is.

    Who is ended for the memory of all held as much as anybody who stays; what it held is free at once.
    """

    def __init__(self) -> None:
        super().__init__()
        self.alone = Alone(POLICY, Window(outbox_bytes=20_000))
        self.alone.member("x", credit=1)
        self.clients = [1]
        self.goodbyes: Counter[int] = Counter()
        self.has_stopped = False

    def pick(self, which: int) -> int:
        return self.clients[which % len(self.clients)] if self.clients else 0

    def held(self) -> dict[int, int]:
        return {one.process: one.queue_bytes + one.unsent_bytes + one.answer_bytes for one in self.alone.host.sessions()}

    @rule(credit=st.sampled_from([1, 1 << 20]))
    def connect(self, credit: int) -> None:
        with suppress(UsageError):  # There are too many, or the node has stopped.
            self.clients.append(self.alone.connect(credit))
            self.alone.say(self.clients[-1], Join("x"))

    @rule(which=ANY, frames=st.lists(FRAMES, max_size=6), times=st.sampled_from([1, 1, 20, 200]))
    def say(self, which: int, frames: list[ClientFrame], times: int) -> None:
        process = self.pick(which)
        for frame in frames * times:
            over, held = set(self.alone.host.over()), self.held()
            self.alone.say(process, frame)
            for ended in set(self.alone.host.over()) - over - {process}:
                assert held[ended] >= max(held[one] for one in held if one not in (process, *self.alone.host.over()))
                assert held[ended] > 0

    @rule(which=ANY, most=st.sampled_from([0, 5_000, 1 << 40]))
    def read(self, which: int, most: int) -> None:
        process = self.pick(which)
        for out in self.alone.host.take(process, most):
            assert process in self.clients, "nothing comes after Goodbye"
            if isinstance(out.frame, Goodbye):
                self.goodbyes[process] += 1
                self.clients.remove(process)

    @rule(turns=st.integers(1, 10))
    def go_on(self, turns: int) -> None:
        for _ in range(turns):
            self.alone.now = max(self.alone.now, min(self.alone.node.deadline(), self.alone.now + 20_000))
            if self.alone.node.deadline() <= self.alone.now:
                self.alone.node.wake(self.alone.now)
            self.alone.carry_out()

    @rule(pause_us=st.integers(0, 600_000))
    def wait(self, pause_us: int) -> None:
        self.alone.now += pause_us
        self.alone.host.wake(self.alone.now)

    @rule(which=ANY)
    def lose(self, which: int) -> None:
        process = self.pick(which)
        self.alone.host.forget(self.alone.now, process)
        if process:
            self.clients.remove(process)

    @rule(which=ANY)
    def disconnect(self, which: int) -> None:
        self.alone.host.disconnect(self.alone.now, self.pick(which), "the test says so")

    @precondition(lambda self: not self.has_stopped)
    @rule()
    def stop(self) -> None:
        self.has_stopped = True
        self.alone.hear(Stopped("the test says so"))

    @invariant()
    def what_is_counted_is_held_and_bounded(self) -> None:
        """All but the last words of who is ended, and one frame that a window or a credit may overdraw."""
        self.alone.host.check()
        assert self.alone.host.held_bytes <= POLICY.total_max + LAST_WORDS * POLICY.sessions_max
        for status in self.alone.host.sessions():
            assert status.answer_bytes <= POLICY.answers_max + LAST_WORDS

    @invariant()
    def each_ends_once(self) -> None:
        assert all(count == 1 for count in self.goodbyes.values())


TestMemory = MemoryMachine.TestCase
TestMemory.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_an_answer_and_an_end_meet_and_the_session_ends_once() -> None:
    """The Goodbye itself is what takes its answers over their limit."""
    alone = Alone()
    process = alone.connect()
    before = ask_until_full(alone, process)
    alone.say(process, Hello(SESSION_VERSION, "", 1))
    (why,) = [out.frame.why for out in alone.host.take(process) if isinstance(out.frame, Goodbye)]
    assert before <= alone.host.policy.answers_max
    assert why == "it said Hello twice: a session begins once"


def ask_until_full(alone: Alone, process: int) -> int:
    """One more would be too many; how many bytes of answers wait."""
    size = waiting = 0
    while waiting + size <= alone.host.policy.answers_max:
        alone.host.receive(alone.now, process, Ask(7, "about"))
        (status,) = alone.host.sessions()
        size, waiting = status.answer_bytes - waiting, status.answer_bytes
    return waiting


def test_who_asks_and_does_not_read_is_ended_and_nobody_else() -> None:
    alone = Alone(SessionPolicy(queue_max=64 * KB, total_max=64 * KB))
    innocent, asker = alone.connect(), alone.connect()
    alone.deaf = {asker}
    for number in range(5_000):
        alone.say(asker, Ask(number, "about"))
    (why,) = [out.frame.why for out in alone.host.take(asker) if isinstance(out.frame, Goodbye)]
    assert "sessions.total_max" in why
    assert " 0 bytes" not in why
    assert [status.process for status in alone.host.sessions()] == [innocent]


def test_what_an_ended_session_held_is_free_at_once() -> None:
    """Its client does not read, so its last word waits; its answers do not."""
    alone = Alone(SessionPolicy(queue_max=64 * KB, total_max=64 * KB))
    asker = alone.connect()
    for number in range(100):
        alone.say(asker, Ask(number, "about"))
    before = alone.host.held_bytes
    alone.host.disconnect(alone.now, asker, "it is told to go")
    assert before > 10 * LAST_WORDS
    assert 0 < alone.host.held_bytes <= LAST_WORDS


def test_who_said_bye_counts_as_a_session_until_its_messages_are_sent() -> None:
    alone = Alone(SessionPolicy(sessions_max=3), start=False)
    for _ in range(3):
        process = alone.connect()
        alone.send(process, "x", b"last will")
        alone.say(process, Bye())
        alone.host.forget(alone.now, process)
    with pytest.raises(UsageError, match="3 sessions are open"):
        alone.connect()
    alone.start()
    assert alone.connect() == 4


def test_messages_that_came_one_by_one_wait_as_one_send() -> None:
    """Each would otherwise take many times what is counted for it; and the sender's own list stays as it was."""
    first, second = send_to("x", [b"1", b"2"]), send_to("x", [b"3"])
    unsent = Unsent(first, cost(first))
    assert unsent.add(second, cost(second))
    assert (unsent.payloads, unsent.cost) == ([b"1", b"2", b"3"], cost(first) + cost(second))
    assert first.payloads == [b"1", b"2"]
    for other in (send_to("y", [b"4"]), send_to("x", [b"4"], Service.SAFE), send_to("x", [b"4"] * RUN_MESSAGES_MAX)):
        assert not unsent.add(other, cost(other))
    assert unsent.remaining == 3


def test_a_full_node_gets_them_all_in_order() -> None:
    alone = Alone(start=False)
    process = alone.connect()
    for number in range(10_000):
        alone.host.receive(alone.now, process, send_to("x" if number % 5_000 else "y", [b"%d" % number]))
    alone.host.check()
    alone.start()
    alone.settle(60)
    assert sum(frame.count for frame in alone.seen[process] if isinstance(frame, Done)) == 10_000


def test_a_node_that_stops_tells_also_who_had_said_bye_and_gone() -> None:
    alone = Alone(start=False)
    process = alone.connect()
    alone.send(process, "x", b"last will")
    alone.say(process, Bye())
    alone.host.forget(alone.now, process)
    alone.hear(Stopped("the test says so"))
    assert alone.host.held_bytes == 0
