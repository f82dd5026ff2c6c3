"""Randomness from one seed, split into streams by concern.

1. Every draw of a run comes from a stream named after its concern (network, faults, workload, ...), so that one more
   draw in one place does not shift what another place sees.
2. Draws are built on `random()` alone: its sequence is the same on every Python version, process and hash seed.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class RandomStream(random.Random):
    """One concern's draws, in integers: rates are permille, times microseconds."""

    def below(self, end: int) -> int:
        """Uniform in 0 .. end - 1."""
        assert end > 0
        return int(self.random() * end)

    def between(self, low: int, high: int) -> int:
        """Uniform in low .. high, both included."""
        assert low <= high
        return low + int(self.random() * (high - low + 1))

    def chance(self, permille: int) -> bool:
        return self.random() * 1000 < permille

    def pick(self, options: Sequence[T]) -> T:
        return options[self.below(len(options))]

    def stretched(self, low: int, high: int) -> int:
        """From low to high with every doubling equally likely: times that are short as often as they are long."""
        assert 0 < low <= high
        doublings = (high // low).bit_length()
        start = low << self.below(doublings)
        return min(high, self.between(start, 2 * start))

    def some(self, options: Sequence[T], count: int) -> tuple[T, ...]:
        """`count` different options, in a drawn order."""
        assert count <= len(options)
        rest = list(options)
        return tuple(rest.pop(self.below(len(rest))) for _ in range(count))

    def bits64(self) -> int:
        return (self.below(1 << 32) << 32) | self.below(1 << 32)


class Streams:
    """The streams of one seed, made when first asked for."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._made: dict[str, RandomStream] = {}

    def __getitem__(self, concern: str) -> RandomStream:
        stream = self._made.get(concern)
        if stream is None:
            stream = self._made[concern] = RandomStream(f"{self._seed}:{concern}")
        return stream
