"""The network sliding window (lansis-1992 3.1): how much may be on its way, all senders together, and how fast.

Pure integer arithmetic, in datagrams and microseconds. What is not stable is in somebody's way: the more of it there is, the
slower everybody sends; when the window is full, everybody sends from its own quota only.

Deviations. A quota for each member, because two saturated ones would keep a third at zero for ever (W4), and an equal share
for each that sends, because all see the same free room and would all take it at once. Nothing is sent while only crumbs are
free: bursts cost by the piece. Bytes are not counted apart: no datagram is larger than the configured size, so datagrams bound
them. Times are in units of a part of `nack_us`: on a healthy network acknowledgements come well before anybody misses
anything. Of the configured window only as much is used as the slowest member works off well before others miss its word (P8b).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple

from transis.types.config import Pulse, Window
from transis.types.limits import BURST_DATAGRAMS_MAX

CALM: Final = 4
"""No burst is larger than a quarter of the window: others may start at the same moment. While more than a quarter is free, nobody
waits between bursts: its share holds a sender back, and to sleep with a part of the share unsent is only to send it later."""
PRESSURE_MAX: Final = 64
THIN: Final = 4
"""A burst of less than a quarter of what it might have is thin."""
STREAM: Final = 8
"""With this many datagrams on their way a member is not an occasional speaker."""
UNITS_IN_NACK: Final = 8
CRUMBS: Final = 2
"""A burst has at least this part of the quota, or all that waits."""
BEGINNING: Final = 16
FEW: Final = 4
"""A view begins with this part of the window, or with this many datagrams of each member: nobody knows yet how fast its slowest
member is. It never has fewer than these: every burst costs everybody an answer, so thin ones help nobody."""
QUICK: Final = 4
"""What is everywhere in this part of the longest time is quick: the window doubles."""
STEP: Final = 8
"""By such a part it grows when the slowest member is not far from its limit."""
DROP_MAX: Final = 4
"""It becomes smaller by no more than this at a time: one late word says little."""


class WindowLoad(NamedTuple):
    """What is on its way, as a member knows it when it wants to send."""

    members: int
    unstable: int
    """Datagrams of everybody that are not known to be everywhere, those that are only named too."""
    own_unstable: int
    active: int
    """Members that have something unstable, the asking one included."""


def unit_us(pulse: Pulse) -> int:
    """The longest wait after a burst while nothing is lost, and the first after a loss."""
    return max(1, pulse.nack_us // UNITS_IN_NACK)


def quota(window: Window, members: int) -> int:
    """What a member may have unstable however full the window is."""
    return max(1, window.window // (2 * members))


def permit(window: Window, load: WindowLoad) -> int:
    """Datagrams that the next burst may have; 0 means wait for stability."""
    if load.unstable >= window.gap_max:
        return 0 if load.own_unstable else 1
    own = quota(window, load.members)
    share = min(window.window // load.active, load.own_unstable + window.window - load.unstable)
    largest = min(BURST_DATAGRAMS_MAX, window.visit_max, max(own, window.window // CALM))
    return max(0, min(largest, max(own, share) - load.own_unstable))


def is_crumb(window: Window, load: WindowLoad, allowed: int) -> bool:
    """Is it better to wait for more room? Never with nothing on its way: nothing would come to wake the sender."""
    least = min(quota(window, load.members) // CRUMBS, BURST_DATAGRAMS_MAX, window.visit_max)
    return load.own_unstable > 0 and allowed < least


def gather_us(pulse: Pulse, load: WindowLoad, queued_bytes: int, burst_bytes: int, passed_us: int) -> int:
    """For how long after a burst to gather the next one. Thin bursts cost everybody as much as full ones; so a sender with
    much on its way waits a little, and one that sees a good part of a burst come together in time waits for it. Occasional
    speakers never do.
    """
    if queued_bytes >= burst_bytes or not load.own_unstable:
        return 0
    if THIN * queued_bytes * pulse.nack_us >= burst_bytes * max(passed_us, unit_us(pulse)):
        return pulse.nack_us
    return unit_us(pulse) if load.own_unstable >= STREAM else 0


def delay_us(window: Window, load: WindowLoad, longest_us: int) -> int:
    """How long to wait after a burst: nothing while the window is calm, then growing with the square to the longest."""
    calm = window.window - window.window // CALM
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


class SendRate:
    """How much of the window the slowest member keeps up with.

    While much of it is used, one burst of mine at a time is followed until it is everywhere. If that takes so long that a member
    that is busy with the data could be missed, less may be on its way; else more.
    """

    def __init__(self, window: Window, members: int, longest_us: int) -> None:
        self._most = window
        self._least = min(window.window, FEW * members)
        self._longest_us = longest_us
        self._followed: tuple[int, int] | None = None
        """The last counter of a burst of mine, and when it was sent."""
        self.window = replace(window, window=max(self._least, window.window // BEGINNING))

    def sent(self, counter: int, now: int, load: WindowLoad) -> None:
        """What is on its way with it. A burst that finds nothing before it says nothing about a queue; but those that begin at
        the same moment do not see each other's, and each that uses its share stands for all of them."""
        together = load.own_unstable * load.active if load.own_unstable >= FEW else 0
        if self._followed is None and 2 * max(load.unstable, together) >= self.window.window:
            self._followed = (counter, now)

    def stable(self, upto: int, now: int) -> None:
        """Mine are everywhere up to here."""
        if self._followed is None or upto < self._followed[0]:
            return
        used, waited_us = self.window.window, now - self._followed[1]
        self._followed = None
        if waited_us > self._longest_us:
            self._use(max(used * self._longest_us // waited_us, used // DROP_MAX))
        else:
            self._use(2 * used if QUICK * waited_us <= self._longest_us else used + used // STEP + 1)

    def _use(self, datagrams: int) -> None:
        wanted = max(self._least, min(datagrams, self._most.window))
        if wanted != self.window.window:
            self.window = replace(self._most, window=wanted)
