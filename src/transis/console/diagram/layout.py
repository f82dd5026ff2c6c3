"""Where everything goes: margins, rows, lanes, and the scale across.

From top to bottom: title and facts, legend, rows of fault labels, the axis, one strip per lane, the axis again.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from transis.console.diagram.scale import Scale
from transis.drawing.labels import Rows, shortened, width_of
from transis.sim.picture import Moment, Picture, Step, Strike

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
