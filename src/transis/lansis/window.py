"""The network sliding window (lansis-1992 3.1): how much may be on its way, all senders together, and how fast.

Pure integer arithmetic, in datagrams and microseconds. Datagrams that are not stable have still to be received by somebody: the
more there are, the slower everybody sends; when the window is full, each member sends from its own quota only.

Deviations. A quota for each member, because two saturated ones would keep a third at zero forever (W4), and an equal share for
each that sends, because all see the same free room and would all take it at once. Nothing is sent while only crumbs are free,
because each burst has a cost whatever its size. Bytes are not counted: no datagram is larger than the configured size, so
datagrams bound them. Times are fractions of `nack_us`: on a healthy network acknowledgements come well before anybody misses
anything. Only so much of the configured window is used as the slowest member can acknowledge well before it would count as silent
(P8b).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple

from transis.types.config import Pulse, Window
from transis.types.limits import BURST_DATAGRAMS_MAX

CALM: Final = 4
"""No burst is larger than a quarter of the window, because others may start at the same moment. While more than a quarter is
free, nobody waits between bursts: a sender is limited by its share, and waiting would only send the rest of the share later."""
PRESSURE_MAX: Final = 64
THIN: Final = 4
"""A burst with less than a quarter of what it could hold is thin."""
STREAM: Final = 8
"""With this many datagrams on their way, a member no longer sends only occasionally."""
UNITS_IN_NACK: Final = 8
CRUMBS: Final = 2
"""A permit of less than the quota divided by this is a crumb."""
BEGINNING: Final = 16
FEW: Final = 4
"""A view begins with the window divided by BEGINNING, but at least FEW datagrams for each member: nobody knows yet how fast its
slowest member is. It never has fewer than that: every burst costs everybody an answer, so thin ones help nobody."""
QUICK: Final = 4
"""A burst that is stable within the longest time divided by this is quick: the window doubles."""
STEP: Final = 8
"""The window grows by one part in so many when the slowest member is nearer to its limit."""
DROP_MAX: Final = 4
"""The window is never divided by more than this at a time: one late acknowledgement says little."""


class WindowLoad(NamedTuple):
    """What is on its way, as a member knows it when it wants to send."""

    members: int
    unstable: int
    """All members' datagrams that are not known to be stable, including those that are only named."""
    own_unstable: int
    active: int
    """Members that have something unstable, the asking one included."""


def unit_us(pulse: Pulse) -> int:
    """The longest wait after a burst while nothing is lost, and the first after a loss."""
    return max(1, pulse.nack_us // UNITS_IN_NACK)


def quota(window: Window, members: int) -> int:
    """How many unstable datagrams a member may have, however full the window is."""
    return max(1, window.window // (2 * members))


def permit(window: Window, load: WindowLoad) -> int:
    """How many datagrams the next burst may have; 0 means wait for stability."""
    if load.unstable >= window.gap_max:
        return 0 if load.own_unstable else 1
    own = quota(window, load.members)
    share = min(window.window // load.active, load.own_unstable + window.window - load.unstable)
    largest = min(BURST_DATAGRAMS_MAX, window.visit_max, max(own, window.window // CALM))
    return max(0, min(largest, max(own, share) - load.own_unstable))


def is_crumb(window: Window, load: WindowLoad, allowed: int) -> bool:
    """Is it better to wait for more room? Never with nothing on its way: then nothing would wake the sender."""
    least = min(quota(window, load.members) // CRUMBS, BURST_DATAGRAMS_MAX, window.visit_max)
    return load.own_unstable > 0 and allowed < least


def gather_us(pulse: Pulse, load: WindowLoad, queued_bytes: int, burst_bytes: int, passed_us: int) -> int:
    """How long after a burst to collect messages for the next one. Thin bursts cost everybody as much as full ones, so a sender
    with much on its way waits a little, and one whose messages come fast enough to fill a good part of a burst waits for that.
    A member that sends only occasionally never waits.
    """
    if queued_bytes >= burst_bytes or not load.own_unstable:
        return 0
    if THIN * queued_bytes * pulse.nack_us >= burst_bytes * max(passed_us, unit_us(pulse)):
        return pulse.nack_us
    return unit_us(pulse) if load.own_unstable >= STREAM else 0


def delay_us(window: Window, load: WindowLoad, longest_us: int) -> int:
    """How long to wait after a burst: not at all while the window is calm, then growing with the square up to the longest."""
    calm = window.window - window.window // CALM
    over = min(load.unstable, window.window) - calm
    if over <= 0:
        return 0
    return longest_us * over * over // (window.window - calm) ** 2


class Pressure:
    """Makes me send more slowly when others request what I sent, and faster again as my bursts become stable."""

    def __init__(self, unit_us: int) -> None:
        self._unit_us = unit_us
        self._changed_at = 0
        """My last counter when `extra_us` last changed: only later datagrams can show what the change did."""
        self.extra_us = 0

    def lost(self, counter: int, sent: int) -> None:
        """A member lacks this datagram of mine. Many notice one loss, so it counts once for all that was on its way."""
        if counter > self._changed_at:
            self.extra_us = min(max(2 * self.extra_us, self._unit_us), PRESSURE_MAX * self._unit_us)
            self._changed_at = sent

    def stable(self, upto: int, sent: int) -> None:
        """My datagrams are stable up to here: halve once for all that was on its way."""
        if self.extra_us and upto >= self._changed_at:
            self.extra_us = self.extra_us // 2 if self.extra_us > self._unit_us else 0
            self._changed_at = sent


class SendRate:
    """How much of the window the slowest member keeps up with.

    While much of it is used, one burst of mine at a time is followed until it is stable. If that takes so long that a member busy
    with the data could count as silent, less may be on its way; otherwise more.
    """

    def __init__(self, window: Window, members: int, longest_us: int) -> None:
        self._most = window
        self._least = min(window.window, FEW * members)
        self._longest_us = longest_us
        self._followed: tuple[int, int] | None = None
        """The last counter of a burst of mine, and when it was sent."""
        self.window = replace(window, window=max(self._least, window.window // BEGINNING))

    def sent(self, counter: int, now: int, load: WindowLoad) -> None:
        """Follow this burst if enough is on its way with it: one with nothing before it tells nothing about a queue. Members that
        begin at the same moment do not see each other's bursts, so each that uses its share counts for all of them."""
        together = load.own_unstable * load.active if load.own_unstable >= FEW else 0
        if self._followed is None and 2 * max(load.unstable, together) >= self.window.window:
            self._followed = (counter, now)

    def stable(self, upto: int, now: int) -> None:
        """My datagrams are stable up to here."""
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
