"""Time to x, and words into rows."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from transis.audit.draw.layout import (
    SILENCE_PX,
    TICK_PX,
    EventMark,
    InstantRoom,
    LifeLine,
    Moment,
    Picture,
    PictureLayout,
    Scale,
    Step,
)
from transis.audit.draw.svg import GAP_PX, LabelRows, clock, fitting, shortened, width_of

ROOM = InstantRoom(20.0, Step.AFTER)
TIMES = st.lists(st.integers(0, 10_000_000), min_size=1, max_size=60)


@given(TIMES, TIMES, st.lists(st.integers(0, 10_000_000), max_size=30))
def test_time_never_runs_backwards(busy: list[int], rooms: list[int], asked: list[int]) -> None:
    scale = Scale(busy, dict.fromkeys(rooms, ROOM), 800.0)
    moments = sorted(Moment(time_us, step) for time_us in {*busy, *rooms, *asked} for step in Step)
    places = [scale.x(moment) for moment in moments]
    assert all(before <= after + 1e-6 for before, after in pairwise(places))
    assert places[0] >= 0
    assert max(scale.x(Moment(time_us, Step.AFTER)) for time_us in {*busy, *rooms}) <= scale.width + 1e-6


@given(TIMES)
def test_an_instant_with_a_room_is_that_wide(busy: list[int]) -> None:
    scale = Scale(busy, {busy[0]: ROOM}, 800.0)
    assert round(scale.x(Moment(busy[0], Step.AFTER)) - scale.x(Moment(busy[0])), 6) == 20.0


def test_a_long_silence_is_cut_short_and_said() -> None:
    busy = [*range(0, 1_000, 10), 5_000_000]
    scale = Scale(busy, {}, 900.0)
    assert [(silence.start_us, silence.end_us) for silence in scale.silences] == [(990, 5_000_000)]
    assert scale.at(5_000_000) - scale.at(990) <= SILENCE_PX


def test_between_two_cuts_time_is_straight() -> None:
    scale = Scale(range(0, 1_000, 10), {}, 500.0)
    assert round(scale.at(200) - scale.at(100), 3) == round(scale.at(800) - scale.at(700), 3)


@given(TIMES)
def test_ticks_do_not_touch(busy: list[int]) -> None:
    places = [x for _, x in Scale(busy, {}, 800.0).ticks()]
    assert places[0] == 0
    assert all(after - before >= TICK_PX for before, after in pairwise(places))


def test_a_picture_may_begin_late() -> None:
    scale = Scale([5_000_100, 5_000_300], {}, 800.0, 5_000_000)
    assert scale.at(5_000_000) == 0.0
    assert next(scale.ticks())[0] == 5_000_000
    assert scale.silences == []


@given(st.lists(st.tuples(st.integers(0, 1_000), st.integers(0, 4)), min_size=1, max_size=40, unique=True))
def test_in_a_spaced_picture_no_two_events_of_a_node_touch(places: list[tuple[int, int]]) -> None:
    moments = [Moment(time_us, 2 * step + 1) for time_us, step in places]
    marks = tuple(EventMark(0, moment, "deliver", "") for moment in moments)
    lives = (LifeLine(0, 0, 1_001),)
    layout = PictureLayout(Picture(lanes=("a",), end_us=1_001, spaced=True, lives=lives, marks=marks))
    drawn = [layout.x(moment) for moment in sorted(moments)]
    assert all(after - before >= 21.9 for before, after in pairwise(drawn))
    assert layout.left < drawn[0]
    assert drawn[-1] < layout.at(1_001) <= layout.width


def test_times_are_written_as_people_write_them() -> None:
    shown = [clock(time_us) for time_us in (0, 350, 1_000, 12_500, 999_999, 1_250_000)]
    assert shown == ["0", "350 µs", "1 ms", "12.5 ms", "999.999 ms", "1.25 s"]


@given(st.lists(st.tuples(st.floats(0, 500), st.floats(1, 200)), max_size=40))
def test_labels_of_a_row_do_not_overlap(wanted: list[tuple[float, float]]) -> None:
    rows = LabelRows(3, 600.0)
    taken: dict[int, float] = {}
    for x, width in sorted(wanted):
        place = rows.place(x, width)
        if place is not None:
            row, left = place
            assert left >= taken.get(row, 0.0)
            assert left + width <= 600.0 + 1e-6
            taken[row] = left + width + GAP_PX
    assert rows.used == len(taken)


def test_the_longest_wording_that_fits_is_chosen() -> None:
    wordings = ("R8{a,b,c}", "R8 3", "R8")
    assert fitting(wordings, width_of("R8{a,b,c}")) == "R8{a,b,c}"
    assert fitting(wordings, width_of("R8")) == "R8"
    assert fitting(wordings, 1.0) == ""
    assert shortened("partition a,b | c", 10) == "partition…"
