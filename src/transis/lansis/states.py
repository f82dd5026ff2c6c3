"""The states, events and transitions of Lansis as data (membership-1992 figures 3 to 7), and the traps that a sweep counts.

The table in lansis/engine.py says what happens on an event in a state.

Deviations: (M9) Flush, a state between agreement and installation; (M10) foreign *data* never starts anything, because its header
does not name its sender: Beacons and statements introduce theirs; (M11) a fault that shows in Stage 1 leads to Stage 2, with the
accused in Fb, and never back to Faults.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

# --- states -----------------------------------------------------------------------------------------------------------


class State(Enum):
    __hash__ = object.__hash__  # Members are singletons; Enum's own hash runs Python for every look-up in the table.

    OPERATIONAL = "Operational"
    STAGE_1 = "Stage 1"
    STAGE_2 = "Stage 2"
    FAULTS = "Faults"
    FLUSH = "Flush"
    STOPPED = "Stopped"


class Event(Enum):
    __hash__ = object.__hash__

    DATA = "data of the view"
    FOREIGN_DATA = "foreign data"
    ALIVE = "alive"
    AJ = "attempt to join"
    JOIN = "join"
    FA = "faults"
    FLUSHED = "flushed"
    BEACON = "beacon"
    QUERY = "query"
    SEND_DUE = "send timer"
    ALIVE_DUE = "alive timer"
    NACK_DUE = "nack timer"
    ANSWER_DUE = "answer timer"
    WATCH = "watch timer"
    ALPHA = "alpha timer"
    STATEMENT_SEND = "statement coalescing timer"
    STATEMENT_REPEAT = "statement timer"
    AGREE = "agree timer"
    FLUSH_REPEAT = "flush timer"
    FLUSH_LATE = "flush late timer"
    BEACON_SEND = "beacon timer"
    LEAVE = "leave timer"


AGREEING: Final = (State.FAULTS, State.STAGE_2, State.FLUSH)
"""My statement is out: nothing new is sent, only basic messages are delivered, and what I acknowledge stands still. In mode
`transis` this holds from one statement to the next, and from my first FLUSHED to the installation."""

TRANSITIONS: Final = {
    State.OPERATIONAL: (State.STAGE_1, State.STAGE_2, State.FAULTS, State.STOPPED),
    State.STAGE_1: (State.STAGE_2, State.STOPPED),
    State.STAGE_2: (State.FLUSH, State.OPERATIONAL, State.STOPPED),
    State.FAULTS: (State.STAGE_2, State.FLUSH, State.OPERATIONAL, State.STOPPED),
    State.FLUSH: (State.OPERATIONAL, State.FAULTS, State.STAGE_2, State.STOPPED),
    State.STOPPED: (),
}
"""From Faults and Stage 2 straight to Operational: a member was heard in a view that was flushed before."""


# --- traps ------------------------------------------------------------------------------------------------------------


class Trap(Enum):
    HALF_SENT = "1 28 a message was half sent when the view changed"
    REBORN_MEMBER = "3 4 a member was born again before it was missed"
    HEARSAY = "a view was installed because another member spoke in it"
    ABANDONED = "a flushed proposal was given up for a later one"
    MANY_ATTEMPTS = "6 three proposals failed before a view was installed"
    TAIL_LOST = "8 16 the last datagram was lost"
    LARGE_FLUSH = "10 more to flush than a window"
    LOST_WITH_ITS_HOLDER = "11 the only holder of something died"
    LATE_FA = "17 a statement about a view that was left already"
    ACCUSED_ME = "17 19 a member's statement failed its receiver"
    STRANGER_FAILS_US = "18 a stranger's statement failed a member"
    QUEUED = "24 messages were queued while the view changed"
    WINDOW_FULL = "a sender waited for the window"
    ANSWERED_FOR_THE_DEAD = "a burst of a lost member was sent again by another"
    CAUSAL_WAITED = "a causal message waited for an ordered one (W5)"
    SAFE_IN_TRANSITIONAL = "35 a safe message waited for the transitional view"
    LATE_DATA_WHILE_FROZEN = "36 data of the view came after the statement"
    OUTSIDER_IN_STAGE_2 = "a join came from somebody whom nobody had named"
