"""The clock of a node: microseconds that never go back and that count while the machine sleeps.

CLOCK_BOOTTIME, so that every pause is seen. Where the system has no such clock (macOS), CLOCK_MONOTONIC; a sleep of the machine
is then noticed by the others first.

A node that did not run cannot know whom it would have heard. So the time of a pause (SIGSTOP, a closed lid, a machine that does
too much) is not given to its timers: they go on from where they were, and its suspicion of others is stretched by
its own state of health.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

_CLOCK: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

PAUSE_US: Final = 20_000
"""Waking so much later than asked for is a pause; less is what schedulers and event loops do."""


def boottime_us() -> int:
    return time.clock_gettime_ns(_CLOCK) // 1_000


class NodeClock:
    """1. Never goes back, and never runs faster than the clock beneath.
    2. A pause counts as half of the wait that it fell into, so that pauses without end still let timers come due.
    3. Only who attends to the node, sockets first, may let its timers come due. Who passes by in between sees the time stand
       still at the deadline: an application that sends for long in one go would otherwise walk its own node past all of them.
    """

    def __init__(self, beneath_us: Callable[[], int] = boottime_us) -> None:
        self._beneath_us = beneath_us
        self._missed_us = 0
        self._latest = beneath_us()
        self.pauses = 0
        self.longest_pause_us = 0

    def now(self) -> int:
        self._latest = self._beneath_us() - self._missed_us
        return self._latest

    def passing_by(self, deadline: int) -> int:
        """The time for who has something for the node, which was not attended to."""
        self._latest = max(self._latest, min(self._beneath_us() - self._missed_us, deadline))
        return self._latest

    def resume(self, deadline: int) -> None:
        """Back at work, woken by whatever. Much later than asked for: then the node was paused since it last saw the time."""
        now = self._beneath_us() - self._missed_us
        due = max(deadline, self._latest)
        if now - due <= PAUSE_US:
            return
        pause_us = now - self._latest - (due - self._latest) // 2
        self._missed_us += pause_us
        self.pauses += 1
        self.longest_pause_us = max(self.longest_pause_us, pause_us)
