"""Order keys and places: how a burst's timestamp and its sender's rank become one number (6.1; F9a).

A key is `(timestamp - base of the view) << 7 | rank`: a burst is stamped when it is sent, so its place in the order is born with
it and depends on nothing that anybody receives. A place also tells the datagram within the burst. Timestamps are counted
from the base of the view because 43 bits are what a place may take in a trace: 28 of timestamp, 7 of rank, 8 of datagram.
"""

from __future__ import annotations

from typing import Final

from transis.types.limits import BURST_DATAGRAMS_MAX, MEMBERS_MAX

RANK_BITS: Final = 7
DATAGRAM_BITS: Final = 8
TIMESTAMP_ROOM: Final = 1 << 28
"""A view's timestamps stay below its base and so much more: receivers take no others."""
RENEWAL_ROOM: Final = TIMESTAMP_ROOM - (1 << 20)
"""So far above the base a view is renewed, long before the room is used up."""

assert MEMBERS_MAX <= 1 << RANK_BITS
assert BURST_DATAGRAMS_MAX <= 1 << DATAGRAM_BITS


def order_key(above_base: int, rank: int) -> int:
    """Compares as (timestamp, rank) does, among bursts of one view."""
    return above_base << RANK_BITS | rank


def place_seq(key: int, index: int) -> int:
    """`Place.seq` of a datagram: the key of its burst, and its rank in it."""
    assert index < BURST_DATAGRAMS_MAX, f"datagram {index} of a burst"
    return key << DATAGRAM_BITS | index
