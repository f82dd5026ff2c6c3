"""What a space-time diagram shows, and where each part of it goes.

A `Picture` holds moments and words, wherever they come from. Time runs to the right, and each node has a lane. From top to
bottom: title and facts, legend, rows of fault labels, the axis, the lanes, the axis again. From time to x:

1. x never decreases with time. An instant has one x, or some room with a place for each of its steps.
2. A silence longer than `SILENCE_PX` allows is drawn so wide and marked as cut.
3. The rest is stretched evenly, so that lengths can be compared between two cuts.
4. Messages of one node, one kind of line and one view become one bundle until all lines fit the budget: a picture of ten
   thousand lines shows nothing. A bundle arrives once per receiver and view, where its first message did; its title says the
   rest.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple

from transis.audit.draw.svg import LabelRows, shortened, width_of

# --- picture ----------------------------------------------------------------------------------------------------------


class Step(IntEnum):
    """BEFORE an instant's change of view, IN the transitional view that begins and ends there, or AFTER."""

    BEFORE = 0
    IN = 1
    AFTER = 2


class Moment(NamedTuple):
    """A time, and the place of an event among those of one node at that time."""

    time_us: int
    step: int = 0


class LifeLine(NamedTuple):
    """A node's life. `birth` and `death` are empty where it goes on beyond the picture."""

    lane: int
    start_us: int
    end_us: int
    birth: str = ""
    death: str = ""
    crashed: bool = False
    label: str = ""


class Band(NamedTuple):
    """A node's time in one view. A transitional view has the colour of `regular`, the view that it ends."""

    lane: int
    view: str
    regular: str
    start: Moment
    end: Moment
    names: tuple[str, ...]
    """Wordings from the longest to the shortest: the first that fits is drawn. So are the `details` below it."""
    details: tuple[str, ...]
    tip: str

    @property
    def is_regular(self) -> bool:
        return self.view == self.regular


class DrawnSending(NamedTuple):
    """`kind` of line: basic, causal, ordered or safe. `faint` if the picture is not about it."""

    lane: int
    node: str
    process: str
    first: int
    count: int  # type: ignore[assignment]  # hides tuple.count
    kind: str
    view: str
    moment: Moment
    faint: bool = False


class DrawnDelivery(NamedTuple):
    """Messages of a process, delivered at a node."""

    lane: int
    node: str
    process: str
    first: int
    count: int  # type: ignore[assignment]  # hides tuple.count
    view: str
    moment: Moment


class EventMark(NamedTuple):
    """An event with a sign of its own, and words below it if there is room for them."""

    lane: int
    moment: Moment
    sign: str
    tip: str
    words: tuple[str, ...] = ()


class Strike(NamedTuple):
    """A fault in the harness's words; `lanes` are those that it names, none for the whole network."""

    time_us: int
    text: str
    kind: str
    lanes: tuple[int, ...]


class PausedSpan(NamedTuple):
    lane: int
    start_us: int
    end_us: int


class DrawnLink(NamedTuple):
    """From one node's moment to another's, in a layer that a reader may switch on: `token` or `dag`."""

    layer: str
    lane: int
    start: Moment
    to_lane: int
    end: Moment
    tip: str


class WitnessMark(NamedTuple):
    """An event that shows a violation; `number` is its place in a list beside the picture."""

    lane: int
    moment: Moment
    text: str
    number: str = ""


class Picture(NamedTuple):
    lanes: tuple[str, ...]
    end_us: int
    start_us: int = 0
    title: str = ""
    """Without one there is no heading and no legend: the picture is part of a page that has its own."""
    facts: tuple[str, ...] = ()
    width: float = 0.0
    """The width that the page offers, which many changes of view may exceed; without it, the picture is as wide as it must be."""
    spaced: bool = False
    """Each event gets room of its own and may have words: for a few events whose order matters more than their distance."""
    lives: tuple[LifeLine, ...] = ()
    bands: tuple[Band, ...] = ()
    sendings: tuple[DrawnSending, ...] = ()
    arrivals: tuple[DrawnDelivery, ...] = ()
    marks: tuple[EventMark, ...] = ()
    strikes: tuple[Strike, ...] = ()
    pauses: tuple[PausedSpan, ...] = ()
    witnesses: tuple[WitnessMark, ...] = ()
    links: tuple[DrawnLink, ...] = ()
    layers: tuple[str, ...] = ()
    """The layers of links that are shown at first; a bare drawing shows only these."""


# --- scale ------------------------------------------------------------------------------------------------------------

