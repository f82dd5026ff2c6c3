"""Flow control of the token (TOCS95 section 8; L5, W4). Pure arithmetic, all in datagrams.

Deviations: (D4) my own contribution of the last rotation is taken out of fcc, or a lone sender would alternate between full and
zero (L5a); (D5) the floor of one datagram applies after the minimum of the fairness terms, but below the hard caps, or a slow
sender beside a saturated one would starve (L5b, W4). One datagram of the window is kept for each member, and a growing gap leaves
it too.
"""

from __future__ import annotations

from typing import NamedTuple

from transis.types.config import Window


class Demand(NamedTuple):
    """What is known when a node asks how much it may send in this token visit."""

    members: int
    fcc: int
    """Datagrams sent in the last rotation by everybody, as the token says."""
    my_last: int
    """My own share of fcc, from my previous visit."""
    backlog: int
    """Bytes queued at everybody, as the token says."""
    my_last_backlog: int
    """My own share of backlog, as I put it on the token at my previous visit."""
    my_backlog: int
    """Bytes queued here now."""
    unsafe: int
    """Datagrams on the ring that are not known to be everywhere: seq - safe_upto."""
    gap_grows: bool
    """I am missing more than at my previous visit: I must not add to the load."""


def permit(window: Window, demand: Demand) -> int:
    """How many new datagrams a node may send in this visit."""
    if demand.my_backlog == 0:
        return 0
    hard_cap = max(0, window.gap_max - demand.unsafe)
    if demand.gap_grows:
        hard_cap = min(hard_cap, 1)
    fair = min(window.visit_max, _left_in_window(window, demand), _share(window, demand))
    return min(max(1, fair), hard_cap)


def _shared_window(window: Window, members: int) -> int:
    """The window less one datagram per member, which the floor of one may use at any time (W4)."""
    return max(1, window.window - members)


def _left_in_window(window: Window, demand: Demand) -> int:
    others = max(0, demand.fcc - demand.my_last)
    return _shared_window(window, demand.members) - others


def _share(window: Window, demand: Demand) -> int:
    """My part of the window in proportion to my part of all backlog, rounded up."""
    total = max(demand.my_backlog, demand.backlog - demand.my_last_backlog + demand.my_backlog)
    return -(-_shared_window(window, demand.members) * demand.my_backlog // total)
