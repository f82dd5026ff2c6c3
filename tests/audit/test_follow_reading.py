"""How far a follower has read: files come in any order, are read once, and what is remembered of them stays small."""

from __future__ import annotations

from random import Random

import pytest

from transis.audit.follow.source import GAPS_MAX, LIVES_MAX, Progress, Sealed, sealed_of

LIFE = "life-ann-1-00000000000000a7"


def numbers(*found: int) -> list[Sealed]:
    return [Sealed(LIFE, number) for number in found]


def progress(*found: int) -> Progress:
    one = Progress({})
    one.add(numbers(*found))
    return one


@pytest.mark.parametrize(
    ("name", "file"),
    [
        (f"{LIFE}-000017.digests", Sealed(LIFE, 17)),
        ("life-%C3%A4-b-1-00000000000000a7-1234567.digests", Sealed("life-%C3%A4-b-1-00000000000000a7", 1234567)),
        (f"{LIFE}-000017.digests.open", None),
        (f"{LIFE}-000017.film", None),
        (f".{LIFE}-000017.digests", None),
        (f"{LIFE}-17.digests", None),
        (f"{LIFE}-{'9' * 40}.digests", None),
    ],
)
def test_a_file_is_known_by_its_name(name: str, file: Sealed | None) -> None:
    assert sealed_of(name) == file


def test_a_day_is_one_range_in_whatever_order_it_came() -> None:
    day = list(range(1, 8641))
    Random(1).shuffle(day)
    read = Progress({})
    for at in range(0, len(day), 1000):
        read = Progress(read.offset())
        assert not any(read.has(file) for file in numbers(*day[at : at + 1000]))
        read.add(numbers(*day[at : at + 1000]))
        assert all(read.has(file) for file in numbers(*day[: at + 1000]))
        assert not any(read.has(file) for file in numbers(*day[at + 1000 :]))
    assert read.offset() == {LIFE: "1-8640"}


def test_what_came_late_closes_its_gap_and_nothing_else() -> None:
    read = progress(5, 6, 9)
    assert read.offset() == {LIFE: "5-6 9"}
    assert not read.has(Sealed(LIFE, 8))
    read.add(numbers(7, 3))
    assert read.offset() == {LIFE: "3 5-7 9"}
    read.add([Sealed("life-bob-1-00000000000000a8", 1), *numbers(8, 4)])
    assert read.offset() == {LIFE: "3-9", "life-bob-1-00000000000000a8": "1"}


def test_gaps_are_bounded_and_the_newest_stay_open() -> None:
    read = progress(*range(1, 2 * (GAPS_MAX + 50), 2))
    (text,) = read.offset().values()
    assert len(text.split()) == GAPS_MAX + 1
    assert read.has(Sealed(LIFE, 2)), "given up"
    assert not read.has(Sealed(LIFE, 2 * (GAPS_MAX + 48)))


def test_lives_are_bounded_by_those_that_have_files() -> None:
    read = Progress({})
    lives = [f"life-n-{number}-00000000000000a7" for number in range(LIVES_MAX)]
    read.add(Sealed(life, 1) for life in lives)
    read.forget_all_but({lives[7]})
    assert len(read.offset()) == LIVES_MAX
    read.add(numbers(1))
    read.forget_all_but({lives[7], LIFE})
    assert read.offset() == {lives[7]: "1", LIFE: "1"}
