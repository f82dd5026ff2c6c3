"""Moments at which systems before us went wrong: counted, so that a sweep can show that it went through them.

Each is a situation, not a bug: the engine must come through it unharmed. The text begins with the numbers under which
the defects of Corosync, kronosnet and Spread are known to our tests.
"""

from __future__ import annotations

from enum import Enum


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
