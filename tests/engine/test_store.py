"""The store of intervals against a twin that keeps every datagram in a dict and the stored pieces in a list."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from transis.engine.core import DatagramStore
from transis.types.ids import DatagramClass, RingTag
from transis.wire.burst import Burst, DataHeader, encode_data

SEQ_MAX = 30
RING = RingTag(4, 77)


def burst(first: int, last: int, sender: int = 0) -> Burst:
    """Datagrams first..last of one sender. Copies of one number by different senders differ, so that a swap shows."""
    header = DataHeader(DatagramClass.ORDERED, RING, sender, first, 1, 1, 1, first, False, False)
    datagrams = [
        encode_data(header._replace(seq=seq, index=seq), f"body {seq} of {sender}".encode()) for seq in range(first, last + 1)
    ]
    made = Burst(header, datagrams)
    made.check()
    return made


def ranges(seqs: list[int]) -> list[tuple[int, int]]:
    """Maximal stretches of consecutive numbers."""
    found: list[tuple[int, int]] = []
    for seq in seqs:
        if found and found[-1][1] == seq - 1:
            found[-1] = (found[-1][0], seq)
        else:
            found.append((seq, seq))
    return found


class Twin:
    """The same promises, kept number by number."""

    def __init__(self) -> None:
        self.bytes: dict[int, bytes] = {}
        self.pieces: list[tuple[int, int]] = []
        self.discarded = 0
        self.aru = 0
        self.highest = 0

    def insert(self, new: Burst) -> list[tuple[int, int]]:
        fresh = [seq for seq in range(new.first_seq, new.last_seq + 1) if seq > self.discarded and seq not in self.bytes]
        self.bytes.update({seq: new.datagram(seq) for seq in fresh})
        self.pieces = sorted(self.pieces + ranges(fresh))
        self.highest = max(self.highest, new.last_seq)
        while self.aru + 1 in self.bytes:
            self.aru += 1
        return ranges(fresh)

    def discard(self, upto: int) -> None:
        """Only whole pieces go."""
        gone = [piece for piece in self.pieces if piece[1] <= min(upto, self.aru)]
        for first, last in gone:
            self.pieces.remove((first, last))
            self.discarded = max(self.discarded, last)
            for seq in range(first, last + 1):
                del self.bytes[seq]

    def within(self, first: int, last: int) -> dict[int, bytes]:
        return {seq: self.bytes[seq] for seq in sorted(self.bytes) if first <= seq <= last}

    def missing(self, upto: int) -> list[tuple[int, int]]:
        return ranges([seq for seq in range(self.aru + 1, upto + 1) if seq not in self.bytes])


def contents(bursts: list[Burst]) -> dict[int, bytes]:
    """Number by number; bursts that overlapped or ran backwards would not survive the comparison."""
    flat = [(seq, each.datagram(seq)) for each in bursts for seq in range(each.first_seq, each.last_seq + 1)]
    assert [seq for seq, _ in flat] == sorted({seq for seq, _ in flat})
    return dict(flat)


def compare(store: DatagramStore, twin: Twin) -> None:
    store.check()
    assert (store.aru, store.highest, store.discarded) == (twin.aru, twin.highest, twin.discarded)
    assert store.held == len(twin.bytes)
    for seq in range(SEQ_MAX + 2):
        rest = store.at(seq)
        assert (rest is not None) == (seq in twin.bytes)
        if rest is not None:
            rest.check()
            assert rest.first_seq == seq
            assert rest.datagram(seq) == twin.bytes[seq]
        assert contents(list(store.after(seq))) == twin.within(seq + 1, SEQ_MAX)


Step = Callable[[DatagramStore, Twin], None]


def _insert(first: int, length: int, sender: int) -> Step:
    def step(store: DatagramStore, twin: Twin) -> None:
        new = burst(first, min(SEQ_MAX, first + length), sender)
        fresh = store.insert(new)
        assert [(part.first_seq, part.last_seq) for part in fresh] == twin.insert(new)
        assert contents(fresh) == {seq: new.datagram(seq) for part in fresh for seq in range(part.first_seq, part.last_seq + 1)}

    return step


def _discard(upto: int) -> Step:
    def step(store: DatagramStore, twin: Twin) -> None:
        store.discard(upto)
        twin.discard(upto)

    return step


seqs = st.integers(1, SEQ_MAX)
inserts = st.builds(_insert, seqs, st.integers(0, 8), st.integers(0, 3))
steps = st.lists(st.one_of(inserts, inserts, inserts, st.builds(_discard, st.integers(0, SEQ_MAX))), max_size=16)


@given(steps)
def test_the_store_is_its_twin(script: list[Step]) -> None:
    store, twin = DatagramStore(), Twin()
    for step in script:
        step(store, twin)
        compare(store, twin)


@given(steps, st.integers(0, SEQ_MAX), st.integers(0, 5), seqs, seqs)
def test_questions_have_the_twin_s_answers(script: list[Step], upto: int, most: int, one: int, other: int) -> None:
    store, twin = DatagramStore(), Twin()
    for step in script:
        step(store, twin)
    assert store.missing(upto, most) == twin.missing(upto)[:most]
    first, last = sorted((one, other))
    assert contents(list(store.between(first, last))) == twin.within(first, last)


@given(st.permutations(range(1, 16)))
def test_every_order_of_arrival_ends_the_same(order: list[int]) -> None:
    store = DatagramStore()
    for seq in order:
        store.insert(burst(seq, seq))
    assert (store.aru, store.highest, store.held) == (15, 15, 15)
    assert contents(list(store.after(0))) == contents([burst(1, 15)])


def test_a_repeated_burst_is_not_new_and_does_not_replace_the_first() -> None:
    store = DatagramStore()
    assert store.insert(burst(1, 5)) != []
    assert store.insert(burst(1, 5, sender=1)) == []
    held = store.at(3)
    assert held is not None
    assert held.sender == 0


def test_a_late_burst_fills_only_the_holes_between() -> None:
    store = DatagramStore()
    store.insert(burst(2, 3))
    store.insert(burst(6, 6))
    fresh = store.insert(burst(1, 8))
    assert [(part.first_seq, part.last_seq) for part in fresh] == [(1, 1), (4, 5), (7, 8)]
    assert (store.aru, store.highest) == (8, 8)


def test_what_was_discarded_does_not_come_back() -> None:
    store = DatagramStore()
    store.insert(burst(1, 4))
    store.discard(4)
    assert (store.discarded, store.held) == (4, 0)
    assert [(part.first_seq, part.last_seq) for part in store.insert(burst(3, 6))] == [(5, 6)]
    assert store.at(4) is None


def test_nothing_above_aru_is_discarded() -> None:
    store = DatagramStore()
    store.insert(burst(1, 2))
    store.insert(burst(5, 9))
    store.discard(9)
    assert (store.discarded, store.held) == (2, 5)


def test_holes_are_looked_for_up_to_the_token_and_not_to_the_highest_received() -> None:
    """Trap 8: the last datagrams of a burst are missed as well."""
    store = DatagramStore()
    store.insert(burst(1, 3))
    assert store.missing(7, 64) == [(4, 7)]


def test_a_gap_wider_than_any_constant_is_closed() -> None:
    """Trap 9: aru goes on however long it stood."""
    store = DatagramStore()
    store.insert(burst(2, 5_000))
    assert store.aru == 0
    store.insert(burst(1, 1))
    assert store.aru == 5_000


def test_what_is_not_above_the_start_was_had_before() -> None:
    """The counters of a sender go on over views, so a store of a view begins in the middle of them."""
    store = DatagramStore(40)
    assert (store.aru, store.highest, store.discarded) == (40, 40, 40)
    assert store.insert(burst(30, 40)) == []
    assert store.missing(43, 64) == [(41, 43)]
    assert [(part.first_seq, part.last_seq) for part in store.insert(burst(38, 42))] == [(41, 42)]
    assert (store.aru, store.held) == (42, 2)
    store.check()


def test_a_part_that_is_kept_does_not_hold_the_piece_it_came_in() -> None:
    """All of a burst stays as it came; of one that was known in part, what is new is copied."""
    store = DatagramStore()
    first, again = (Burst(made.header, [memoryview(one) for one in made.datagrams]) for made in (burst(3, 4), burst(1, 6)))
    assert store.insert(first) == [first]
    parts = store.insert(again)
    assert [(part.first_seq, part.last_seq) for part in parts] == [(1, 2), (5, 6)]
    assert all(isinstance(datagram, bytes) for part in parts for datagram in part.datagrams)
    assert [store_part.datagrams for store_part in store.between(3, 4)] == [first.datagrams]
