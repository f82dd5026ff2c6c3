"""The data path of a few members in one view that never changes, over a network that loses, doubles and reorders.

No membership: nobody is suspected, nothing is installed. Datagrams pass through the wire room as on a real network, and
every invariant is asserted after every step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from heapq import heappop, heappush
from random import Random
from typing import NamedTuple

from transis.lansis.engine import LansisParts
from transis.lansis.packets import Alive
from transis.lansis.states import Event
from transis.lansis.view import ViewState
from transis.types.config import Config, Window
from transis.types.errors import Rejection
from transis.types.ids import NodeId, Place, RingId, Service
from transis.types.outputs import Deliver, Lane, Note, Originated, OutboundRun, Output, Phase, Port, Send
from transis.wire.burst import Burst, read_bursts
from transis.wire.control import PartAssembler, decode_control
from transis.wire.reassembly import Assembler

HOP_US = 100
BASE = 50
Packet = Burst | Alive


class Heard(NamedTuple):
    text: str
    service: Service
    sender: str
    place: Place
    phase: Phase


class Seat:
    """One member: the parts of an engine that carry data."""

    def __init__(self, me: NodeId, members: tuple[NodeId, ...], window: Window, datagram: int, order: str) -> None:
        self.name = me.name
        config = Config(name=me.name, engine="lansis", order=order, window=window, datagram=datagram)
        parts = LansisParts(config, me, 0)
        self.core = core = parts.core
        core.view = ViewState(RingId(4, members[0]), RingId(4, members[0]).tag, members, me, BASE, [1] * len(members), config, 0)
        core.observe(BASE)
        self.repair, self.heartbeat, self.delivery = parts.repair, parts.heartbeat, parts.delivery
        self.receiver, self.sending, self.operational = parts.receiver, parts.sending, parts.operational
        self.heard: list[Heard] = []
        self.events: list[tuple[str, str]] = []
        """What happened here in order: ("sent", text) and ("got", text), basic ones left out."""
        self.log: list[Output] = []
        self.parts = PartAssembler()
        self.assembler = Assembler()
        self.counter = 0
        self._texts: dict[int, str] = {}
        self._timers = {
            Event.SEND_DUE: self.operational.send_due,
            Event.ALIVE_DUE: self.heartbeat.alive_due,
            Event.NACK_DUE: self.heartbeat.nack_due,
            Event.ANSWER_DUE: self.repair.answer_due,
        }

    def wake(self, now: int) -> None:
        self.core.now = now
        while (due := self.core.timers.take_due(now)) is not None:
            self._timers[due[0]]()

    def submit(self, now: int, service: Service, *texts: str, lane: Lane = Lane.APPLICATION) -> None:
        self.core.now = now
        run = OutboundRun(lane.value, b"", service, self.counter + 1, [text.encode() for text in texts])
        for text in texts:
            self.counter += 1
            self._texts[self.counter] = text
        assert self.core.outbox.submit(lane, run, None) == len(texts)
        self.operational.submitted()

    def take(self, now: int, packet: Packet) -> None:
        self.core.now = now
        handler: Callable[..., None]
        if isinstance(packet, Burst):
            handler = self.operational.data_in_view
        else:
            handler = self.operational.alive_in_view
        handler(packet)

    def keep(self, output: Output) -> None:
        """Remember what an application would see."""
        self.log.append(output)
        if isinstance(output, Originated) and output.ids.service is not Service.BASIC:
            ids = output.ids
            self.events += [("sent", self._texts[counter]) for counter in range(ids.first_counter, ids.first_counter + ids.count)]
        elif isinstance(output, Deliver):
            self._deliver(output)

    def _deliver(self, output: Deliver) -> None:
        assert isinstance(output.burst, Burst)
        runs = self.assembler.feed(output.burst, output.sender, output.view, output.phase, output.early, output.place_seq)
        for run in runs:
            for at, payload in enumerate(run.payloads):
                text, place = bytes(payload).decode(), Place(run.place.seq, run.place.index + at)
                self.heard.append(Heard(text, run.service, run.process.node.name, place, output.phase))
                if run.service is not Service.BASIC:
                    self.events.append(("got", text))

    def texts(self, *services: Service) -> list[str]:
        return [heard.text for heard in self.heard if heard.service in services]

    def notes(self, what: str) -> list[Note]:
        return [output for output in self.log if isinstance(output, Note) and output.what == what]

    def traps(self) -> set[str]:
        return {str(value) for note in self.notes("trap") for _, value in note.detail}

    def check(self) -> None:
        self.core.view.check()
        self.delivery.check()


class Fixed:
    """`lose` permille of packets get lost, as many come twice, and `jitter_us` makes them overtake each other."""

    def __init__(
        self,
        names: str,
        *,
        seed: int = 0,
        lose: int = 0,
        jitter_us: int = 0,
        window: Window | None = None,
        datagram: int = 1400,
        order: str = "all-ack",
    ) -> None:
        members = tuple(NodeId(name, 1, ord(name)) for name in names)
        self.now = 0
        self.lose = lose
        self.jitter_us = jitter_us
        self.drops: list[Callable[[str, str, Packet], bool]] = []
        self.sent: list[tuple[str, Send]] = []
        self._random = Random(seed)
        self._queue: list[tuple[int, int, Seat, Packet]] = []
        self._count = 0
        self.seats = {
            node.name: Seat(node, members, window or replace(Window(), visit_max=64), datagram, order) for node in members
        }
        for seat in self.seats.values():
            seat.heartbeat.begin_view()
            self.carry(seat)

    def __getitem__(self, name: str) -> Seat:
        return self.seats[name]

    def submit(self, name: str, service: Service, *texts: str, lane: Lane = Lane.APPLICATION) -> None:
        self.seats[name].submit(self.now, service, *texts, lane=lane)
        self.carry(self.seats[name])

    def run(self, for_us: int) -> None:
        until = self.now + for_us
        while (at := self._next()) <= until:
            self.now = max(self.now, at)
            self._step()
        self.now = until

    def _next(self) -> int:
        return min([*(item[0] for item in self._queue[:1]), *(seat.core.timers.deadline() for seat in self.seats.values())])

    def _step(self) -> None:
        if self._queue and self._queue[0][0] <= self.now:
            _, _, seat, packet = heappop(self._queue)
            seat.take(self.now, packet)
            self.carry(seat)
            return
        for seat in self.seats.values():
            if seat.core.timers.deadline() <= self.now:
                seat.wake(self.now)
                self.carry(seat)
                return

    def carry(self, seat: Seat) -> None:
        seat.check()
        outputs, seat.core.out = seat.core.out, []
        for output in outputs:
            seat.keep(output)
            if isinstance(output, Send):
                self.sent.append((seat.name, output))
                for target in self.seats.values():
                    if target is not seat:
                        self._post(seat, target, output)

    def _post(self, source: Seat, target: Seat, send: Send) -> None:
        for packet in self._read(source, target, send.datagrams, send.port):
            if self._random.randrange(1000) < self.lose or any(drop(source.name, target.name, packet) for drop in self.drops):
                continue
            for _ in range(2 if self._random.randrange(1000) < self.lose else 1):
                self._count += 1
                late = self._random.randint(0, self.jitter_us)
                heappush(self._queue, (self.now + HOP_US + late, self._count, target, packet))

    def _read(self, source: Seat, target: Seat, datagrams: Sequence[bytes], port: Port) -> list[Packet]:
        """From bytes to packets; when the network loses, a burst comes in pieces."""
        if port is Port.CONTROL:
            whole = [target.parts.feed(source.name.encode(), datagram) for datagram in datagrams]
            packets = [decode_control(body) for body in whole if body is not None and not isinstance(body, Rejection)]
            assert not any(isinstance(packet, Rejection) for packet in packets)
            return [packet for packet in packets if isinstance(packet, Alive)]
        cut = self._random.randint(0, len(datagrams)) if self.lose else 0
        bursts: list[Packet] = []
        for part in (datagrams[:cut], datagrams[cut:]):
            found, rejections = read_bursts(part)
            assert rejections == []
            bursts += found
        return bursts
