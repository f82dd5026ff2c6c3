"""Two clocks compared by the messages between them: the truth lies within what is stated, whatever the drift and the delays."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from random import Random

import pytest

from transis.audit.measure.clocks import (
    LINES_MAX,
    ClockPath,
    Curve,
    Knot,
    Least,
    PairWindow,
    Span,
    curve_of,
    lines,
    skew_of,
    ways,
)
from transis.sim.host import Clock

SPAN_US = 10_000_000
WIDTH_US = 1_000_000


def messages(rng: Random, one: Clock, other: Clock, slow_us: int) -> list[PairWindow]:
    """What two nodes see of each other: a message each way every few milliseconds, with delays of their own."""
    windows: dict[int, list[list[Least]]] = {}
    for sent in range(0, SPAN_US, 20_000):
        for way in (0, 1):
            arrived = sent + rng.randrange(200, 200 + slow_us)
            left_us = one.local(arrived if way else sent)
            difference = one.local(arrived) - other.local(sent) if way else other.local(arrived) - one.local(sent)
            windows.setdefault(left_us // WIDTH_US, [[], []])[way].append(Least(difference, left_us))
    return [PairWindow(window, min(there, default=None), min(back, default=None)) for window, (there, back) in windows.items()]


def truth(one: Clock, other: Clock) -> Callable[[float], float]:
    return lambda shown: other.local(one.virtual(int(shown))) - shown


@pytest.mark.parametrize("drifts", [(0, 0), (50, -50), (500, -500), (20_000, -20_000)])
@pytest.mark.parametrize("slow_us", [1, 300, 50_000])
def test_the_true_offset_lies_within_the_uncertainty_at_all_times_also_beyond_the_messages(
    drifts: tuple[int, int], slow_us: int
) -> None:
    rng = Random(f"{drifts} {slow_us}")
    one, other = Clock(1_000_000_000, drifts[0]), Clock(3_000, drifts[1])
    curve = curve_of(messages(rng, one, other, slow_us))
    assert curve is not None
    back = curve.seen_from_there()
    for virtual in range(0, 2 * SPAN_US, 123_457):
        there_and_back = ((curve, one, other), (back, other, one))
        for seen, here, there in there_and_back:
            knot = seen.at(here.local(virtual))
            assert abs(knot.shift_us - truth(here, there)(here.local(virtual))) <= knot.uncertainty_us + 2


def test_steady_fast_messages_make_it_as_certain_as_their_delay() -> None:
    curve = curve_of(messages(Random(1), Clock(5_000_000), Clock(), 300))
    assert curve is not None
    assert curve.at(5_000_000).uncertainty_us < 500


def test_drift_that_is_known_costs_no_certainty() -> None:
    steady = curve_of(messages(Random(1), Clock(), Clock(7), 300))
    drifting = curve_of(messages(Random(1), Clock(), Clock(7, 20_000), 300))
    assert steady is not None
    assert drifting is not None
    assert drifting.at(5_000_000).uncertainty_us < 4 * steady.at(5_000_000).uncertainty_us


def test_a_pair_that_talks_one_way_only_cannot_be_compared() -> None:
    assert curve_of([PairWindow(0, Least(100, 5), None), PairWindow(1, Least(90, 1_000_005), None)]) is None


def test_ways_that_alternate_are_put_together() -> None:
    curve = curve_of([PairWindow(0, Least(1_100, 10), None), PairWindow(1, None, Least(-900, 2_000_010))])
    assert curve is not None
    assert [knot.at_us for knot in curve.knots] == [1_000_010]
    assert curve.knots[0].shift_us == 1_000
    assert curve.knots[0].uncertainty_us == 100 + 1_000


def test_windows_in_which_messages_waited_do_not_bend_the_curve() -> None:
    windows = [PairWindow(at, Least(100, at), Least(100, at)) for at in (0, 1_000, 2_000)]
    curve = curve_of([*windows, PairWindow(1_500, Least(90_000, 1_500), Least(100, 1_500))])
    assert curve is not None
    assert curve.at(1_500).shift_us == 0


def test_two_clocks_of_a_node_that_drift_evenly_are_certain() -> None:
    curve = skew_of((at, 7 + at / 500) for at in range(0, 10_000, 1_000))
    assert curve.at(2_500).shift_us == pytest.approx(12)
    assert curve.at(2_500).uncertainty_us == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("paused_at", [1, 3_700, 8_999])
def test_around_a_pause_as_much_is_uncertain_as_it_was_long(paused_at: int) -> None:
    curve = skew_of((at, 400 if at >= paused_at else 0) for at in range(0, 10_000, 1_000))
    for at in range(0, 9_001, 50):
        knot = curve.at(at)
        assert abs(knot.shift_us - (400 if at >= paused_at else 0)) <= knot.uncertainty_us
    assert curve.at(paused_at).uncertainty_us == pytest.approx(400)
    assert min(curve.at(at).uncertainty_us for at in range(0, 9_001, 50)) == 0


def flat(shift_us: float, uncertainty_us: float = 10.0) -> Curve:
    return Curve([Knot(0, shift_us, uncertainty_us), Knot(SPAN_US, shift_us, uncertainty_us)])


def test_everybody_finds_the_most_certain_way_to_the_one_whom_most_can_be_compared_with() -> None:
    pairs = {(1, 2): flat(5), (2, 3): flat(7), (2, 4): flat(-3, 400.0), (3, 4): flat(-10), (8, 9): flat(1)}
    found = ways(pairs)
    assert {node: (way.reference, len(way.curves)) for node, way in found.items()} == {
        1: (2, 1),
        2: (2, 0),
        3: (2, 1),
        4: (2, 2),
        8: (8, 0),
        9: (8, 1),
    }
    assert found[1].at(100).shift_us == 5
    assert found[4].at(100) == Knot(100, 10 - 7, 20.0)


def test_lines_cover_the_span_and_meet_at_the_edges_of_windows() -> None:
    curve = Curve([Knot(0, 0.0, 1.0), Knot(1_000, 10.0, 2.0), Knot(3_000, 50.0, 3.0)])
    found = list(lines(ClockPath(1, (curve,)), Span(500, 2_999), 500))
    assert [line.window for line in found] == [0, 1, 2, 3, 4, 5, 6]
    for line, following in pairwise(found):
        assert line.at_us + 500 == following.at_us
        assert line.shift_us + line.slope * 500 == pytest.approx(following.shift_us)
    assert found[3].shift_us == curve.at(1_500).shift_us


def test_a_stamp_from_nowhere_does_not_make_millions_of_lines() -> None:
    found = list(lines(flat(5), Span(0, 10**15), 10))
    assert (len(found), found[-1].window) == (LINES_MAX, 10**14 + 1)
