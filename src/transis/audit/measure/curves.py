"""How one clock runs against another, from the messages that went both ways. Plain Python over a few rows a run; no Spark.

1. A message cannot arrive before it left. So the least difference "arrived minus left" of one direction bounds the offset of two
   clocks from above, that of the other from below; the middle is the estimate, and the half of the distance is its uncertainty.
2. Clocks drift apart evenly, or nearly: an estimate stands at the middle of the moments of its two messages, and what the clocks
   may have drifted between these is part of its uncertainty.
3. Between estimates the curve is straight. Beyond them it goes on with the slope from the first to the last, ever less certain.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterable
from heapq import heappop, heappush
from itertools import count
from statistics import median
from typing import Final, NamedTuple

DRIFT_UNKNOWN: Final = 1000e-6
"""The most that two clocks are assumed to drift apart when a single estimate cannot tell: each by 500 ppm, far more than quartz
does. Worse clocks, such as some of the simulator's, can then be further off than is stated."""

CERTAIN_ENOUGH: Final = 2.0
"""Estimates this much less certain than the usual one are left out: messages waited then, and would bend the curve."""

LINES_MAX: Final = 1024
"""Windows of one curve: many times what a run has, but a single stamp from nowhere does not make millions of them."""


class Least(NamedTuple):
    """The least difference of one direction, and when its message was at the left node, by that node's clock."""

    difference_us: float
    at_us: float


class PairWindow(NamedTuple):
    """What two nodes saw of each other in a window of time: the fastest message there, and the fastest back."""

    window: int
    there: Least | None
    back: Least | None


class Knot(NamedTuple):
    """At `at_us` of a node's clock the other's shows `shift_us` more, give or take the uncertainty."""

    at_us: float
    shift_us: float
    uncertainty_us: float


class CurveLine(NamedTuple):
    """A curve within one window."""

    window: int
    at_us: int
    shift_us: float
    slope: float
    uncertainty_us: float


class Span(NamedTuple):
    """What a node's clock showed in the run, first and last."""

    first_us: int
    last_us: int


class Curve:
    """The shift over time, straight between knots."""

    def __init__(self, knots: Iterable[Knot]) -> None:
        self.knots = sorted(knots)
        self._times = [knot.at_us for knot in self.knots]
        first, last = self.knots[0], self.knots[-1]
        span = last.at_us - first.at_us
        self.slope = (last.shift_us - first.shift_us) / span if span else 0.0
        self._slope_error = (first.uncertainty_us + last.uncertainty_us) / span if span else DRIFT_UNKNOWN

    def at(self, time_us: float) -> Knot:
        after = bisect(self._times, time_us)
        if after in (0, len(self.knots)):
            return self._beyond(time_us, self.knots[-1 if after else 0])
        left, right = self.knots[after - 1], self.knots[after]
        part = (time_us - left.at_us) / (right.at_us - left.at_us)
        return Knot(time_us, *(one + part * (other - one) for one, other in zip(left[1:], right[1:], strict=True)))

    def _beyond(self, time_us: float, end: Knot) -> Knot:
        away = time_us - end.at_us
        return Knot(time_us, end.shift_us + self.slope * away, end.uncertainty_us + self._slope_error * abs(away))

    def seen_from_there(self) -> Curve:
        """The same curve by the other clock: what one is ahead, the other is behind."""
        return Curve(Knot(at_us + shift_us, -shift_us, uncertainty_us) for at_us, shift_us, uncertainty_us in self.knots)


# -- pairs -----------------------------------------------------------------------------------------------------------


class RoundTrip(NamedTuple):
    """A message each way."""

    there: Least
    back: Least

    @property
    def at_us(self) -> float:
        return (self.there.at_us + self.back.at_us) / 2

    @property
    def shift_us(self) -> float:
        return (self.there.difference_us - self.back.difference_us) / 2

    @property
    def apart_us(self) -> float:
        """The time between the two messages; negative if the one back was the first."""
        return self.there.at_us - self.back.at_us

    def uncertainty_us(self, drift: float) -> float:
        """How long the two were on their way, on average, if the right clock has this drift: the shift cannot be wrong by
        more."""
        return abs((self.there.difference_us + self.back.difference_us) / 2 - drift * self.apart_us / 2)


def curve_of(windows: Iterable[PairWindow]) -> Curve | None:
    """The right clock by the left one's; None if no message went one of the two ways."""
    meetings = list(_meetings(windows))
    if not meetings:
        return None
    drift, error = _drift(meetings[0], meetings[-1])
    knots = [Knot(one.at_us, one.shift_us, one.uncertainty_us(drift) + error * abs(one.apart_us) / 2) for one in meetings]
    usual = median(knot.uncertainty_us for knot in knots)
    return Curve(knot for knot in knots if knot.uncertainty_us <= CERTAIN_ENOUGH * usual)


