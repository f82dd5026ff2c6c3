"""Where everything goes.

Where everything goes: margins, rows, lanes, and the scale across.

From top to bottom: title and facts, legend, rows of fault labels, the axis, one strip per lane, the axis again.

Time to x: straight where something happens, cut short where nothing does, with room where configurations change.

1. x never decreases with time, and one instant has one x, or a room (from, to) if a transitional view begins and ends in it.
2. A silence longer than `SILENCE_PX` allows is drawn so wide and marked as cut.
3. The rest is stretched evenly, so that lengths can be compared between two cuts.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator
from typing import Final, NamedTuple

from transis.audit.draw.svg import Rows, shortened, width_of
from transis.sim.picture import Moment, Picture, Step, Strike

# --- scale ------------------------------------------------------------------------------------------------------------

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
        self._rooms = {time_us: room_px if time_us in rooms else CHANGE_PX for time_us in sorted({*rooms, *changes})}
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


# --- layout -----------------------------------------------------------------------------------------------------------

LEFT: Final = 92.0
RIGHT: Final = 28.0
FACT_PX: Final = 17.0
LEGEND_PX: Final = 30.0
ROW_PX: Final = 15.0
AXIS_PX: Final = 26.0
ROWS_MAX: Final = 8
"""Rows of fault labels; what finds no place keeps its mark and tells its text on hover."""

WORDS_MAX: Final = 42
WIDTH_MIN: Final = 1_200.0
"""The legend needs so much."""
WIDTH_BASE: Final = 900.0
INSTANT_PX: Final = 5.0
WIDTH_MAX: Final = 9_000.0
ROOM_PX: Final = 30.0
ROOMS_PX: Final = 190.0
"""A change of configuration, node after node, gets about so much in all."""


class Label(NamedTuple):
    """A fault's words; without a row there was no place for them."""

    strike: Strike
    x: float
    words: str
    word_x: float
    row: int | None


class Layout:
    """The geometry of one picture."""

    def __init__(self, picture: Picture) -> None:
        self.picture = picture
        self.scale = _scale(picture)
        self.lane_px, self.detailed = _lane_px(len(picture.lanes))
        self.width = max(WIDTH_MIN, LEFT + self.scale.width + RIGHT)
        self.labels, rows = self._place_faults()
        self.head = 30.0 + FACT_PX * len(picture.facts)
        self.faults_top = self.head + LEGEND_PX
        self.axis_y = self.faults_top + ROW_PX * rows + AXIS_PX
        self.lanes_top = self.axis_y + 6.0
        self.lanes_end = self.lanes_top + self.lane_px * len(picture.lanes)
        self.height = self.lanes_end + AXIS_PX + 6.0

    def x(self, moment: Moment) -> float:
        return LEFT + self.scale.x(moment)

    def at(self, time_us: int) -> float:
        return LEFT + self.scale.at(time_us)

    def strip(self, lane: int) -> tuple[float, float]:
        """Top and height of a lane's band."""
        return self.lanes_top + lane * self.lane_px + 2.0, self.lane_px - 4.0

    def line_y(self, lane: int) -> float:
        """Where a lane's life runs: below the words of its views."""
        top, height = self.strip(lane)
        return top + height * (0.72 if self.detailed else 0.6)

    def _place_faults(self) -> tuple[list[Label], int]:
        rows = Rows(ROWS_MAX, self.scale.width)
        labels = []
        for strike in self.picture.strikes:
            x = self.scale.at(strike.time_us)
            words = shortened(strike.text, WORDS_MAX)
            place = rows.place(x, width_of(words) + 4.0)
            row, word_x = (None, x) if place is None else place
            labels.append(Label(strike, LEFT + x, words, LEFT + word_x, row))
        return labels, rows.used

    def label_y(self, row: int) -> float:
        """The first row lies next to the axis, so that most lines are short."""
        return self.axis_y - AXIS_PX + 4.0 - row * ROW_PX


def _lane_px(lanes: int) -> tuple[float, bool]:
    """Height of a lane, and whether it has room for two lines of words."""
    if lanes <= 8:
        return 68.0, True
    return (46.0, False) if lanes <= 20 else (28.0, False)


def _scale(picture: Picture) -> Scale:
    changes = {band.start.time_us for band in picture.bands} | {strike.time_us for strike in picture.strikes}
    rooms = {band.start.time_us for band in picture.bands if band.start.step is Step.AFTER}
    busy = {sending.moment.time_us for sending in picture.sendings} | {arrival.moment.time_us for arrival in picture.arrivals}
    busy |= {life.end_us for life in picture.lives} | {picture.end_us}
    width = min(WIDTH_MAX, WIDTH_BASE + INSTANT_PX * len(busy | changes))
    room_px = min(ROOM_PX, max(4.0, ROOMS_PX / max(1, len(picture.lanes))))
    return Scale(busy, rooms, changes, width, room_px)
