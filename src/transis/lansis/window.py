"""The network sliding window (lansis-1992 3.1): how much may be on its way, all senders together, and how fast.

Pure integer arithmetic, in datagrams and microseconds. What is not stable is in somebody's way: the more of it there
is, the slower everybody sends, and when the window is full, nobody sends but from its quota.

Deviations. A quota for each member, because two saturated ones would keep a third at zero for ever (W4), and an equal share for
each that sends, because all see the same free room and would all take it at once. Nothing is sent while only crumbs are
free: bursts cost by the piece. Bytes are not counted apart: no datagram is larger than the configured one, so datagrams bound
them. Times are in units of `prompt_us`, in which acknowledgements come.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from transis.model.config import Window
from transis.model.limits import BURST_DATAGRAMS_MAX

CALM: Final = 4
"""Up to a quarter of the window nobody waits between bursts, and no burst is larger: others may start at the same moment."""
PRESSURE_MAX: Final = 64
CRUMBS: Final = 2
"""A burst has at least this part of the quota, or all that waits."""


class Load(NamedTuple):
    """What is on its way, as a member knows it when it wants to send."""

    members: int
    unstable: int
    """Datagrams of everybody that are not known to be everywhere, those that are only named too."""
    own_unstable: int
    active: int
    """Members that have something unstable, the asking one included."""


def quota(window: Window, members: int) -> int:
    """What a member may have unstable however full the window is."""
    return max(1, window.window // (2 * members))


def permit(window: Window, load: Load) -> int:
    """Datagrams that the next burst may have; 0 means wait for stability."""
    if load.unstable >= window.gap_max:
        return 0 if load.own_unstable else 1
    own = quota(window, load.members)
    share = min(window.window // load.active, load.own_unstable + window.window - load.unstable)
    largest = min(BURST_DATAGRAMS_MAX, window.visit_max, max(own, window.window // CALM))
    return max(0, min(largest, max(own, share) - load.own_unstable))


def is_crumb(window: Window, load: Load, allowed: int) -> bool:
    """Is it better to wait for more room? Never for who has nothing on its way: nothing would come to wake it."""
    least = min(quota(window, load.members) // CRUMBS, BURST_DATAGRAMS_MAX, window.visit_max)
    return load.own_unstable > 0 and allowed < least


def delay_us(window: Window, load: Load, longest_us: int) -> int:
    """How long to wait after a burst: nothing while the window is calm, then growing with the square to the longest."""
    calm = window.window // CALM
    over = min(load.unstable, window.window) - calm
    if over <= 0:
        return 0
    return longest_us * over * over // (window.window - calm) ** 2


class Pressure:
    """Slower when others ask for what I sent, faster again as my bursts become stable."""

    def __init__(self, unit_us: int) -> None:
        self._unit_us = unit_us
        self._changed_at = 0
        """My last counter when `extra_us` last changed: nothing up to it can show what the change did."""
        self.extra_us = 0

    def lost(self, counter: int, sent: int) -> None:
        """Somebody lacks this datagram of mine. Many notice one loss, but it counts once for all that was on its way."""
        if counter > self._changed_at:
            self.extra_us = min(max(2 * self.extra_us, self._unit_us), PRESSURE_MAX * self._unit_us)
            self._changed_at = sent

    def stable(self, upto: int, sent: int) -> None:
        """Mine are everywhere up to here: halve once for all that was on its way."""
        if self.extra_us and upto >= self._changed_at:
            self.extra_us = self.extra_us // 2 if self.extra_us > self._unit_us else 0
            self._changed_at = sent
