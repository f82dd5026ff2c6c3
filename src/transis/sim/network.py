"""The simulated network: what becomes of a burst on its way from one host to another.

1. A burst of datagrams between two hosts on one port is one journey with one delay; only what is lost, repeated or
   overtaken is handled datagram by datagram, so that good weather is cheap.
2. A link keeps the order of each port, unless `reorder` strikes; ports race each other, as unicast and multicast do.
3. A burst passes only if its link is whole both when it leaves and when it arrives: a cut also takes what is on its way.

For pictures a log keeps the hops of the token, and the DAG of Lansis:

4. The token is followed from where it leaves to where it arrives. One that is lost has no hop.
5. A burst of Lansis names, for each other sender, the last burst that it follows: these are the edges of the DAG. A burst is
   known by the view's tag, the rank of its sender and the counter of its last datagram.
6. Under a seal nothing can be read, so there is nothing to show.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from transis.lansis.packets import Acks, decode_acks
from transis.sim.faults import WEATHERS
from transis.sim.streams import RandomStream
from transis.totem.packets import KIND_TOKEN, Token
from transis.types.ids import RingTag
from transis.types.outputs import Port
from transis.wire.burst import DATA_HEADER_SIZE, KIND_DATA, DataHeader, decode_data_header
from transis.wire.control import decode_control
from transis.wire.envelope import ENVELOPE_SIZE, FLAG_SEALED

CAPTURED_MAX: Final = 64
"""Old packets that an eavesdropper keeps for replays."""

LINGER_US: Final = (1_000, 300_000)
"""How late a duplicate or an overtaken datagram may come."""

SPELL_US: Final = (2_000, 60_000)
"""How long a bad spell of a link lasts (Gilbert's burst loss)."""

JUNK_MAX: Final = 1_500


@dataclass(frozen=True, slots=True)
class LinkQuality:
    """How the network is without faults: delays per port (data, control, token), and rates in permille."""

    delay_us: tuple[int, int, int] = (100, 100, 100)
    jitter_us: int = 20
    loss: int = 0
    burst: int = 0
    duplicate: int = 0
    reorder: int = 0
    corrupt: int = 0
    junk: int = 0
    replay: int = 0


class Fate(Enum):
    """What an interceptor decides about one datagram."""

    PASS = "pass"
    DROP = "drop"
    TWICE = "twice"


class Journey(NamedTuple):
    """Datagrams that arrive together."""

    arrival_us: int
    source: str
    port: Port
    datagrams: Sequence[bytes]


Interceptor = Callable[[str, str, Port, bytes], Fate]
JourneyWatcher = Callable[[int, str, str, Journey], None]
"""Called when a journey begins, with the time, the source, the target and the journey."""


class Network:
    """1. `_component` holds every host that is in a partition; hosts of different components do not hear each other.
    2. `_cut` holds (source, target, port) that are dead.
    """

    def __init__(self, climate: LinkQuality, stream: RandomStream) -> None:
        self.rates: dict[str, int] = {name: getattr(climate, name) for name in WEATHERS}
        self.extra_us = [0, 0, 0]
        self.interceptors: list[Interceptor] = []
        self.watchers: list[JourneyWatcher] = []
        self.carried = 0
        self.lost = 0
        self._climate = climate
        self._stream = stream
        self._component: dict[str, int] = {}
        self._cut: set[tuple[str, str, Port]] = set()
        self._last_arrival: dict[tuple[str, str, Port], int] = {}
        self._bad_until: dict[tuple[str, str], int] = {}
        self._captured: deque[tuple[Port, bytes]] = deque(maxlen=CAPTURED_MAX)

    def partition(self, components: Sequence[Sequence[str]]) -> None:
        self._component = {name: number for number, component in enumerate(components, 1) for name in component}

    def heal(self) -> None:
        self._component = {}
        self._cut.clear()

    def cut(self, source: str, target: str, port: Port) -> None:
        self._cut.add((source, target, port))

    def mend(self, source: str, target: str, port: Port) -> None:
        self._cut.discard((source, target, port))

    def calm(self) -> None:
        """Every fault of the network ends; its ordinary delays stay."""
        self.heal()
        self.extra_us = [0, 0, 0]
        for name in self.rates:
            self.rates[name] = 0

    def reaches(self, source: str, target: str, port: Port) -> bool:
        if self._component.get(source, 0) != self._component.get(target, 0):
            return False
        return not self._cut or (source, target, port) not in self._cut

    def carry(self, now: int, source: str, target: str, port: Port, datagrams: Sequence[bytes]) -> list[Journey]:
        """Where and when the datagrams of one burst arrive at one host."""
        self.carried += len(datagrams)
        if not self.reaches(source, target, port):
            return []
        rates = self.rates
        survivors = datagrams
        if self.interceptors:
            survivors = self._intercepted(source, target, port, survivors)
        if rates["loss"] or rates["burst"]:
            survivors = self._after_loss(now, source, target, survivors)
        arrival = self._arrival(now, source, target, port)
        journeys = [Journey(arrival, source, port, survivors)] if survivors else []
        if rates["duplicate"] or rates["reorder"]:
            journeys = self._disordered(arrival, source, port, survivors)
        if rates["corrupt"] or rates["junk"] or rates["replay"]:
            journeys += self._hostile(arrival, source, port, survivors)
        for watch in self.watchers:
            for journey in journeys:
                watch(now, source, target, journey)
        return journeys

    def _arrival(self, now: int, source: str, target: str, port: Port) -> int:
        link = (source, target, port)
        jitter = self._climate.jitter_us
        delay = self._climate.delay_us[port] + self.extra_us[port] + (self._stream.below(jitter) if jitter else 0)
        arrival = max(now + delay, self._last_arrival.get(link, 0))
        self._last_arrival[link] = arrival
        return arrival

    def _after_loss(self, now: int, source: str, target: str, datagrams: Sequence[bytes]) -> Sequence[bytes]:
        if self.rates["burst"] and self._in_bad_spell(now, source, target):
            self.lost += len(datagrams)
            return ()
        loss = self.rates["loss"]
        if not loss:
            return datagrams
        draw = self._stream.random
        survivors = [datagram for datagram in datagrams if draw() * 1000 >= loss]
        self.lost += len(datagrams) - len(survivors)
        return survivors

    def _in_bad_spell(self, now: int, source: str, target: str) -> bool:
        link = (source, target)
        if now < self._bad_until.get(link, 0):
            return True
        if self._stream.chance(self.rates["burst"]):
            self._bad_until[link] = now + self._stream.stretched(*SPELL_US)
            return True
        return False

    def _disordered(self, arrival: int, source: str, port: Port, datagrams: Sequence[bytes]) -> list[Journey]:
        """Some datagrams come late, some twice, the rest in time."""
        in_time: list[bytes] = []
        late: list[Journey] = []
        for datagram in datagrams:
            if self._stream.chance(self.rates["reorder"]):
                late.append(Journey(arrival + self._stream.stretched(*LINGER_US), source, port, (datagram,)))
                continue
            in_time.append(datagram)
            if self._stream.chance(self.rates["duplicate"]):
                late.append(Journey(arrival + self._stream.stretched(*LINGER_US), source, port, (datagram,)))
        return [Journey(arrival, source, port, in_time), *late] if in_time else late

    def _hostile(self, arrival: int, source: str, port: Port, datagrams: Sequence[bytes]) -> list[Journey]:
        """What arrives in addition: a damaged copy, meaningless bytes, an old packet that an eavesdropper captured."""
        stream = self._stream
        extra: list[Journey] = []
        if datagrams:
            self._captured.append((port, datagrams[0]))
            if stream.chance(self.rates["corrupt"]):
                extra.append(Journey(arrival, source, port, (self._damaged(datagrams[0]),)))
        if stream.chance(self.rates["junk"]):
            junk = bytes(stream.below(256) for _ in range(stream.below(JUNK_MAX)))
            extra.append(Journey(arrival, source, port, (junk,)))
        if self._captured and stream.chance(self.rates["replay"]):
            old_port, old = stream.pick(self._captured)
            extra.append(Journey(arrival, source, old_port, (old,)))
        return extra

    def _damaged(self, datagram: bytes) -> bytes:
        if not datagram:
            return datagram
        place = self._stream.below(len(datagram))
        return datagram[:place] + bytes((datagram[place] ^ (1 << self._stream.below(8)),)) + datagram[place + 1 :]

    def _intercepted(self, source: str, target: str, port: Port, datagrams: Sequence[bytes]) -> list[bytes]:
        kept: list[bytes] = []
        for datagram in datagrams:
            fates = {interceptor(source, target, port, datagram) for interceptor in self.interceptors}
            if Fate.DROP not in fates:
                kept.extend((datagram,) * (2 if Fate.TWICE in fates else 1))
        return kept


# --- what went over it ------------------------------------------------------------------------------------------------

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
