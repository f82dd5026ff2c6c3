"""Intake: from what arrived at a socket to packets for the engine.

1. Most data comes in pieces, each part of one burst. Such a piece is checked and read whole; everything else is taken apart.
2. Consecutive data datagrams of one transmitter become one burst, whether they came in one piece or not. Data comes before all
   other packets. The engine learns who sent each packet, by the tag that the envelope proves.
3. A packet may introduce only its own sender, an announcement counts once, and identity sees control packets before the engine.
4. Nobody tells this node anything in its own name. What it did not send shows that somebody else seals as this node.
5. What makes no sense is counted and goes no further; a note tells an operator of the first of each kind.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from transis.engine.base import Packet
from transis.node.identity import Identity
from transis.types.config import Config
from transis.types.errors import Rejection
from transis.types.outputs import Note
from transis.wire.burst import KIND_DATA, Burst, read_bursts, read_whole
from transis.wire.control import ControlPacket, PartAssembler, ProbeAnswer, Role, announces, decode_control, introduces
from transis.wire.envelope import (
    ENVELOPE_SIZE,
    KEYS_MAX,
    Arrival,
    Opener,
    Segments,
    apart,
    counter_of,
    transmitter_of,
    transmitter_tag,
)

_DATA: Final = bytes([KIND_DATA])


class Heard(NamedTuple):
    """A packet, and the tag of the node that sent it here."""

    by: bytes
    packet: Packet


class Intake:
    """`foreign_kinds` are kinds of packets of other engines; `sent` is how many datagrams this node has sealed; `answer` sends
    identity's answers, `note` tells an operator."""

    def __init__(
        self,
        config: Config,
        key: bytes | None,
        identity: Identity,
        foreign_kinds: frozenset[int],
        sent: Callable[[], int],
        answer: Callable[[ControlPacket], None],
        note: Callable[[Note], None],
    ) -> None:
        self.rejections: Counter[str] = Counter()
        self._opener = Opener(config.cluster, key)
        self._foreign_kinds = foreign_kinds
        self._freshness = Freshness() if key is not None else None
        self._parts = PartAssembler()
        self._identity = identity
        self._own = transmitter_tag(identity.me)
        self._sent = sent
        self._answer = answer
        self._note = note

    def packets(self, arrivals: Sequence[Arrival]) -> list[Heard]:
        bursts: list[Heard] = []
        packets: list[Heard] = []
        singles: list[bytes] = []
        for arrival in arrivals:
            heard = self._whole(arrival)
            if heard is None:
                singles += apart([arrival])
                continue
            if singles:
                self._open_singles(singles, bursts, packets)
                singles = []
            _append(bursts, heard)
        if singles:
            self._open_singles(singles, bursts, packets)
        return [*bursts, *packets]

    # --- data -------------------------------------------------------------------------------------------------------

    def _whole(self, arrival: Arrival) -> Heard | None:
        if not isinstance(arrival, Segments) or not self._opener.opens(arrival):
            return None
        by, burst = transmitter_of(arrival.content), read_whole(arrival, ENVELOPE_SIZE)
        return None if burst is None or by == self._own else Heard(by, burst)

    def _open_singles(self, datagrams: list[bytes], bursts: list[Heard], packets: list[Heard]) -> None:
        data: list[bytes] = []
        by = b""
        for datagram in datagrams:
            opened = self._opener.open(datagram)
            if isinstance(opened, Rejection):
                self._reject(opened)
                continue
            transmitter, body = opened
            if transmitter == self._own:
                self._hear_own(counter_of(datagram))
            elif body[:1] == _DATA:
                if transmitter != by:
                    self._read(by, data, bursts)
                    by, data = transmitter, []
                data.append(body)
            elif (packet := self._decode(transmitter, body, counter_of(datagram))) is not None:
                packets.append(Heard(transmitter, packet))
        self._read(by, data, bursts)

    def _read(self, by: bytes, data: list[bytes], bursts: list[Heard]) -> None:
        found, rejections = read_bursts(data)
        for burst in found:
            _append(bursts, Heard(by, burst))
        for rejection in rejections:
            self._reject(rejection)

    def _hear_own(self, counter: int) -> None:
        """An echo tells nothing. A counter that this node has not reached is another's work: whoever has the key can do that."""
        if counter > self._sent():
            self._reject(Rejection("own name", f"datagram {counter} in the name of {self._identity.me}, which it never sent"))

    # --- everything else --------------------------------------------------------------------------------------------

    def _decode(self, transmitter: bytes, body: bytes, counter: int) -> Packet | None:
        whole = self._parts.feed(transmitter, body)
        if whole is None:
            return None
        packet = whole if isinstance(whole, Rejection) else self._decode_whole(whole)
        if isinstance(packet, Rejection):
            self._reject(packet)
            return None
        if isinstance(packet, ProbeAnswer) and transmitter_tag(packet.by) != transmitter:
            self._reject(Rejection("sender", f"an answer of {packet.by} was sent by somebody else"))
            return None
        if packet.role is Role.NONE and not isinstance(packet, ProbeAnswer):
            return packet
        return self._screen(transmitter, packet, counter)

    def _decode_whole(self, whole: bytes) -> ControlPacket | Rejection:
        kind = whole[0] if whole else 0
        if kind in self._foreign_kinds:
            return Rejection("engine", f"a packet of kind {kind}: somebody in this cluster runs another engine")
        return decode_control(whole)

    def _screen(self, transmitter: bytes, packet: ControlPacket, counter: int) -> Packet | None:
        if introduces(packet) and transmitter_tag(packet.sender) != transmitter:
            self._reject(Rejection("sender", f"a packet that names {packet.sender} was sent by somebody else"))
            return None
        if self._freshness is not None and announces(packet) and not self._freshness.is_news(transmitter, counter):
            self._reject(Rejection("replayed", f"a packet of {packet.sender} that is not newer than what it said before"))
            return None
        passes, answer = self._identity.inspect(packet)
        if answer is not None:
            self._answer(answer)
        return packet if passes else None

    def _reject(self, rejection: Rejection) -> None:
        self.rejections[rejection.field] += 1
        if self.rejections[rejection.field] == 1:
            self._note(Note("rejected", (("field", rejection.field), ("why", rejection.why))))


def _append(bursts: list[Heard], heard: Heard) -> None:
    """Add a burst. If it continues the last one, join them: a burst may be larger than one piece."""
    if bursts and bursts[-1].by == heard.by:
        before, after = bursts[-1].packet, heard.packet
        assert isinstance(before, Burst)
        assert isinstance(after, Burst)
        joined = before.joined(after)
        if joined is not None:
            bursts[-1] = Heard(heard.by, joined)
            return
    bursts.append(heard)


class Freshness:
    """The newest counter of each transmitter in a sealed cluster; transmitters heard longest ago are forgotten first.

    Every envelope of a transmitter has a higher counter than the one before, under its seal. So an announcement that is not newer
    than the newest is a duplicate, was overtaken, or is replayed by somebody without the key, and all three may be dropped.
    Otherwise a stranger could keep a cluster busy forever with what it once recorded. To a node that never heard a transmitter,
    its old packets can be replayed once each, in order, and no more.
    """

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
