"""Prefix digests: two sums that say which messages a node delivered in a configuration, and in which order.

The i-th ordered message of a configuration, from 0, has an id = h(process, service) + counter * K. A(n) is the sum of the first n
ids, B(n) the sum of (i + 1) * id, both modulo a prime. Two nodes with equal (configuration, n) must have equal sums.

1. However deliveries are cut into runs, the sums are the same, for a whole stretch of one process is added in closed form. A
   chain of hashes would have to see equal cuts. A swap of two messages at i and j changes B by (i - j) times the difference of
   their ids, which is never 0.
2. Told is at multiples of a power of two that follows the traffic: whatever two nodes choose, they share every multiple of the
   larger one. It is about one digest a second at any rate, and every message when there are few.
3. These are for bugs, not for enemies: a node that lies can lie in any digest.
"""

from __future__ import annotations

from hashlib import blake2b
from struct import Struct
from typing import Final, NamedTuple

from transis.types.ids import Service

PRIME: Final = (1 << 61) - 1
"""A prime of Mersenne: sums fit 64 bits with a sign."""
FACTOR: Final = 0x1F3D5B79A2C4E687
"""K: what the next counter of a process adds to an id."""
STEP_MAX: Final = 1 << 20
TOO_OFTEN_US: Final = 500_000
"""Told again so soon, the step grows."""
TOO_SELDOM_US: Final = 2_000_000
"""Told nothing for so long, it becomes smaller."""

_SENDER: Final = Struct("<QIB")


class Told(NamedTuple):
    """The sums of the first `count` messages of a configuration."""

    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody wants of sums
    a: int
    b: int


EMPTY: Final = Told(0, 0, 0)


def head_of(boot: int, number: int, service: Service) -> int:
    """h: what all messages of a process and a service have in common; 60 bits."""
    digest = blake2b(_SENDER.pack(boot, number, service), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 4


def after(before: Told, head: int, first: int, count: int) -> Told:
    """The sums with `count` more messages of one process, whose counters begin with `first`."""
    at, a, b = before
    identity, above = head + first * FACTOR, at + 1
    ones = count * (count - 1) // 2
    squares = ones * (2 * count - 1) // 3
    more_a = count * identity + FACTOR * ones
    more_b = above * more_a + identity * ones + FACTOR * squares
    return Told(at + count, (a + more_a) % PRIME, (b + more_b) % PRIME)


class Prefixes:
    """The sums of the configuration in force."""

    __slots__ = ("_last", "_sums", "_told", "_told_us", "step")

    def __init__(self) -> None:
        self._sums = self._last = EMPTY
        self._told = 0
        self._told_us = 0
        self.step = 1

    def add(self, head: int, first: int, count: int) -> list[Told]:
        """A stretch of messages; the positions in it that are to be told. They are two at most, however long it is."""
        before = self._sums
        self._sums = after(before, head, first, count)
        every = max(self.step, 1 << (count.bit_length() - 1)) if count else self.step
        start = before.count // every * every + every
        told = [after(before, head, first, place - before.count) for place in range(start, self._sums.count + 1, every)]
        if told:
            self._told += len(told)
            self._last = told[-1]
        return told

    def end(self) -> Told:
        """The configuration is over: its last sums. What comes now belongs to the next one."""
        sums, self._sums, self._last = self._sums, EMPTY, EMPTY
        return sums

    def pace(self, now_us: int) -> list[Told]:
        """Called now and then with the time: the step follows how often something was told since.

        After a while without, where everything rests now is told: the others rest there too.
        """
        told, self._told = self._told, 0
        if told:
            if now_us - self._told_us < TOO_OFTEN_US:
                self.step = min(STEP_MAX, self.step << told.bit_length())
            self._told_us = now_us
        elif now_us - self._told_us > TOO_SELDOM_US:
            self.step = max(1, self.step >> 1)
            self._told_us = now_us
            if self._sums != self._last:
                self._last = self._sums
                return [self._sums]
        return []
