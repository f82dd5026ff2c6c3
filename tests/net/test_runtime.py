"""The clock of a node: it follows the machine's, but a pause is not held against others."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from transis.net.runtime import PAUSE_US, NodeClock, boottime_us
from transis.types.outputs import NEVER


class Machine:
    def __init__(self) -> None:
        self.now = 1_000_000

    def __call__(self) -> int:
        return self.now


def started(machine: Machine) -> tuple[NodeClock, int]:
    clock = NodeClock(machine)
    return clock, clock.now()


def test_waking_in_time_changes_nothing() -> None:
    machine = Machine()
    clock, start = started(machine)
    machine.now += 40_000
    clock.resume(start + 40_000 - PAUSE_US)
    assert clock.now() == start + 40_000
    clock.resume(NEVER)
    assert (clock.now(), clock.pauses) == (start + 40_000, 0)


def test_a_pause_counts_as_half_of_the_wait_it_fell_into() -> None:
    machine = Machine()
    clock, start = started(machine)
    machine.now += 10_000_000
    clock.resume(start + 40_000)
    assert clock.now() == start + 20_000
    assert (clock.pauses, clock.longest_pause_us) == (1, 9_980_000)
    machine.now += 5
    assert clock.now() == start + 20_005


def test_a_pause_with_an_overdue_timer_is_measured_from_when_the_time_was_last_seen() -> None:
    machine = Machine()
    clock, start = started(machine)
    machine.now += PAUSE_US
    clock.resume(start - 10 * PAUSE_US)
    assert (clock.now(), clock.pauses) == (start + PAUSE_US, 0)
    machine.now += PAUSE_US + 1
    clock.resume(start - 10 * PAUSE_US)
    assert (clock.now(), clock.pauses) == (start + PAUSE_US, 1)


def test_pauses_without_end_still_let_a_deadline_come() -> None:
    machine = Machine()
    clock, start = started(machine)
    deadline = start + 1_000_000
    for _ in range(25):
        machine.now += 60_000_000
        clock.resume(deadline)
        clock.now()
    assert deadline - clock.now() <= 1


def test_who_passes_by_often_does_not_carry_the_time_past_a_deadline() -> None:
    machine = Machine()
    clock, start = started(machine)
    deadline = start + 25_000
    seen = []
    for _ in range(10):
        machine.now += 10_000
        seen.append(clock.passing_by(deadline) - start)
    assert seen == [10_000, 20_000, *[25_000] * 8]
    clock.resume(deadline)
    assert (clock.now(), clock.pauses, clock.longest_pause_us) == (deadline, 1, 75_000)


def test_an_overdue_deadline_does_not_set_back_who_passes_by() -> None:
    machine = Machine()
    clock, start = started(machine)
    machine.now += 10_000
    assert clock.passing_by(start - 1) == start
    assert clock.passing_by(NEVER) == start + 10_000


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(-(10**6), 10**6), st.booleans()), max_size=30))
def test_it_never_goes_back_and_never_runs_faster(steps: list[tuple[int, int, bool]]) -> None:
    machine = Machine()
    clock, last = started(machine)
    behind = 0
    for elapsed, wait, attended in steps:
        deadline = last + wait
        machine.now += elapsed
        behind += elapsed
        if attended:
            clock.resume(deadline)
        now = clock.now() if attended else clock.passing_by(deadline)
        assert last <= now <= last + behind
        behind -= now - last
        last = now


def test_the_real_clock_does_not_go_back() -> None:
    readings = [boottime_us() for _ in range(100)]
    assert readings == sorted(readings)
    assert readings[0] > 0
