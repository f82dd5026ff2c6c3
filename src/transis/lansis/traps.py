"""Moments at which systems before us went wrong: counted, so that a sweep can show that it went through them.

Each is a situation, not a bug: the engine must come through it unharmed. Numbers in front are those under which the defects
of Corosync, kronosnet and Spread are known to our tests.
"""

from __future__ import annotations

from enum import Enum


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
