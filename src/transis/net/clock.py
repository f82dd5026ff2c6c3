"""The clock of a node: microseconds that never go back and that count while the machine sleeps.

CLOCK_BOOTTIME, so that a laptop that slept for an hour knows that its ring is long gone. Where the system has no such clock
(macOS), CLOCK_MONOTONIC; a sleep is then noticed by the others first.
"""

from __future__ import annotations

import time
from typing import Final

_CLOCK: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def boottime_us() -> int:
    return time.clock_gettime_ns(_CLOCK) // 1_000
