"""The stopwatch of the benches counts what a process does inside of what is watched, and nothing else."""

from __future__ import annotations

import time

import pytest

from transis.bench.workers import Stopwatch


def burn(seconds: float) -> None:
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


class Work:
    def watched(self, seconds: float) -> str:
        burn(seconds)
        return "done"

    def unwatched(self, seconds: float) -> None:
        burn(seconds)

    def failing(self, seconds: float) -> None:
        burn(seconds)
        raise ValueError("this was expected")


def test_time_inside_and_time_of_all() -> None:
    stopwatch, work = Stopwatch(), Work()
    stopwatch.watch(Work, "watched")
    began_inside, began_all = stopwatch.read()
    assert began_inside == 0
    assert work.watched(0.02) == "done"
    inside, _ = stopwatch.read()
    assert inside >= 0.02
    work.unwatched(0.02)
    after, all_s = stopwatch.read()
    assert after == inside
    assert all_s - began_all >= 0.04


def test_what_raises_was_work_too() -> None:
    stopwatch = Stopwatch()
    stopwatch.watch(Work, "failing")
    with pytest.raises(ValueError, match="expected"):
        Work().failing(0.02)
    assert stopwatch.read()[0] >= 0.02
