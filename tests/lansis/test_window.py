"""The network sliding window: nobody starves, the sum is bounded, and fuller means slower."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transis.lansis.window import FEW, PRESSURE_MAX, Pressure, SendRate, WindowLoad, delay_us, gather_us, is_crumb, permit, quota
from transis.types.config import Pulse, Window
from transis.types.limits import BURST_DATAGRAMS_MAX

WINDOW = Window()
windows = st.builds(Window, st.integers(1, 1000), st.just(1), st.integers(2000, 4000))


@given(windows, st.integers(1, 128), st.data())
def test_permits_taken_together_stay_within_window_and_quotas(window: Window, members: int, data: st.DataObject) -> None:
    """However often members send one after the other without anything becoming stable, as each sees the same."""
    unstable = [0] * members
    for rank in data.draw(st.lists(st.integers(0, members - 1), max_size=60)):
        active = sum(count > 0 for count in unstable) + (unstable[rank] == 0)
        unstable[rank] += permit(window, WindowLoad(members, sum(unstable), unstable[rank], active))
        assert sum(unstable) <= window.window + members * quota(window, members)


@given(windows, st.integers(1, 128), st.integers(0, 5000))
def test_who_has_nothing_on_its_way_may_always_send(window: Window, members: int, unstable: int) -> None:
    load = WindowLoad(members, unstable, 0, members)
    allowed = permit(window, load)
    assert 1 <= allowed <= BURST_DATAGRAMS_MAX
    assert not is_crumb(window, load, allowed)


def test_a_full_store_stops_everybody_who_has_something_on_its_way() -> None:
    assert permit(WINDOW, WindowLoad(4, WINDOW.gap_max, 1, 4)) == 0
    assert permit(WINDOW, WindowLoad(4, WINDOW.gap_max, 0, 4)) == 1


@pytest.mark.parametrize("greedy", [1, 2, 7])
def test_a_slow_sender_beside_saturated_ones_always_gets_its_turn(greedy: int) -> None:
    """Ten thousand rounds in which the others take all they may and little becomes stable (W4)."""
    random = Random(greedy)
    members = greedy + 1
    unstable = [0] * members
    turns = 0
    for _ in range(10_000):
        for rank in range(1, members):
            load = WindowLoad(members, sum(unstable), unstable[rank], sum(map(bool, unstable)) + (not unstable[rank]))
            unstable[rank] += permit(WINDOW, load)
        load = WindowLoad(members, sum(unstable), unstable[0], sum(map(bool, unstable)) + (not unstable[0]))
        if permit(WINDOW, load):
            unstable[0] += 1
            turns += 1
        for rank in range(members):
            unstable[rank] -= min(unstable[rank], random.choice((0, 1, 1)))
    assert turns >= 6_000, "as many as became stable in its name"


@given(st.integers(0, 400), st.integers(0, 400), st.integers(1, 10_000))
def test_fuller_is_slower(one: int, other: int, longest_us: int) -> None:
    waits = [delay_us(WINDOW, WindowLoad(4, unstable, 0, 4), longest_us) for unstable in sorted((one, other))]
    assert waits == sorted(waits)
    assert max(waits) <= longest_us


def test_a_calm_window_does_not_wait_and_a_full_one_waits_longest() -> None:
    assert delay_us(WINDOW, WindowLoad(4, 225, 0, 4), 300) == 0
    assert delay_us(WINDOW, WindowLoad(4, 262, 0, 4), 300) == 300 * 37 * 37 // 75**2
    assert delay_us(WINDOW, WindowLoad(4, 300, 0, 4), 300) == 300
    assert delay_us(WINDOW, WindowLoad(4, 3000, 0, 4), 300) == 300


def test_nothing_is_infinite_but_a_full_window_for_who_used_its_quota() -> None:
    assert permit(WINDOW, WindowLoad(4, 300, 37, 4)) == 0
    assert permit(WINDOW, WindowLoad(4, 300, 36, 4)) == 1


def test_each_of_those_who_send_has_an_equal_share() -> None:
    """Though half of the window is free: the other may be taking it at this moment."""
    assert permit(WINDOW, WindowLoad(4, 150, 149, 2)) == 1
    assert permit(WINDOW, WindowLoad(4, 150, 150, 2)) == 0
    assert permit(WINDOW, WindowLoad(4, 150, 150, 1)) == 75


def test_no_burst_is_larger_than_a_quarter_of_the_window_or_than_its_places_have_room_for() -> None:
    assert permit(Window(window=40, visit_max=40), WindowLoad(4, 0, 0, 1)) == 10
    assert permit(Window(window=4000, visit_max=4000, gap_max=10_000), WindowLoad(4, 0, 0, 1)) == BURST_DATAGRAMS_MAX


def test_crumbs_are_not_sent_while_something_is_on_its_way() -> None:
    assert quota(WINDOW, 4) == 37
    assert is_crumb(WINDOW, WindowLoad(4, 299, 30, 4), 17)
    assert not is_crumb(WINDOW, WindowLoad(4, 299, 30, 4), 18)


def test_pressure_doubles_once_for_a_loss_and_goes_away() -> None:
    pressure = Pressure(300)
    pressure.lost(5, 10)
    assert pressure.extra_us == 300
    pressure.lost(9, 20)
    assert pressure.extra_us == 300, "it was on its way already"
    pressure.lost(11, 20)
    assert pressure.extra_us == 600
    pressure.stable(19, 40)
    assert pressure.extra_us == 600
    pressure.stable(20, 40)
    assert pressure.extra_us == 300
    pressure.stable(40, 60)
    assert pressure.extra_us == 0


def test_pressure_has_an_end() -> None:
    pressure = Pressure(300)
    for counter in range(1, 20):
        pressure.lost(counter, counter)
    assert pressure.extra_us == PRESSURE_MAX * 300


def test_who_fills_a_burst_soon_gathers_and_who_speaks_now_and_then_never_waits() -> None:
    """A burst of 80,000 bytes and 4 ms to gather it: 20,000 bytes in that time are worth waiting for."""
    pulse, one, many = Pulse(nack_us=4_000), WindowLoad(4, 1, 1, 1), WindowLoad(4, 8, 8, 1)
    assert gather_us(pulse, one, 16_000, 80_000, 1_000) == 4_000
    assert gather_us(pulse, one, 5_000, 80_000, 1_000) == 4_000
    assert gather_us(pulse, one, 4_999, 80_000, 1_000) == 0
    assert gather_us(pulse, one, 2_000, 80_000, 0) == 0, "two messages at the same moment are no stream"
    assert gather_us(pulse, many, 2_000, 80_000, 0) == 500, "eight are"
    assert gather_us(pulse, many, 80_000, 80_000, 0) == 0, "it is full"
    assert gather_us(pulse, WindowLoad(4, 9, 0, 2), 16_000, 80_000, 1_000) == 0, "nothing of mine would come to wake me"


# --- the pace of the slowest ------------------------------------------------------------------------------------------

LONGEST_US = 50_000
WIDE = Window(window=320, visit_max=120)


def on_its_way(datagrams: int) -> WindowLoad:
    """All of it of others."""
    return WindowLoad(2, datagrams, 0, 1)


def rounds(pace: SendRate, waited_us: int, count: int) -> list[int]:
    """How large the window is after each burst that filled it was everywhere."""
    found, now = [], 0
    for counter in range(1, count + 1):
        pace.sent(counter, now, on_its_way(pace.window.window))
        now += waited_us
        pace.stable(counter, now)
        found.append(pace.window.window)
    return found


def test_a_view_begins_with_a_part_of_the_window_and_soon_has_all_of_it() -> None:
    pace = SendRate(WIDE, 2, LONGEST_US)
    assert pace.window.window == 20
    assert rounds(pace, 1_000, 5) == [40, 80, 160, 320, 320]
    assert pace.window == WIDE


@pytest.mark.parametrize("configured", [1, 4, 8])
def test_a_small_window_is_used_from_the_beginning(configured: int) -> None:
    window = Window(window=configured, visit_max=configured)
    assert SendRate(window, 2, LONGEST_US).window == window


@given(st.integers(200, 50_000))
def test_what_is_on_its_way_is_what_the_slowest_works_off_in_time(datagram_us: int) -> None:
    """It needs so long for a datagram: the window comes to what it can do in the longest time, and stays about there."""
    pace = SendRate(WIDE, 2, LONGEST_US)
    fits = min(WIDE.window, max(2 * FEW, LONGEST_US // datagram_us))
    for _ in range(60):
        rounds(pace, pace.window.window * datagram_us, 1)
    for _ in range(20):
        rounds(pace, pace.window.window * datagram_us, 1)
        assert fits // 2 <= pace.window.window <= fits + fits // 8 + 1


@pytest.mark.parametrize(("members", "least"), [(2, 8), (16, 64), (128, 320)])
def test_nobody_is_so_slow_that_bursts_become_thin(members: int, least: int) -> None:
    pace = SendRate(WIDE, members, LONGEST_US)
    assert rounds(pace, 100 * LONGEST_US, 5)[-1] == least


def test_a_burst_that_found_nothing_before_it_says_nothing() -> None:
    pace = SendRate(WIDE, 2, LONGEST_US)
    pace.sent(1, 0, on_its_way(9))
    pace.stable(1, 10 * LONGEST_US)
    assert pace.window.window == 20


def test_who_uses_its_share_stands_for_all_that_began_with_it() -> None:
    pace = SendRate(WIDE, 4, LONGEST_US)
    pace.sent(5, 0, WindowLoad(4, 5, 5, 4))
    pace.stable(5, 1_000)
    assert pace.window.window == 40


def test_occasional_speakers_say_nothing_about_a_queue() -> None:
    pace = SendRate(WIDE, 4, LONGEST_US)
    pace.sent(3, 0, WindowLoad(4, 3, 3, 4))
    pace.stable(3, 1_000)
    assert pace.window.window == 20


def test_one_burst_is_followed_at_a_time_and_until_all_of_it_is_everywhere() -> None:
    pace = SendRate(WIDE, 2, LONGEST_US)
    pace.sent(10, 0, on_its_way(20))
    pace.sent(20, 1, on_its_way(20))
    pace.stable(9, 60_000)
    assert pace.window.window == 20
    pace.stable(20, 100_000)
    assert pace.window.window == 10, "twice the longest time"
    pace.stable(30, 200_000)
    assert pace.window.window == 10


def test_one_late_word_does_not_close_the_window() -> None:
    pace = SendRate(WIDE, 2, LONGEST_US)
    rounds(pace, 1_000, 4)
    assert rounds(pace, 100 * LONGEST_US, 1) == [80]
