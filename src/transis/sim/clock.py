"""A host's clock: it starts somewhere else than its neighbours' and runs a little fast or slow.

Integers only, so that a time goes there and back the same way on every machine. The clock belongs to the host and
survives its nodes: it goes on while a node is paused or dead (CLOCK_BOOTTIME).
"""

from __future__ import annotations

from typing import NamedTuple

MILLION = 1_000_000


class Clock(NamedTuple):
    """local = virtual + offset + drift; `drift_ppm` is far above -1,000,000, so the clock never runs backwards."""

    offset_us: int = 0
    drift_ppm: int = 0

    def local(self, virtual: int) -> int:
        return virtual + self.offset_us + virtual * self.drift_ppm // MILLION

    def virtual(self, local: int) -> int:
        """The first virtual time at which this clock shows at least `local`."""
        guess = (local - self.offset_us) * MILLION // (MILLION + self.drift_ppm)
        while self.local(guess) >= local:
            guess -= 1
        while self.local(guess) < local:
            guess += 1
        return guess
