"""The clock of a node: it follows the machine's, but a pause is not held against others."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from transis.model.contract import NEVER
from transis.net.clock import PAUSE_US, NodeClock, boottime_us


class Machine:
    def __init__(self) -> None:
        self.now = 1_000_000

    def __call__(self) -> int:
        return self.now


def rested(machine: Machine) -> tuple[NodeClock, int]:
    clock = NodeClock(machine)
    clock.rest()
    return clock, clock.now()


def test_waking_in_time_changes_nothing() -> None:
    machine = Machine()
    clock, start = rested(machine)
    machine.now += 40_000
    clock.resume(start + 40_000 - PAUSE_US)
    assert clock.now() == start + 40_000
    clock.resume(NEVER)
    assert (clock.now(), clock.pauses) == (start + 40_000, 0)


def test_a_pause_counts_as_half_of_the_wait_it_fell_into() -> None:
    machine = Machine()
    clock, start = rested(machine)
    machine.now += 10_000_000
    clock.resume(start + 40_000)
    assert clock.now() == start + 20_000
    assert (clock.pauses, clock.longest_pause_us) == (1, 9_980_000)
    machine.now += 5
    assert clock.now() == start + 20_005


def test_a_deadline_that_had_passed_before_the_rest_shows_no_pause() -> None:
    machine = Machine()
    clock, start = rested(machine)
    machine.now += PAUSE_US * 2
    clock.resume(start - 1)
    assert (clock.now(), clock.pauses) == (start + PAUSE_US * 2, 0)


def test_pauses_without_end_still_let_a_deadline_come() -> None:
    machine = Machine()
    clock, start = rested(machine)
    deadline = start + 1_000_000
    for _ in range(25):
        machine.now += 60_000_000
        clock.resume(deadline)
        clock.rest()
    assert deadline - clock.now() <= 1


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)), max_size=30))
def test_it_never_goes_back_and_never_runs_faster(steps: list[tuple[int, int]]) -> None:
    machine = Machine()
    clock, last = rested(machine)
    for passing, wait in steps:
        deadline = last + wait
        machine.now += passing
        clock.resume(deadline)
        assert last <= clock.now() <= last + passing
        clock.rest()
        last = clock.now()


def test_the_real_clock_does_not_go_back() -> None:
    readings = [boottime_us() for _ in range(100)]
    assert readings == sorted(readings)
    assert readings[0] > 0
