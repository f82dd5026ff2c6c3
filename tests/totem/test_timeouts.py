"""Effective timeouts (W17): stretched by slow rotations and by bad health of my own, never without end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transis.engine.core import HEALTH_MAX
from transis.totem.ring import ROTATIONS_IN_LOSS, STRETCH_MAX, Timeouts
from transis.types.config import LAN, PROFILES, Timing
from transis.types.limits import MEMBERS_MAX

rotations = st.lists(st.integers(0, 10_000_000), max_size=200)


def late(pace: Timeouts) -> None:
    assert pace.fired_late(pace.token_retransmit_us)


def test_a_small_healthy_ring_has_the_configured_timeouts() -> None:
    pace = Timeouts(LAN)
    pace.begin_ring(2)
    pace.saw_rotation(400)
    assert pace.token_loss_us == LAN.token_loss_us
    assert pace.token_retransmit_us == LAN.token_retransmit_us
    assert pace.consensus_us(2) == LAN.consensus_us


def test_slow_rotations_stretch_the_loss_timeout_and_fade() -> None:
    pace = Timeouts(LAN)
    pace.begin_ring(2)
    pace.saw_rotation(20_000)
    assert pace.token_loss_us == ROTATIONS_IN_LOSS * 20_000
    before = pace.token_loss_us
    for _ in range(64):
        pace.saw_rotation(100)
        assert pace.token_loss_us <= before
        before = pace.token_loss_us
    assert pace.token_loss_us < ROTATIONS_IN_LOSS * 10_000
    for _ in range(500):
        pace.saw_rotation(100)
    assert pace.token_loss_us == LAN.token_loss_us


def test_the_retransmission_timeout_does_not_follow_measured_rotations() -> None:
    """A lost token makes a rotation long; waiting longer because of it would feed on itself."""
    pace = Timeouts(LAN)
    pace.begin_ring(3)
    before = pace.token_retransmit_us
    pace.saw_rotation(300_000)
    assert pace.token_retransmit_us == before


def test_a_new_ring_forgets_the_rotations_of_the_old() -> None:
    pace = Timeouts(LAN)
    pace.begin_ring(3)
    pace.saw_rotation(60_000)
    pace.begin_ring(3)
    assert pace.token_loss_us == LAN.token_loss_us


def test_a_timer_that_fires_a_little_late_is_nobody_s_fault() -> None:
    pace = Timeouts(LAN)
    assert not pace.fired_late(0)
    assert not pace.fired_late(pace.token_retransmit_us - 1)
    assert pace.health == 0


def test_bad_health_slows_suspicion_down_and_good_rotations_cure_it() -> None:
    pace = Timeouts(LAN)
    pace.begin_ring(2)
    late(pace)
    late(pace)
    assert pace.token_loss_us == 3 * LAN.token_loss_us
    assert pace.consensus_us(2) == 3 * LAN.consensus_us
    for _ in range(64):
        pace.saw_rotation(100)
    assert pace.token_loss_us == 2 * LAN.token_loss_us
    for _ in range(64):
        pace.saw_rotation(100)
    assert pace.token_loss_us == LAN.token_loss_us


def test_bad_health_ends_somewhere() -> None:
    pace = Timeouts(LAN)
    for _ in range(100):
        late(pace)
    assert pace.health == HEALTH_MAX


@given(rotations, st.integers(1, MEMBERS_MAX), st.sampled_from(sorted(PROFILES)))
def test_the_loss_timeout_stays_between_its_ends(seen: list[int], members: int, name: str) -> None:
    timing = PROFILES[name]
    pace = Timeouts(timing)
    pace.begin_ring(members)
    for rotation in seen:
        pace.saw_rotation(rotation)
    assert timing.token_loss_us <= pace.token_loss_us <= STRETCH_MAX * timing.token_loss_us
    assert isinstance(pace.token_loss_us, int)


@pytest.mark.parametrize("timing", PROFILES.values(), ids=PROFILES)
@pytest.mark.parametrize("members", [1, 2, 5, 20, 50, MEMBERS_MAX])
def test_a_ring_of_any_size_retries_a_few_times_before_it_is_lost(timing: Timing, members: int) -> None:
    pace = Timeouts(timing)
    pace.begin_ring(members)
    assert 3 * pace.token_retransmit_us <= pace.token_loss_us
    assert pace.token_loss_us <= pace.consensus_us(members)
