"""Streams: independent by concern, equal by seed, within their bounds."""

from hypothesis import given
from hypothesis import strategies as st

from transis.sim.streams import Streams


def test_one_more_draw_does_not_shift_another_concern() -> None:
    calm, busy = Streams(7), Streams(7)
    busy["network"].random()
    assert [calm["faults"].random() for _ in range(5)] == [busy["faults"].random() for _ in range(5)]


def test_concerns_and_seeds_differ() -> None:
    first = Streams(7)["network"].random()
    assert first != Streams(7)["faults"].random()
    assert first != Streams(8)["network"].random()


def test_the_sequence_is_the_same_on_every_machine() -> None:
    stream = Streams(1)["golden"]
    assert [stream.below(1000), stream.bits64()] == [317, 17895204660179789487]


@given(st.integers(), st.integers(1, 1000), st.integers(0, 100_000))
def test_stretched_stays_within_its_bounds(seed: int, low: int, extra: int) -> None:
    drawn = Streams(seed)["x"].stretched(low, low + extra)
    assert low <= drawn <= low + extra


@given(st.integers(), st.integers(-50, 50), st.integers(0, 50))
def test_between_reaches_both_ends_only(seed: int, low: int, extra: int) -> None:
    stream = Streams(seed)["x"]
    assert all(low <= stream.between(low, low + extra) <= low + extra for _ in range(20))


def test_some_gives_different_options() -> None:
    drawn = Streams(3)["x"].some("abcdef", 4)
    assert len(set(drawn)) == 4
    assert set(drawn) <= set("abcdef")


def test_chance_is_never_at_zero_and_always_at_a_thousand() -> None:
    stream = Streams(3)["x"]
    assert not any(stream.chance(0) for _ in range(200))
    assert all(stream.chance(1000) for _ in range(200))
