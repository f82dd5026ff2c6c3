"""Random lives of sessions against what their clients count themselves."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.sessions.hosting import Alone, send_to
from transis.sessions.frames import SESSION_VERSION, Credit, Done, Goodbye, Hello, Send, Stream, Welcome, cost, payload_cost
from transis.sessions.host import SessionPolicy
from transis.sessions.session import Unsent
from transis.types.config import Window
from transis.types.ids import NodeId, ProcessId, Service, ViewId, ViewKind
from transis.types.outputs import Delivered, GroupDelivered, Phase, Recipient

BOB = NodeId("bob", 1, 7)
VIEW = ViewId(ViewKind.REGULAR, 8, BOB)
POLICY = SessionPolicy(send_window=8192, queue_max=64 * 1024, total_max=96 * 1024, patience_us=1_000_000)
SIZES = st.integers(0, 12_000)
ANY = st.integers(0, 5)
RUNS = st.lists(st.tuples(st.sampled_from([1, 2]), st.lists(SIZES, min_size=1, max_size=3)), min_size=1)
SENDS = st.lists(st.tuples(st.integers(0, 2), st.lists(st.integers(0, 9_000), min_size=1, max_size=12), st.integers(0, 2)))


class Twin:
    """A client that keeps its own books: what it must get, what it got, and the credit it gave."""

    def __init__(self, credit: int) -> None:
        self.credit = credit
        self.expected: list[bytes] = []
        self.got: list[bytes] = []
        self.over = False


class OutboundMachine(RuleBasedStateMachine):
    """Streams of sessions: order, credit, queues. The node does not run; runs are made up."""

    def __init__(self) -> None:
        super().__init__()
        self.alone = Alone(POLICY, start=False)
        self.twins: dict[int, Twin] = {}
        self.recipients: dict[tuple[int, ...], tuple[Recipient, ...]] = {}
        self.counters = {1: 0, 2: 0}
        self.seq = 0

    def pick(self, which: int) -> tuple[int, Twin] | None:
        return sorted(self.twins.items())[which % len(self.twins)] if self.twins else None

    @rule(credit=st.integers(1, 50_000))
    def connect(self, credit: int) -> None:
        self.twins[self.alone.host.connect(self.alone.now, Hello(SESSION_VERSION, "", credit))] = Twin(credit)

    @rule(runs=RUNS, who=st.sets(ANY))
    def deliver(self, runs: list[tuple[int, list[int]]], who: set[int]) -> None:
        chosen = tuple(sorted({found[0] for which in sorted(who) if (found := self.pick(which)) is not None}))
        if not chosen:
            return
        recipients = self.recipients.setdefault(chosen, tuple(Recipient(process, ()) for process in chosen))
        events = [GroupDelivered(self.run(sender, sizes, chosen), recipients) for sender, sizes in runs]
        self.alone.hear(*events)

    def run(self, sender: int, sizes: list[int], chosen: tuple[int, ...]) -> Delivered:
        first = self.counters[sender] + 1
        payloads = [b"%d:%d " % (sender, first + at) + bytes(size) for at, size in enumerate(sizes)]
        self.counters[sender] += len(payloads)
        self.seq += 1
        for process in chosen:
            if not self.twins[process].over:
                self.twins[process].expected += payloads
        process = ProcessId(BOB, sender)
        places = [(self.seq, 0, len(payloads))]
        return Delivered(process, b"\x01", Service.AGREED, first, payloads, VIEW, Phase.REGULAR, places, False, 0, 0, True)

    @rule(which=ANY, most=st.sampled_from([1, 5_000, 1 << 40]))
    def take(self, which: int, most: int) -> None:
        found = self.pick(which)
        if found is None:
            return
        process, twin = found
        for out in self.alone.host.take(process, most):
            self.receive(twin, out.frame, out.cost)
        if twin.over:
            del self.twins[process]

    def receive(self, twin: Twin, frame: object, its_cost: int) -> None:
        assert not twin.over, "nothing comes after Goodbye"
        if isinstance(frame, Stream):
            assert twin.credit > 0, "a stream frame left without credit"
            assert its_cost == cost(frame)
            twin.credit -= its_cost
            twin.got += frame.payloads
            assert twin.got == twin.expected[: len(twin.got)]
        elif isinstance(frame, Goodbye):
            twin.over = True
        else:
            assert isinstance(frame, Welcome)

    @rule(which=ANY, amount=st.integers(1, 40_000))
    def give_credit(self, which: int, amount: int) -> None:
        found = self.pick(which)
        if found is not None:
            found[1].credit += amount
            self.alone.say(found[0], Credit(amount))

    @rule(pause_us=st.integers(0, 600_000))
    def wait(self, pause_us: int) -> None:
        self.alone.now += pause_us
        self.alone.host.wake(self.alone.now)
        assert self.alone.host.deadline() > self.alone.now

    @rule(which=ANY)
    def lose(self, which: int) -> None:
        found = self.pick(which)
        if found is not None:
            self.alone.host.forget(self.alone.now, found[0])
            del self.twins[found[0]]

    @invariant()
    def counts_are_exact(self) -> None:
        self.alone.host.check()
        over = self.alone.host.over()
        statuses = {status.process: status for status in self.alone.host.sessions()}
        assert sorted(statuses) == sorted(self.twins)
        for process, twin in self.twins.items():
            if process in over:
                continue
            assert statuses[process].credit == twin.credit
            assert statuses[process].queue_bytes == payload_cost(twin.expected[len(twin.got) :])

    @invariant()
    def who_may_have_something_is_ready(self) -> None:
        ready = self.alone.host.ready()
        for status in self.alone.host.sessions():
            if status.queue_bytes and status.credit > 0:
                assert status.process in ready


TestOutbound = OutboundMachine.TestCase
TestOutbound.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


@settings(max_examples=40, deadline=None)
@given(SENDS, st.sampled_from([2_000, 20_000, 1 << 20]))
def test_honest_senders_lose_nothing_and_are_never_stuck(sends: list[tuple[int, list[int], int]], outbox: int) -> None:
    """Credit as the client counts it and as the node does are the same; everything is delivered, each sender's in its order."""
    alone = Alone(POLICY, Window(outbox_bytes=outbox))
    watcher = alone.member("x")
    senders = [alone.connect() for _ in range(3)]
    spent, sent = dict.fromkeys(senders, 0), {process: list[bytes]() for process in senders}
    for who, sizes, turns in sends:
        process = senders[who]
        send = send_to("x", [b"%d:%d " % (process, len(sent[process]) + at) + bytes(size) for at, size in enumerate(sizes)])
        while not may_send(alone, process, spent[process]):
            alone.settle(1)
        alone.say(process, send)
        spent[process] += cost(send)
        sent[process] += send.payloads
        alone.settle(turns)
    alone.settle(60)
    got = alone.payloads(watcher)
    for process in senders:
        assert [data for data in got if data.startswith(b"%d:" % process)] == sent[process]
        done = [frame for frame in alone.seen.get(process, ()) if isinstance(frame, Done)]
        assert sum(frame.count for frame in done) == len(sent[process])
    assert len(got) == sum(map(len, sent.values()))


