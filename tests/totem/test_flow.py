"""Flow control (L5, W4, T14 of docs/traps.md): single formulas, and rings of senders that follow them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transis.totem.visit import Demand, permit
from transis.types.config import Window

DATAGRAM = 1400
ENDLESS = 1_000_000 * DATAGRAM
SMALL = Window(window=50, visit_max=50, gap_max=4_000)

windows = st.builds(
    lambda window, share, gap: Window(window=window, visit_max=max(1, window * share // 100), gap_max=window + 128 + gap),
    st.integers(1, 400),
    st.integers(1, 100),
    st.integers(0, 5_000),
)
counts = st.integers(0, 10_000)
sizes = st.integers(0, 1 << 40)
demands = st.builds(Demand, st.integers(1, 128), counts, counts, sizes, sizes, sizes, counts, st.booleans())


def lone(**changes: int | bool) -> Demand:
    demand = Demand(members=3, fcc=0, my_last=0, backlog=0, my_last_backlog=0, my_backlog=ENDLESS, unsafe=0, gap_grows=False)
    return demand._replace(**changes)  # type: ignore[arg-type]


@given(windows, demands)
def test_a_permit_keeps_every_cap(window: Window, demand: Demand) -> None:
    granted = permit(window, demand)
    assert 0 <= granted <= window.visit_max
    assert granted <= max(0, window.gap_max - demand.unsafe)
    assert granted <= 1 or not demand.gap_grows


@given(windows, demands)
def test_nothing_to_send_needs_no_permit(window: Window, demand: Demand) -> None:
    assert permit(window, demand._replace(my_backlog=0)) == 0


@given(windows, demands)
def test_whoever_has_something_gets_at_least_one_below_the_hard_cap(window: Window, demand: Demand) -> None:
    """W4: the floor comes after the fairness terms, and yields to the hard cap alone."""
    demand = demand._replace(my_backlog=max(1, demand.my_backlog))
    granted = permit(window, demand)
    if demand.unsafe >= window.gap_max:
        assert granted == 0
    else:
        assert granted >= 1


@given(windows, demands, st.integers(1, 1 << 30))
def test_more_of_my_own_backlog_never_means_less(window: Window, demand: Demand, more: int) -> None:
    larger = demand._replace(my_backlog=demand.my_backlog + more)
    assert permit(window, larger) >= permit(window, demand)


@given(windows, demands, st.integers(1, 1_000))
def test_more_traffic_of_others_never_means_more_for_me(window: Window, demand: Demand, more: int) -> None:
    busier = demand._replace(fcc=demand.fcc + more, backlog=demand.backlog + more * DATAGRAM)
    assert permit(window, busier) <= permit(window, demand)


def test_a_lone_sender_keeps_its_full_permit() -> None:
    """L5a: with the window less fcc, my own last visit would halve the next one."""
    window = Window(window=100, visit_max=100)
    full = permit(window, lone())
    assert full == 97
    assert permit(window, lone(fcc=full, my_last=full, backlog=ENDLESS, my_last_backlog=ENDLESS)) == full


def test_the_hard_cap_stops_everybody() -> None:
    assert permit(SMALL, lone(unsafe=SMALL.gap_max)) == 0
    assert permit(SMALL, lone(unsafe=SMALL.gap_max - 2)) == 2
    assert permit(SMALL, lone(unsafe=SMALL.gap_max + 7)) == 0


def test_the_window_is_shared_in_proportion_to_the_backlogs() -> None:
    mine = lone(members=2, my_backlog=DATAGRAM * 100, backlog=DATAGRAM * 300)
    assert permit(SMALL, mine) == 12


class Ring:
    """Members that visit the token in turn and follow the formula; safe after two rotations, as on a healthy ring."""

    def __init__(self, window: Window, members: int) -> None:
        self.window = window
        self.members = members
        self.fcc = 0
        self.backlog = 0
        self.my_last = [0] * members
        self.my_last_backlog = [0] * members
        self.sent = [0] * members
        self.rotations: list[int] = []
        """Datagrams on the ring in each rotation."""

    def rotate(self, queued: list[int]) -> None:
        """One rotation; `queued` are the datagrams that wait at each member, and goes down by what was sent."""
        on_ring = 0
        for member in range(self.members):
            granted = min(queued[member], permit(self.window, self._demand(member, queued[member])))
            queued[member] -= granted
            self._account(member, granted, queued[member] * DATAGRAM)
            on_ring += granted
        self.rotations.append(on_ring)

    def _demand(self, member: int, queued: int) -> Demand:
        unsafe = sum(self.rotations[-2:])
        return Demand(
            self.members,
            self.fcc,
            self.my_last[member],
            self.backlog,
            self.my_last_backlog[member],
            queued * DATAGRAM,
            unsafe,
            False,
        )

    def _account(self, member: int, sent: int, backlog: int) -> None:
        self.fcc += sent - self.my_last[member]
        self.backlog += backlog - self.my_last_backlog[member]
        self.my_last[member], self.my_last_backlog[member] = sent, backlog
        self.sent[member] += sent


@pytest.mark.parametrize("slow_first", [True, False])
def test_a_slow_sender_beside_a_saturated_one_loses_nothing(slow_first: bool) -> None:
    """W4, T14: with the floor before the minimum this ends 10000 : 0."""
    ring = Ring(SMALL, 2)
    slow, fast = (0, 1) if slow_first else (1, 0)
    queued = [0, 0]
    queued[fast] = 1_000_000
    for _ in range(200):
        queued[slow] += 1
        ring.rotate(queued)
    assert ring.sent[slow] == 200
    assert ring.sent[fast] >= 46 * 200
    assert max(ring.rotations) <= SMALL.window


def test_equal_senders_get_equal_shares() -> None:
    ring = Ring(SMALL, 4)
    queued = [1_000_000] * 4
    for _ in range(100):
        ring.rotate(queued)
    assert min(ring.sent) >= 0.8 * max(ring.sent)
    assert sum(ring.rotations[10:]) >= 0.8 * SMALL.window * 90


@given(
    st.integers(2, 60),
    st.lists(st.sampled_from((0, 1, 5, 100_000)), min_size=2, max_size=6),
)
def test_in_any_ring_everybody_with_work_moves_in_every_rotation_and_the_window_holds(size: int, queued: list[int]) -> None:
    window = Window(window=size, visit_max=size, gap_max=10_000)
    ring = Ring(window, len(queued))
    for _ in range(12):
        before = list(queued)
        ring.rotate(queued)
        assert all(after < had for had, after in zip(before, queued, strict=True) if had)
    assert max(ring.rotations) <= max(size, 1 + len(queued))
