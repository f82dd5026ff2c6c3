"""What a node remembers of its deliveries, against a set of all numbers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.wire.samples import ANN, BOB
from transis.types.ids import ProcessId, Service, ViewId, ViewKind
from transis.types.outputs import Delivered, Note, Phase
from transis.wire.reassembly import PROCESSES_MAX, SPANS_MAX, DeliveredNumbers

VIEW = ViewId(ViewKind.REGULAR, 8, ANN)


def run_of(first: int, count: int, process: int = 1, datagram: int = 3) -> Delivered:
    """Messages that say their numbers; so many end in each datagram."""
    payloads = [str(number).encode() for number in range(first, first + count)]
    stretches = [(1 + done // datagram, 0, min(datagram, count - done)) for done in range(0, count, datagram)]
    return Delivered(
        ProcessId(ANN, process), b"", Service.AGREED, first, payloads, VIEW, Phase.REGULAR, stretches, False, 0, 0, True
    )


def numbers_in(runs: list[Delivered]) -> list[int]:
    """Each run says the same in its counters, its payloads, and its places."""
    found: list[int] = []
    for run in runs:
        said = [int(bytes(payload)) for payload in run.payloads]
        assert said == list(range(run.first_counter, run.first_counter + len(said)))
        assert sum(count for _, _, count in run.stretches) == len(said)
        found += said
    return found


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(1, 12)), max_size=12))
def test_each_number_is_delivered_once(runs: list[tuple[int, int]]) -> None:
    numbers, known = DeliveredNumbers(lambda note: None), set[int]()
    for first, count in runs:
        fresh = [number for number in range(first, first + count) if number not in known]
        assert numbers_in(numbers.fresh(ANN, [run_of(first, count)])) == fresh
        known.update(fresh)
    assert numbers.rejections["repeated"] == sum(count for _, count in runs) - len(known)


def test_what_is_new_stays_one_object() -> None:
    numbers = DeliveredNumbers(lambda note: None)
    ahead, behind = run_of(9, 4), run_of(1, 8)
    assert numbers.fresh(ANN, [ahead])[0] is ahead
    assert numbers.fresh(ANN, [behind])[0] is behind, "a message of a weaker service overtook it"


def test_a_part_keeps_its_places() -> None:
    numbers = DeliveredNumbers(lambda note: None)
    numbers.fresh(ANN, [run_of(3, 3)])
    parts = numbers.fresh(ANN, [run_of(1, 9)])
    assert [(part.first_counter, part.stretches) for part in parts] == [(1, ((1, 0, 2),)), (6, ((2, 2, 1),)), (7, ((3, 0, 3),))]


def test_an_operator_is_told_once() -> None:
    told: list[Note] = []
    numbers = DeliveredNumbers(told.append)
    for _ in range(3):
        numbers.fresh(ANN, [run_of(1, 2)])
    assert numbers.rejections == {"repeated": 4}
    (note,) = told
    assert dict(note.detail)["why"] == f"2 of the messages from 1 to 2 of {ProcessId(ANN, 1)} were delivered before"


def test_lives_and_processes_are_apart() -> None:
    numbers = DeliveredNumbers(lambda note: None)
    numbers.fresh(ANN, [run_of(1, 2)])
    assert numbers_in(numbers.fresh(ANN, [run_of(1, 2, process=2)])) == [1, 2]
    assert numbers_in(numbers.fresh(BOB, [run_of(1, 2)])) == [1, 2]


def test_the_oldest_is_forgotten() -> None:
    """Forgetting loses nothing that is new."""
    numbers = DeliveredNumbers(lambda note: None)
    for place in range(SPANS_MAX + 1):
        numbers.fresh(ANN, [run_of(1 + 2 * place, 1)])
    assert numbers_in(numbers.fresh(ANN, [run_of(1, 4)])) == [1, 2, 4]
    for process in range(2, PROCESSES_MAX + 2):
        numbers.fresh(ANN, [run_of(1, 1, process)])
    assert numbers_in(numbers.fresh(ANN, [run_of(1, 1)])) == [1]