def skew_of(samples: Iterable[tuple[float, float]]) -> Curve:
    """A node's recording clock by its stamping one, from moments (stamp, shift). The two run evenly except in pauses of the node:
    where the shift bends there was a pause, at a moment that nobody knows, and the bend is the uncertainty."""
    knots = [Knot(at_us, shift_us, 0.0) for at_us, shift_us in sorted(dict(samples).items())]
    inner = range(1, len(knots) - 1)
    bends = [2 * abs(knots[i].shift_us - Curve((knots[i - 1], knots[i + 1])).at(knots[i].at_us).shift_us) for i in inner]
    around = [bends[0], *bends, bends[-1]] if bends else [0.0] * len(knots)
    return Curve(knot._replace(uncertainty_us=bend) for knot, bend in zip(knots, around, strict=True))


def _drift(first: RoundTrip, last: RoundTrip) -> tuple[float, float]:
    """What the right clock gains on the left, and how wrong that may be."""
    span = last.at_us - first.at_us
    free = span - (abs(first.apart_us) + abs(last.apart_us)) / 2
    if free <= 0:
        return 0.0, DRIFT_UNKNOWN
    drift = (last.shift_us - first.shift_us) / span
    return drift, (first.uncertainty_us(drift) + last.uncertainty_us(drift)) / free


def _meetings(windows: Iterable[PairWindow]) -> Iterable[RoundTrip]:
    """Windows in which messages went both ways; a window with messages one way only is joined with the next."""
    there: Least | None = None
    back: Least | None = None
    for window in sorted(windows, key=lambda one: one.window):
        there, back = _lesser(there, window.there), _lesser(back, window.back)
        if there is not None and back is not None:
            yield RoundTrip(there, back)
            there = back = None


def _lesser(one: Least | None, other: Least | None) -> Least | None:
    return min((least for least in (one, other) if least is not None), default=None)


# -- one time for all ------------------------------------------------------------------------------------------------

Pair = tuple[int, int]


class ClockPath(NamedTuple):
    """The path from a node's clock to that of its reference: over the nodes between, one curve each."""

    reference: int
    curves: tuple[Curve, ...]

    def at(self, time_us: float) -> Knot:
        now, uncertainty = time_us, 0.0
        for curve in self.curves:
            step = curve.at(now)
            now += step.shift_us
            uncertainty += step.uncertainty_us
        return Knot(time_us, now - time_us, uncertainty)


def ways(pairs: dict[Pair, Curve]) -> dict[int, ClockPath]:
    """The most certain path of every node to the reference of its component, the node that most others can be compared with."""
    towards: dict[int, dict[int, Curve]] = {}
    for (left, right), curve in pairs.items():
        towards.setdefault(left, {})[right] = curve
        towards.setdefault(right, {})[left] = curve.seen_from_there()
    found: dict[int, ClockPath] = {}
    for reference in sorted(towards, key=lambda node: (-len(towards[node]), node)):
        if reference not in found:
            found |= _ways_to(reference, towards)
    return found


def _ways_to(reference: int, towards: dict[int, dict[int, Curve]]) -> dict[int, ClockPath]:
    """The shortest ways, where the length of a curve is its usual uncertainty."""
    found: dict[int, ClockPath] = {}
    serial = count()
    open_ways: list[tuple[float, int, int, ClockPath]] = [(0.0, next(serial), reference, ClockPath(reference, ()))]
    while open_ways:
        length, _, node, way = heappop(open_ways)
        if node in found:
            continue
        found[node] = way
        for neighbour in sorted(towards[node].keys() - found.keys()):
            curve = towards[neighbour][node]
            further = length + median(knot.uncertainty_us for knot in curve.knots)
            heappush(open_ways, (further, next(serial), neighbour, ClockPath(reference, (curve, *way.curves))))
    return found


def lines(curve: Curve | ClockPath, span: Span, width_us: int) -> Iterable[CurveLine]:
    """The curve as a line a window, from one before the span to one behind it: a lookup then needs no search."""
    last = span.last_us // width_us + 1
    for window in range(max(span.first_us // width_us - 1, last - LINES_MAX + 1), last + 1):
        begin, end = curve.at(window * width_us), curve.at((window + 1) * width_us)
        slope = (end.shift_us - begin.shift_us) / width_us
        yield CurveLine(window, window * width_us, begin.shift_us, slope, max(begin.uncertainty_us, end.uncertainty_us))