def may_send(alone: Alone, process: int, spent: int) -> bool:
    given_back = sum(frame.amount for frame in alone.seen.get(process, ()) if isinstance(frame, Credit))
    return POLICY.send_window - spent + given_back > 0


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(1, 40)),
        st.tuples(st.just("take"), st.integers(1, 60_000)),
        st.tuples(st.just("wait"), st.integers(0, 80_000)),
    ),
    max_size=60,
)


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_one_who_sends_more_than_it_takes_is_slowed_down_and_never_stuck(steps: list[tuple[str, int]]) -> None:
    """Its own messages come back to it; it takes as it likes, and sends whenever it has credit, throttled or not."""
    alone = Alone(SessionPolicy(send_window=4096, queue_max=64 * 1024, total_max=1 << 20))
    process = alone.member("x", credit=1000)
    spent = sent = 0
    for what, amount in steps:
        if what == "send" and 4096 - spent + sum(f.amount for f in alone.seen[process] if isinstance(f, Credit)) > 0:
            send = send_to("x", [b"%06d" % (sent + at) for at in range(amount)])
            alone.say(process, send)
            spent, sent = spent + cost(send), sent + amount
        elif what == "take":
            alone.say(process, Credit(amount))
        alone.step(amount if what == "wait" else 1_000)
        alone.host.check()
    for _ in range(10):
        alone.say(process, Credit(1 << 20))
        alone.settle()
    assert alone.goodbyes(process) == []
    assert alone.payloads(process) == [b"%06d" % number for number in range(sent)]
    returned = sum(f.amount for f in alone.seen[process] if isinstance(f, Credit))
    assert spent - returned < 1024, "all but a part too small to be worth a frame came back"


@given(st.lists(st.binary(max_size=200), min_size=1, max_size=50), st.integers(1, 2_000), st.integers(1, 60))
def test_a_send_is_cut_into_batches_that_are_all_of_it(payloads: list[bytes], budget: int, most: int) -> None:
    unsent = Unsent(Send(b"", Service.AGREED, payloads, 0), payload_cost(payloads))
    pieces: list[list[bytes]] = []
    while unsent.remaining:
        batch = unsent.next_batch(budget, most)
        assert 0 < len(batch) <= most
        assert payload_cost(batch[:-1]) < budget
        pieces.append(batch)
        unsent.position += len(batch)
        unsent.cost -= payload_cost(batch)
    assert [data for piece in pieces for data in piece] == payloads
    assert unsent.cost == 0
