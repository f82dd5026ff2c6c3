"""Back-off for peers with whom no ring could be formed (W7)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.hand import node_id
from transis.engine.presence import Quarantine, Release
from transis.types.config import LAN

A, B, X = (node_id(name) for name in "abx")
LEFT_OUT = {X: Release.HEARING}
FIRST, LONGEST = LAN.quarantine_us, LAN.quarantine_max_us


def sentence(quarantine: Quarantine, now: int) -> int:
    """How long X is held from now on, by bisection."""
    low, high = 0, 4 * LONGEST
    while low < high:
        middle = (low + high) // 2
        if quarantine.holds(X, now + middle):
            low = middle + 1
        else:
            high = middle
    return low


def test_whoever_was_left_out_waits_and_nobody_else() -> None:
    quarantine = Quarantine(LAN)
    assert not quarantine.holds(X, 0)
    quarantine.installed([A, B], LEFT_OUT, 10)
    assert quarantine.holds(X, 10 + FIRST - 1)
    assert not quarantine.holds(X, 10 + FIRST)
    assert not quarantine.holds(A, 11)


@given(st.integers(1, 12))
def test_each_time_twice_as_long_up_to_the_longest(times: int) -> None:
    quarantine = Quarantine(LAN)
    now = 0
    for turn in range(times):
        quarantine.installed([A], LEFT_OUT, now)
        length = min(FIRST << turn, LONGEST)
        assert sentence(quarantine, now) == length
        now += length + LONGEST


def test_a_peer_that_was_long_at_peace_is_forgotten() -> None:
    quarantine = Quarantine(LAN)
    for turn in range(3):
        quarantine.installed([A], LEFT_OUT, turn)
    much_later = 3 * LONGEST
    quarantine.installed([A], LEFT_OUT, much_later)
    assert sentence(quarantine, much_later) == FIRST


def test_a_ring_with_the_peer_in_it_ends_all_that() -> None:
    quarantine = Quarantine(LAN)
    quarantine.installed([A], LEFT_OUT, 0)
    quarantine.installed([A], LEFT_OUT, 1)
    quarantine.installed([A, X], {}, 2)
    assert not quarantine.holds(X, 2)
    quarantine.installed([A], LEFT_OUT, 3)
    assert sentence(quarantine, 3) == FIRST


@pytest.mark.parametrize("mercy", Release)
def test_only_enough_evidence_lets_the_peer_come_early(mercy: Release) -> None:
    quarantine = Quarantine(LAN)
    quarantine.installed([A], {X: mercy}, 0)
    assert quarantine.holds(X, 1)
    assert quarantine.holds(X, 1, Release.HEARING) == (mercy > Release.HEARING)
    assert quarantine.holds(X, 1, Release.ANSWER) == (mercy > Release.ANSWER)


def test_who_breaks_every_ring_waits_longer_each_time_although_it_was_a_member_between() -> None:
    quarantine = Quarantine(LAN)
    for turn in range(4):
        now = turn * LONGEST
        quarantine.installed([A], {X: Release.NONE}, now)
        assert sentence(quarantine, now) == FIRST << turn
        quarantine.installed([A, X], {}, now + 1)
        assert not quarantine.holds(X, now + 1)


def test_another_life_of_the_same_name_is_somebody_else() -> None:
    quarantine = Quarantine(LAN)
    quarantine.installed([A], LEFT_OUT, 0)
    assert not quarantine.holds(node_id("x", 2), 1)
