"""From arrivals to packets: open, parts, decode, screen, count junk.

From what arrived at a socket to packets: bursts of data, and whatever else was in the envelopes.

1. Most data comes in pieces that are part of one burst each. Such a piece is checked and read whole; all else is taken apart.
2. Consecutive data datagrams become one burst, in one piece or not. Data comes before all other packets.
3. What makes no sense goes to `reject`, and never further.

What was said before is not said again: old announcements in a sealed cluster, kept and sent by somebody without the key.

Every envelope of a transmitter has a higher counter than the one before, under its seal. So of each transmitter only news
counts: a packet that is not newer than the newest is a duplicate, was overtaken, or is replayed, and all three are as good as
lost. Without this a stranger could keep a cluster busy for ever with what it once heard. A node that never heard a
transmitter can be told each of its old packets once, in their order, and no more.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final

from transis.engine.base import Packet
from transis.types.errors import Rejection
from transis.wire.burst import KIND_DATA, Burst, read_bursts, read_whole
from transis.wire.envelope import ENVELOPE_SIZE, KEYS_MAX, Arrival, Opener, Segments, apart, counter_of

# --- unpacking --------------------------------------------------------------------------------------------------------

_DATA: Final = bytes([KIND_DATA])


class Unpacking:
    """`decode` makes packets of bodies that are not data, given their transmitter and its count; or nothing."""

    def __init__(
        self, opener: Opener, decode: Callable[[bytes, bytes, int], Packet | None], reject: Callable[[Rejection], None]
    ) -> None:
        self._opener = opener
        self._decode = decode
        self._reject = reject

    def open(self, arrivals: Sequence[Arrival]) -> list[Packet]:
        bursts: list[Burst] = []
        packets: list[Packet] = []
        singles: list[bytes] = []
        for arrival in arrivals:
            burst = self._whole(arrival)
            if burst is None:
                singles += apart([arrival])
                continue
            if singles:
                self._open_singles(singles, bursts, packets)
                singles = []
            _append(bursts, burst)
        if singles:
            self._open_singles(singles, bursts, packets)
        return [*bursts, *packets]

    def _whole(self, arrival: Arrival) -> Burst | None:
        if isinstance(arrival, Segments) and self._opener.opens(arrival):
            return read_whole(arrival, ENVELOPE_SIZE)
        return None

    def _open_singles(self, datagrams: list[bytes], bursts: list[Burst], packets: list[Packet]) -> None:
        data: list[bytes] = []
        for datagram in datagrams:
            opened = self._opener.open(datagram)
            if isinstance(opened, Rejection):
                self._reject(opened)
                continue
            transmitter, body = opened
            if body[:1] == _DATA:
                data.append(body)
                continue
            packet = self._decode(transmitter, body, counter_of(datagram))
            if packet is not None:
                packets.append(packet)
        found, rejections = read_bursts(data)
        for burst in found:
            _append(bursts, burst)
        for rejection in rejections:
            self._reject(rejection)


def _append(bursts: list[Burst], burst: Burst) -> None:
    """One that goes on with the last becomes part of it: a burst may be more than fits one piece."""
    joined = bursts[-1].joined(burst) if bursts else None
    if joined is None:
        bursts.append(burst)
    else:
        bursts[-1] = joined


# --- freshness --------------------------------------------------------------------------------------------------------


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
