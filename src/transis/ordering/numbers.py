"""How far ahead of mine a number of somebody else may be.

Numbers of views and timestamps only grow and are taken over from others, so one senseless claim would carry everybody to where
numbers end, and nobody could ever go on from there. Members of a view take none that no cluster reaches in honest work. Who is
alone takes any that leaves room: it may come anew to a cluster that has been at work for long.
"""

from __future__ import annotations

from typing import Final

from transis.types.limits import RING_SEQ_MAX
from transis.wire.burst import COUNTER_MAX

AHEAD_MAX: Final = 1 << 40
"""A million views a second for two weeks; as timestamps, of bursts, the same."""


TIMESTAMP_TAKEN_MAX: Final = COUNTER_MAX >> 1
"""Timestamps beyond it are taken from nobody: own ticks must never reach what receivers reject."""


def is_seq_in_reach(seq: int, mine: int, *, is_alone: bool) -> bool:
    """May the number of a view or ring become mine?"""
    return seq <= RING_SEQ_MAX // 2 if is_alone else seq <= min(RING_SEQ_MAX, mine + AHEAD_MAX)


def is_clock_in_reach(clock: int, mine: int, *, is_alone: bool) -> bool:
    return clock < TIMESTAMP_TAKEN_MAX and (is_alone or clock <= mine + AHEAD_MAX)
