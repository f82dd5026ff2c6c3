"""Clocks that drift and disks that forget."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transis.sim.host import Clock, Disk, Write

CLOCKS = st.builds(Clock, st.integers(0, 10**12), st.integers(-50_000, 50_000))


@given(CLOCKS, st.integers(0, 10**10), st.integers(0, 10**7))
def test_a_clock_never_runs_backwards(clock: Clock, start: int, later: int) -> None:
    assert clock.local(start) <= clock.local(start + later)


@given(CLOCKS, st.integers(0, 10**10))
def test_virtual_is_the_first_time_that_shows_it(clock: Clock, local: int) -> None:
    virtual = clock.virtual(local)
    assert clock.local(virtual) >= local
    assert clock.local(virtual - 1) < local


def test_a_write_is_durable_only_when_it_completed() -> None:
    disk = Disk()
    disk.write(Write(1, "ring_seq", 4))
    assert disk.durable == {}
    assert disk.complete() == 1
    assert disk.durable == {"ring_seq": 4}


def test_a_crash_loses_or_keeps_what_was_not_synced() -> None:
    for survives, expected in ((False, {"ring_seq": 4}), (True, {"ring_seq": 8})):
        disk = Disk({"ring_seq": 4})
        disk.write(Write(1, "ring_seq", 8))
        assert disk.crash(lambda kept=survives: kept) == (0 if survives else 1)
        assert disk.durable == expected
        with pytest.raises(AssertionError, match="nothing to complete"):
            disk.complete()


def test_a_copied_directory_is_no_longer_the_same() -> None:
    disk = Disk({"incarnation": 3})
    copy = disk.copy()
    copy.durable["incarnation"] = 9
    assert disk.durable == {"incarnation": 3}
