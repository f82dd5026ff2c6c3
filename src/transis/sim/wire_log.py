"""What went over the simulated network, as far as a picture shows it: the hops of the token, and the DAG of Lansis.

1. The token is followed from where it leaves to where it arrives. One that is lost has no hop.
2. A burst of Lansis names, for each other sender, the last burst that it follows: these are the edges of the DAG. A burst is
   known by the view's tag, the rank of its sender and the counter of its last datagram.
3. Under a seal nothing can be read, so there is nothing to show.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from transis.lansis.packets import Acks, decode_acks
from transis.sim.network import Journey
from transis.totem.packets import KIND_TOKEN, Token
from transis.types.ids import RingTag
from transis.types.outputs import Port
from transis.wire.burst import DATA_HEADER_SIZE, KIND_DATA, DataHeader, decode_data_header
from transis.wire.control import decode_control
from transis.wire.envelope import ENVELOPE_SIZE, FLAG_SEALED

_FLAGS_AT: Final = 3


class TokenHop(NamedTuple):
    """The token on its way between two nodes."""

    source: str
    left_us: int
    target: str
    arrived_us: int
    words: str


class SentBurst(NamedTuple):
    source: str
    sent_us: int
    first: int
    last: int
    follows: tuple[tuple[int, int], ...]
    """(rank, counter) of the bursts that it acknowledges."""


class DagEdge(NamedTuple):
    """A burst, and one that it acknowledges."""

    burst: SentBurst
    follows: SentBurst


BurstKey = tuple[RingTag, int, int]


class WireLog:
    """Notes every journey of the network, in the order in which they begin."""

    def __init__(self) -> None:
        self.hops: list[TokenHop] = []
        self._bursts: dict[BurstKey, SentBurst] = {}

    def __call__(self, now_us: int, source: str, target: str, journey: Journey) -> None:
        if journey.port is Port.TOKEN:
            self._note_token(now_us, source, target, journey)
        elif journey.port is Port.DATA:
            self._note_burst(now_us, source, journey)

    def edges(self) -> list[DagEdge]:
        found = []
        for (ring, _, _), burst in self._bursts.items():
            known = (self._bursts.get((ring, *followed)) for followed in burst.follows)
            found += [DagEdge(burst, one) for one in known if one is not None]
        return found

    def _note_token(self, now_us: int, source: str, target: str, journey: Journey) -> None:
        for datagram in journey.datagrams:
            body = _readable(datagram)
            token = decode_control(body) if body[:1] == bytes((KIND_TOKEN,)) else None
            if isinstance(token, Token):
                words = f"token of ring {token.ring.seq}: seq {token.seq}, aru {token.aru}"
                asks = ", ".join(str(first) if first == last else f"{first} to {last}" for first, last in token.rtr)
                again = f"\nasks for {asks} again" if asks else ""
                self.hops.append(TokenHop(source, now_us, target, journey.arrival_us, words + again))

    def _note_burst(self, now_us: int, source: str, journey: Journey) -> None:
        """Only a burst as it is sent: one that is sent again is not new, and one without its first datagram has no edges."""
        headers = [_header(datagram) for datagram in journey.datagrams]
        first, last = headers[0], headers[-1]
        if first is None or last is None or first.index or not last.last:
            return
        key = (last.ring, last.sender, last.seq)
        if key not in self._bursts:
            acks = decode_acks(_readable(journey.datagrams[0])[DATA_HEADER_SIZE:])
            follows = acks.acks if isinstance(acks, Acks) else ()
            self._bursts[key] = SentBurst(source, now_us, first.seq, last.seq, follows)


def _readable(datagram: bytes) -> bytes:
    is_sealed = len(datagram) > _FLAGS_AT and datagram[_FLAGS_AT] & FLAG_SEALED
    return b"" if is_sealed else bytes(datagram[ENVELOPE_SIZE:])


def _header(datagram: bytes) -> DataHeader | None:
    body = _readable(datagram)
    header = decode_data_header(body) if body[:1] == bytes((KIND_DATA,)) else None
    return header if isinstance(header, DataHeader) else None
