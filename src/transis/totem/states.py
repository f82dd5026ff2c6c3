"""The ring's states, events and transitions as data (TOCS95 figure 2), and the traps that a sweep counts.

The table in totem/engine.py says what happens on an event in a state, after figures 4 to 6.

Deviations: (D1) foreign *data* never starts a Gather, only Beacons and Joins do, because a data header does not name its sender,
and delayed data of a ring that we left would make a healthy one gather; (D2) a node starts as a singleton ring that beacons, not
in Gather, so the first Gather always has a partner; (D3) Commit and Recovery have no Join timer (F5).
"""

from __future__ import annotations

from enum import Enum
from typing import Final

# --- states -----------------------------------------------------------------------------------------------------------


class State(Enum):
    __hash__ = object.__hash__  # Members are singletons; Enum's own hash runs Python for every look-up in the table.

    OPERATIONAL = "Operational"
    GATHER = "Gather"
    COMMIT = "Commit"
    RECOVERY = "Recovery"
    STOPPED = "Stopped"


class Event(Enum):
    __hash__ = object.__hash__

    RING_DATA = "data of the ring in use"
    OLD_DATA = "data of the old ring"
    FOREIGN_DATA = "foreign data"
    TOKEN = "token"
    COMMIT_FIRST = "commit token, first rotation"
    COMMIT_SECOND = "commit token, second rotation"
    JOIN = "join"
    BEACON = "beacon"
    WAKE = "wake"
    TOKEN_LOSS = "token loss timer"
    TOKEN_RETRANSMIT = "token retransmit timer"
    TOKEN_HOLD = "token hold timer"
    WAKE_REPEAT = "wake timer"
    JOIN_REPEAT = "join timer"
    JOIN_SEND = "join coalescing timer"
    CONSENSUS = "consensus timer"
    GATHER_MIN = "gather minimum timer"
    BEACON_SEND = "beacon timer"
    LEAVE = "leave timer"


TRANSITIONS: Final = {
    State.OPERATIONAL: (State.GATHER, State.STOPPED),
    State.GATHER: (State.GATHER, State.COMMIT, State.STOPPED),
    State.COMMIT: (State.RECOVERY, State.GATHER, State.STOPPED),
    State.RECOVERY: (State.OPERATIONAL, State.GATHER, State.STOPPED),
    State.STOPPED: (),
}
"""Figure 2 of TOCS95, with Stopped added for leave (W16) and supersession (C4)."""


# --- traps ------------------------------------------------------------------------------------------------------------


class Trap(Enum):
    HALF_SENT = "1 28 a message was half sent when the view changed"
    REBORN_REPRESENTATIVE = "3 4 the representative was born again before it was missed"
    LATE_COMMIT = "5 a commit token came again after it was used"
    MANY_ATTEMPTS = "6 three attempts failed before a ring was installed"
    FOREIGN_TOKEN = "7 37 a token of another ring"
    TAIL_LOST = "8 the last datagram was lost"
    LARGE_RECOVERY = "10 more to recover than a window"
    LASTING_GAP = "11 a gap that nobody can fill"
    TOKEN_TWICE = "12 13 a token came twice"
    OVERTAKEN = "15 a token overtook data"
    PACED = "16 an idle ring missed something"
    FAILS_ME = "17 a member's join failed its receiver"
    STRANGER_FAILS_US = "18 a stranger's join failed a member"
    QUEUED = "24 messages were queued while no ring was installed"
    SAFE_IN_TRANSITIONAL = "35 a safe message waited for the transitional view"
    FROZEN = "36 old data came after the commit entry"
