"""The queue of a stream and its spool: first in, first out, everything once, credit exact, memory bounded while it is held."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from transis.client.stream import BLOCK, BufferedFrame, CreditClaim, Spool, StreamBuffer
from transis.sessions.frames import MESSAGE_COST, Stream
from transis.types.ids import NodeId, ProcessId, Service, ViewId, ViewKind

NODE = NodeId("ann", 1, 7)
VIEW = ViewId(ViewKind.REGULAR, 1, NODE)
MEMORY = 1000


def frame(number: int, size: int = 10) -> Stream:
    return Stream(
        ProcessId(NODE, 1), b"", Service.AGREED, VIEW, 0, number, [(number, 0, 1)], [bytes(size)], [(0, 1)], size + MESSAGE_COST
    )


def number_of(entry: BufferedFrame | None) -> int:
    assert entry is not None
    assert isinstance(entry.frame, Stream)
    return entry.frame.first


@given(st.lists(st.one_of(st.integers(0, 2 * BLOCK), st.none()), max_size=30))
def test_a_spool_is_a_queue(moves: list[int | None]) -> None:
    """Numbers are sizes to append, None takes one."""
    spool, expected = Spool(), []
    for count, size in enumerate(moves):
        if size is not None:
            spool.append(frame(count, size))
            expected.append(frame(count, size))
        elif expected:
            assert spool.popleft() == expected.pop(0)
        assert len(spool) == len(expected)
    while expected:
        assert spool.popleft() == expected.pop(0)
    assert spool.size == 0
    spool.clear()


class Queue(RuleBasedStateMachine):
    """An inlet against a list."""

    def __init__(self) -> None:
        super().__init__()
        self.inlet = StreamBuffer(memory_max=MEMORY, spool=Spool())
        self.expected: list[int] = []
        self.count = 0
        self.credit: Counter[str] = Counter()

    def give_back(self, amount: int) -> None:
        self.credit["back"] += amount

    @rule(size=st.integers(0, 600))
    def put(self, size: int) -> None:
        self.count += 1
        parcel = CreditClaim(size, self.give_back)
        parcel.holders = 1
        self.credit["out"] += size
        self.inlet.put(frame(self.count, size), ("g",), parcel)
        self.expected.append(self.count)

    @rule()
    def take(self) -> None:
        entry = self.inlet.take()
        if self.expected:
            assert number_of(entry) == self.expected.pop(0)
        else:
            assert entry is None

    @rule(held=st.booleans())
    def hold(self, held: bool) -> None:
        self.inlet.held = held

    @precondition(lambda self: self.expected)
    @rule(data=st.data())
    def drop_some(self, data: st.DataObject) -> None:
        drop = data.draw(st.integers(0, len(self.expected)))
        self.inlet.drop_before(self.inlet.taken_count + drop)
        del self.expected[:drop]

    @rule()
    def put_first(self) -> None:
        self.count += 1
        self.inlet.put_first(frame(self.count), ("g",))
        self.expected.insert(0, self.count)

    @rule()
    def discard(self) -> None:
        self.inlet.discard()
        self.expected.clear()

    @invariant()
    def credit_is_exact(self) -> None:
        assert self.credit["out"] - self.credit["back"] == self.inlet.bytes

    @invariant()
    def counts_fit(self) -> None:
        assert self.inlet.put_count - self.inlet.taken_count == len(self.expected)

    def teardown(self) -> None:
        while self.expected:
            self.take()
        self.credit_is_exact()
        self.inlet.discard()


TestQueue = Queue.TestCase


def test_memory_is_bounded_while_a_stream_is_held() -> None:
    inlet = StreamBuffer(memory_max=MEMORY, spool=Spool())
    inlet.held = True
    for number in range(1, 200):
        parcel = CreditClaim(100, lambda amount: None)
        parcel.holders = 1
        inlet.put(frame(number, 100), (), parcel)
        assert inlet.bytes <= MEMORY
    assert [number_of(inlet.take()) for _ in range(199)] == list(range(1, 200))


def test_what_lay_there_before_goes_to_the_spool_when_a_stream_is_held() -> None:
    inlet = StreamBuffer(memory_max=MEMORY, spool=Spool())
    for number in range(1, 31):
        parcel = CreditClaim(100, lambda amount: None)
        parcel.holders = 1
        inlet.put(frame(number, 100), (), parcel)
    assert inlet.bytes == 3000
    inlet.held = True
    assert inlet.bytes == MEMORY
    assert [number_of(inlet.take()) for _ in range(30)] == list(range(1, 31))


def test_a_frame_of_several_streams_gives_its_credit_back_once() -> None:
    returned: list[int] = []
    parcel = CreditClaim(100, returned.append)
    parcel.holders = 2
    inlets = [StreamBuffer(), StreamBuffer()]
    for inlet in inlets:
        inlet.put(frame(1), (), parcel)
    inlets[0].take()
    assert returned == []
    inlets[1].discard()
    assert returned == [100]


def test_a_stream_that_is_discarded_for_good_keeps_nothing() -> None:
    returned: list[int] = []
    inlet = StreamBuffer()
    inlet.discard(for_good=True)
    parcel = CreditClaim(100, returned.append)
    parcel.holders = 1
    inlet.put(frame(1), (), parcel)
    assert inlet.take() is None
    assert returned == [100]