SILENCE_PX: Final = 48.0
HALVINGS: Final = 50
"""Steps of the search for the stretch: enough for any ratio of doubles that matters here."""
TICK_PX: Final = 84.0
"""Ticks stand no closer: their labels are up to 60 wide."""
STEPS: Final = (1, 2, 5)


class InstantRoom(NamedTuple):
    """The width of an instant, which its steps share."""

    width: float
    steps: int


class Silence(NamedTuple):
    """A stretch of time that was cut short."""

    start_us: int
    end_us: int
    x: float
    width: float


class Scale:
    """From time to x. `busy` are the instants at which something is drawn, and `rooms` those among them that need some width."""

    def __init__(self, busy: Iterable[int], rooms: Mapping[int, InstantRoom], width: float, start_us: int = 0) -> None:
        self._times = sorted({start_us, *busy, *rooms})
        self._rooms = rooms
        gaps = [after - before for before, after in zip(self._times, self._times[1:], strict=False)]
        self._stretch = _stretch(gaps, max(width, 1.0))
        self._x = [0.0]
        self.silences: list[Silence] = []
        for before, gap in zip(self._times, gaps, strict=False):
            self._advance(before, gap)
        self.width = self._x[-1] + self._room(self._times[-1])

    def _room(self, time_us: int) -> float:
        room = self._rooms.get(time_us)
        return 0.0 if room is None else room.width

    def _advance(self, before: int, gap: int) -> None:
        x = self._x[-1] + self._room(before)
        drawn = min(gap * self._stretch, SILENCE_PX)
        if gap * self._stretch > 2 * SILENCE_PX:
            self.silences.append(Silence(before, before + gap, x, drawn))
        self._x.append(x + drawn)

    def x(self, moment: Moment) -> float:
        """Where an event of this moment is drawn."""
        room = self._rooms.get(moment.time_us)
        inside = 0.0 if room is None else room.width * min(1.0, moment.step / room.steps)
        return self.at(moment.time_us) + inside

    def at(self, time_us: int) -> float:
        """The left edge of an instant; instants between two busy ones are interpolated."""
        index = bisect_right(self._times, time_us) - 1
        assert index >= 0, "nothing is drawn before the start of the picture"
        before = self._times[index]
        if time_us == before or index + 1 == len(self._times):
            return self._x[index] + (self._room(before) if time_us > before else 0.0)
        left = self._x[index] + self._room(before)
        share = (time_us - before) / (self._times[index + 1] - before)
        return left + share * (self._x[index + 1] - left)

    def ticks(self) -> Iterator[tuple[int, float]]:
        """Round times, and where silences end, none closer than `TICK_PX` to the one before it."""
        last_x = -TICK_PX
        start_us, step_us = self._times[0], self._tick_us()
        round_times = range(-(-start_us // step_us) * step_us, self._times[-1] + 1, step_us)
        for time_us in sorted({*round_times, *(silence.end_us for silence in self.silences)}):
            x = self.at(time_us)
            if x - last_x >= TICK_PX and not self.is_cut(time_us):
                yield time_us, x
                last_x = x

    def is_cut(self, time_us: int) -> bool:
        """Whether this instant lies inside a silence that was cut short."""
        index = bisect_left(self.silences, time_us, key=lambda silence: silence.end_us)
        return index < len(self.silences) and self.silences[index].start_us < time_us < self.silences[index].end_us

    def _tick_us(self) -> int:
        """The smallest round step that is at least as wide as a tick where time is straight."""
        span_us = self._times[-1] - self._times[0]
        wanted = max(TICK_PX / self._stretch if self._stretch > 0 else float(span_us), span_us / 5_000)
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
    for _ in range(HALVINGS):
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
"""Rows of fault labels; a fault without a place in them keeps its mark and shows its text on hover."""

NAME_MAX: Final = 8
CHARACTER_OF_NAME_PX: Final = 8.0
"""A character of the larger type in which lanes are named."""
NAME_MAX_ALONE: Final = 14
"""Pictures without a heading have no script that keeps short names in sight: theirs may be longer."""
WORDS_MAX: Final = 42
WIDTH_MIN: Final = 1_260.0
"""The width that the legend needs."""
WIDTH_BASE: Final = 900.0
INSTANT_PX: Final = 5.0
WIDTH_MAX: Final = 9_000.0
CHANGE_PX: Final = 3.0
"""The least room for an instant at which a view or a fault begins."""
ROOM_PX: Final = 30.0
ROOMS_PX: Final = 190.0
"""About how much room a change of configuration gets in all, node after node."""
ROOMS_SHARE: Final = 0.4
"""The share of these rooms in a picture whose width is given."""
SPACED_PX: Final = (22.0, 44.0)
"""The least and the most room of an event that has its own; within these, the picture becomes `WIDTH_SPACED` wide."""
STEPS_OF_EVENT: Final = 2
"""It stands in the middle of its room."""
WIDTH_SPACED: Final = 1_000.0
GAP_PX: Final = 26.0
"""The average gap between two of them."""
SPACED_LANE_PX: Final = 88.0


class Label(NamedTuple):
    """A fault's words; if there was no place for them, they have no row."""

    strike: Strike
    x: float
    words: str
    word_x: float
    row: int | None


class PictureLayout:
    """The geometry of one picture."""

    def __init__(self, picture: Picture) -> None:
        self.picture = picture
        self.scale = _spaced_scale(picture) if picture.spaced else _scale(picture)
        self.lane_px, self.detailed = (SPACED_LANE_PX, True) if picture.spaced else _lane_px(len(picture.lanes))
        longest = max(map(len, picture.lanes), default=0)
        self.name_max = NAME_MAX if picture.title else NAME_MAX_ALONE
        self.left = LEFT + CHARACTER_OF_NAME_PX * max(0, min(longest, self.name_max) - NAME_MAX)
        self.width = max(WIDTH_MIN if picture.title else 0.0, self.left + self.scale.width + RIGHT)
        self.labels, rows = self._place_faults()
        self.head = 30.0 + FACT_PX * len(picture.facts) if picture.title else 0.0
        self.axis_y = self.head + (LEGEND_PX if picture.title else 0.0) + ROW_PX * rows + AXIS_PX
        self.lanes_top = self.axis_y + 6.0
        self.lanes_end = self.lanes_top + self.lane_px * len(picture.lanes)
        self.height = self.lanes_end + AXIS_PX + 6.0

    def x(self, moment: Moment) -> float:
        return self.left + self.scale.x(moment)

    def at(self, time_us: int) -> float:
        return self.left + self.scale.at(time_us)

    def band(self, lane: int) -> tuple[float, float]:
        """Top and height of a lane's bands."""
        return self.lanes_top + lane * self.lane_px + 2.0, self.lane_px - 4.0

    def line_y(self, lane: int) -> float:
        """Where a lane's life runs: below the words of its views, above those of its events."""
        top, height = self.band(lane)
        return top + height * (0.55 if self.picture.spaced else 0.72 if self.detailed else 0.6)

    def _place_faults(self) -> tuple[list[Label], int]:
        rows = LabelRows(ROWS_MAX, self.scale.width)
        labels = []
        for strike in self.picture.strikes:
            x = self.scale.at(strike.time_us)
            words = shortened(strike.text, WORDS_MAX)
            place = rows.place(x, width_of(words) + 4.0)
            row, word_x = (None, x) if place is None else place
            labels.append(Label(strike, self.left + x, words, self.left + word_x, row))
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
    """Time as straight as it can be: only changes get extra room."""
    changes = {band.start.time_us for band in picture.bands} | {strike.time_us for strike in picture.strikes}
    double = {band.start.time_us for band in picture.bands if band.start.step == Step.AFTER}
    room_px = min(ROOM_PX, max(4.0, ROOMS_PX / max(1, len(picture.lanes))))
    if picture.width:
        room_px = min(room_px, max(CHANGE_PX, picture.width * ROOMS_SHARE / max(1, len(double))))
    single_room, double_room = InstantRoom(CHANGE_PX, Step.AFTER), InstantRoom(room_px, Step.AFTER)
    rooms = {time_us: double_room if time_us in double else single_room for time_us in sorted(changes)}
    busy = {moment.time_us for moment in _moments(picture)} | {life.end_us for life in picture.lives} | {picture.end_us}
    width = min(WIDTH_MAX, WIDTH_BASE + INSTANT_PX * len(busy | changes))
    if picture.width:
        width = picture.width - LEFT - RIGHT - sum(room.width for room in rooms.values())
    return Scale(busy, rooms, width, picture.start_us)


def _spaced_scale(picture: Picture) -> Scale:
    """Every event gets room, beside those of its node at the same instant: their steps are 1, 3, 5."""
    steps: dict[int, int] = {}
    for moment in _moments(picture):
        steps[moment.time_us] = max(steps.get(moment.time_us, 0), moment.step + 1)
    low, high = SPACED_PX
    events = sum(steps.values()) / STEPS_OF_EVENT
    event_px = min(high, max(low, (WIDTH_SPACED - GAP_PX * len(steps)) / max(1.0, events)))
    rooms = {time_us: InstantRoom(event_px * count / STEPS_OF_EVENT, count) for time_us, count in steps.items()}
    return Scale((picture.end_us,), rooms, GAP_PX * len(rooms), picture.start_us)


def _moments(picture: Picture) -> Iterator[Moment]:
    """The moments of everything that happens at one; a band is not an event, only its view's beginning may be."""
    for events in (picture.sendings, picture.arrivals, picture.marks, picture.witnesses):
        yield from (event.moment for event in events)


# --- bundles ----------------------------------------------------------------------------------------------------------

LINES_MAX: Final = 900
WINDOW_FIRST_PX: Final = 4.0
WINDOW_LAST_PX: Final = 130.0
"""The widest window of a bundle; beyond it the budget of lines gives way."""

Position = Callable[[Moment], float]


class Landing(NamedTuple):
    """Where a bundle arrives: at a node in a view."""

    lane: int
    node: str
    view: str
    moment: Moment
    count: int  # type: ignore[assignment]  # hides tuple.count


@dataclass(slots=True)
class Bundle:
    """Messages drawn as one, and where they were delivered."""

    first: DrawnSending
    count: int = 0
    runs: list[tuple[str, int, int]] = field(default_factory=list)
    landings: dict[tuple[str, str], Landing] = field(default_factory=dict)

    def add(self, sending: DrawnSending, arrivals: Iterable[DrawnDelivery]) -> None:
        self.count += sending.count
        self.runs.append((sending.process, sending.first, sending.count))
        for arrival in arrivals:
            self._land(arrival)

    def _land(self, arrival: DrawnDelivery) -> None:
        key = (arrival.node, arrival.view)
        known = self.landings.get(key)
        count = arrival.count + (known.count if known is not None else 0)
        moment = min(arrival.moment, known.moment) if known is not None else arrival.moment
        self.landings[key] = Landing(arrival.lane, arrival.node, arrival.view, moment, count)

    @property
    def elsewhere(self) -> list[Landing]:
        """Deliveries in other lanes than the sender's: these are lines; a delivery at home is a dot."""
        return [landing for landing in self.landings.values() if landing.lane != self.first.lane]


def bundles(sendings: Sequence[DrawnSending], arrivals: Sequence[DrawnDelivery], position: Position) -> list[Bundle]:
    """The finest bundling whose lines fit the budget."""
    ordered = sorted(sendings, key=lambda sending: (sending.node, sending.moment, sending.process, sending.first))
    found = _deliveries(ordered, arrivals)
    window = WINDOW_FIRST_PX
    while True:
        drawn = _bundled(ordered, found, position, window)
        if window > WINDOW_LAST_PX or sum(len(bundle.elsewhere) for bundle in drawn) <= LINES_MAX:
            return drawn
        window *= 1.6


def _bundled(
    ordered: Sequence[DrawnSending], found: Sequence[list[DrawnDelivery]], position: Position, window: float
) -> list[Bundle]:
    drawn: list[Bundle] = []
    open_bundles: dict[tuple[str, str, str, bool], Bundle] = {}
    for sending, arrivals in zip(ordered, found, strict=True):
        key = (sending.node, sending.kind, sending.view, sending.faint)
        bundle = open_bundles.get(key)
        if bundle is None or position(sending.moment) - position(bundle.first.moment) > window:
            bundle = open_bundles[key] = Bundle(sending)
            drawn.append(bundle)
        bundle.add(sending, arrivals)
    return drawn


def _deliveries(ordered: Sequence[DrawnSending], arrivals: Sequence[DrawnDelivery]) -> list[list[DrawnDelivery]]:
    """The deliveries of each sending; a delivered run may cover several sendings, and belongs to each."""
    by_process: dict[str, list[tuple[int, int]]] = {}
    for index, sending in enumerate(ordered):
        by_process.setdefault(sending.process, []).append((sending.first, index))
    for starts in by_process.values():
        starts.sort()
    found: list[list[DrawnDelivery]] = [[] for _ in ordered]
    for arrival in arrivals:
        for index, piece in _pieces(ordered, by_process.get(arrival.process, []), arrival):
            found[index].append(piece)
    return found


def _pieces(
    ordered: Sequence[DrawnSending], starts: Sequence[tuple[int, int]], arrival: DrawnDelivery
) -> Iterator[tuple[int, DrawnDelivery]]:
    """The delivered run cut where sendings begin."""
    last = arrival.first + arrival.count - 1
    at = max(0, bisect_right(starts, (arrival.first, len(ordered))) - 1)
    for start, index in starts[at:]:
        if start > last:
            return
        low, high = max(start, arrival.first), min(last, start + ordered[index].count - 1)
        if low <= high:
            yield index, arrival._replace(first=low, count=high - low + 1)
