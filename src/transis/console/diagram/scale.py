"""Time to x: straight where something happens, cut short where nothing does, with room where configurations change.

1. x never decreases with time, and one instant has one x, or a room (from, to) if a transitional view begins and ends in it.
2. A silence longer than `SILENCE_PX` allows is drawn so wide and marked as cut.
3. The rest is stretched evenly, so that lengths can be compared between two cuts.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator
from typing import Final, NamedTuple

from transis.sim.picture import Moment, Step

SILENCE_PX: Final = 48.0
CHANGE_PX: Final = 3.0
"""An instant at which a configuration or a fault comes gets at least so much for itself."""
ROUNDS: Final = 50
"""Halvings in the search for the stretch: enough for any ratio of doubles that matters here."""
TICK_PX: Final = 84.0
"""Ticks stand no closer: their labels are up to 60 wide."""
STEPS: Final = (1, 2, 5)


class Silence(NamedTuple):
    """A stretch of time that was cut short."""

    start_us: int
    end_us: int
    x: float
    width: float


class Scale:
    def __init__(
        self, busy: Iterable[int], rooms: Collection[int], changes: Collection[int], width: float, room_px: float
    ) -> None:
        """`busy` are the instants at which something is drawn; `rooms` and `changes` are among them."""
        self._times = sorted({0, *busy, *rooms, *changes})
        self._rooms = {time_us: room_px if time_us in rooms else CHANGE_PX for time_us in {*rooms, *changes}}
        gaps = [after - before for before, after in zip(self._times, self._times[1:], strict=False)]
        self._stretch = _stretch(gaps, max(width, 1.0))
        self._x = [0.0]
        self.silences: list[Silence] = []
        for before, gap in zip(self._times, gaps, strict=False):
            self._advance(before, gap)
        self.width = self._x[-1] + self._rooms.get(self._times[-1], 0.0)

    def _advance(self, before: int, gap: int) -> None:
        x = self._x[-1] + self._rooms.get(before, 0.0)
        drawn = min(gap * self._stretch, SILENCE_PX)
        if gap * self._stretch > 2 * SILENCE_PX:
            self.silences.append(Silence(before, before + gap, x, drawn))
        self._x.append(x + drawn)

    def x(self, moment: Moment) -> float:
        """Where an event of this moment is drawn."""
        x = self.at(moment.time_us)
        return x + self._rooms.get(moment.time_us, 0.0) * moment.step / Step.AFTER

    def at(self, time_us: int) -> float:
        """The left edge of an instant; instants between two busy ones are interpolated."""
        index = bisect_right(self._times, time_us) - 1
        assert index >= 0, "time starts at 0"
        before = self._times[index]
        if time_us == before or index + 1 == len(self._times):
            return self._x[index] + (self._rooms.get(before, 0.0) if time_us > before else 0.0)
        left = self._x[index] + self._rooms.get(before, 0.0)
        share = (time_us - before) / (self._times[index + 1] - before)
        return left + share * (self._x[index + 1] - left)

    def ticks(self) -> Iterator[tuple[int, float]]:
        """Round times, and where silences end, none closer than `TICK_PX` to the one before it."""
        last_x = -TICK_PX
        round_times = range(0, self._times[-1] + 1, self._tick_us())
        for time_us in sorted({*round_times, *(silence.end_us for silence in self.silences)}):
            x = self.at(time_us)
            if x - last_x >= TICK_PX and not self._is_cut(time_us):
                yield time_us, x
                last_x = x

    def _is_cut(self, time_us: int) -> bool:
        index = bisect_left(self.silences, time_us, key=lambda silence: silence.end_us)
        return index < len(self.silences) and self.silences[index].start_us < time_us < self.silences[index].end_us

    def _tick_us(self) -> int:
        """The smallest round step that is at least as wide as a tick where time is straight."""
        wanted = TICK_PX / self._stretch if self._stretch > 0 else float(self._times[-1])
        wanted = max(wanted, self._times[-1] / 5_000)
        power = 1
        while True:
            for digit in STEPS:
                if digit * power >= wanted:
                    return digit * power
            power *= 10


def _stretch(gaps: list[int], width: float) -> float:
    """Pixels per microsecond such that all gaps, each cut at `SILENCE_PX`, are together as wide as wanted."""
    low, high = 0.0, SILENCE_PX
    wanted = min(width, SILENCE_PX * len(gaps) * 0.999)
    for _ in range(ROUNDS):
        middle = (low + high) / 2
        if sum(min(gap * middle, SILENCE_PX) for gap in gaps) < wanted:
            low = middle
        else:
            high = middle
    return high
