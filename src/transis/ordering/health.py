"""How well this node keeps time itself: a sick observer suspects others more slowly (Lifeguard; W17)."""

from __future__ import annotations

from typing import Final

HEALTH_MAX: Final = 7
CURE: Final = 64
"""So many things in a row that go well take one from the score."""


class Health:
    """`score` 0 is well. It rises when this node's own timers fire late: a pause, a garbage collection, a starved machine."""

    def __init__(self) -> None:
        self.score = 0
        self._good = 0

    def fired_late(self, late_us: int, limit_us: int) -> bool:
        """True if a timer fired so late that this node, not its peers, was away."""
        if late_us < limit_us:
            return False
        self.score = min(HEALTH_MAX, self.score + 1)
        self._good = 0
        return True

    def went_well(self) -> None:
        """Something that needs a healthy node happened in time, such as a rotation of the token."""
        self._good += 1
        if self._good >= CURE and self.score:
            self.score -= 1
            self._good = 0
