"""What was said before is not said again: old announcements in a sealed cluster, kept and sent by somebody without the key.

Every envelope of a transmitter has a higher counter than the one before, under its seal. So of each transmitter only news
counts: a packet that is not newer than the newest is a duplicate, was overtaken, or is replayed, and all three are as good as
lost. Without this a stranger could keep a cluster busy for ever with what it once heard. A node that never heard a
transmitter can be told each of its old packets once, in their order, and no more.
"""

from __future__ import annotations

from collections import OrderedDict

from transis.wire.envelope import KEYS_MAX


class Freshness:
    """The newest counter of each transmitter; those heard last are remembered."""

    def __init__(self) -> None:
        self._newest: OrderedDict[bytes, int] = OrderedDict()

    def is_news(self, transmitter: bytes, counter: int) -> bool:
        if counter <= self._newest.get(transmitter, 0):
            return False
        self._newest[transmitter] = counter
        self._newest.move_to_end(transmitter)
        if len(self._newest) > KEYS_MAX:
            self._newest.popitem(last=False)
        return True
