"""A few engines driven by hand: virtual time, a lossless network with one fixed delay, and doors to interfere.

The network is the same for every test; what a test wants to go wrong it says in `drops`, `copies` and `disk_us`. What
arrives passes through the wire room, so that engines meet packets exactly as they leave a node.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from heapq import heappop, heappush
from typing import NamedTuple

from transis.model.config import Config, Timing, Window
from transis.model.contract import (
    NEVER,
    Audience,
    Configure,
    Deliver,
    Lane,
    Note,
    OutboundRun,
    Output,
    Persist,
    Port,
    Send,
)
from transis.model.ids import NodeId, RingId
from transis.model.service import Service
from transis.model.view import View
from transis.ordering.engine import Packet
from transis.totem.engine import Engine
from transis.totem.states import State
from transis.wire.burst import Burst, read_bursts
from transis.wire.control import decode_control
from transis.wire.header import KIND_DATA
from transis.wire.packets import Commit, Probe, ProbeAnswer, Wake
from transis.wire.parts import PartAssembler
from transis.wire.rejection import Rejection
from transis.wire.stream import Assembler
from transis.wire.token import KIND_TOKEN, Token, decode_token

HOP_US = 100
"""What one datagram takes, always."""
STEPS_MAX = 20_000
TIMING = Timing()


class Heard(NamedTuple):
    """One delivered message: its text, the members of its regular view, and whether the transitional was reached."""

    text: str
    view: str
    phase: str


class Journey(NamedTuple):
    """What a test sees of a packet on its way."""

    source: str
    target: str
    port: Port
    packet: Packet


Verdict = Callable[[Journey], bool]


def first(count: int, verdict: Verdict) -> Verdict:
    """True for the first `count` packets for which the verdict is."""
    seen: list[Journey] = []

    def judge(journey: Journey) -> bool:
        if len(seen) < count and verdict(journey):
            seen.append(journey)
            return True
        return False

    return judge


def cut_off(*names: str) -> Verdict:
    """Nothing passes between these nodes and the others."""
    return lambda journey: (journey.source in names) != (journey.target in names)


def is_commit(journey: Journey) -> bool:
    return isinstance(journey.packet, Commit)


def is_token(journey: Journey) -> bool:
    return isinstance(journey.packet, Token)


def is_wake(journey: Journey) -> bool:
    return isinstance(journey.packet, Wake)


def node_id(name: str, incarnation: int = 1) -> NodeId:
    return NodeId(name, incarnation, 1000 * incarnation + ord(name[0]))


def config(name: str, *, timing: Timing = TIMING, window: Window | None = None) -> Config:
    return Config(name=name, address=f"{name}:1", timing=timing, window=window or Window()).validated()


def read(parts: PartAssembler, source: str, datagrams: Sequence[bytes]) -> list[Packet]:
    """From bytes to packets; engines send nothing that the wire room would reject."""
    data = [datagram for datagram in datagrams if datagram[0] == KIND_DATA]
    bursts, rejections = read_bursts(data)
    assert rejections == []
    packets: list[Packet] = list(bursts)
    for datagram in datagrams:
        if datagram[0] == KIND_DATA:
            continue
        whole = parts.feed(source.encode(), datagram)
        if whole is None:
            continue
        assert not isinstance(whole, Rejection), whole
        packet = decode_token(whole) if whole[0] == KIND_TOKEN else decode_control(whole)
        assert not isinstance(packet, Rejection | Probe | ProbeAnswer), packet
        packets.append(packet)
    return packets


class Seat:
    """One engine with everything it ever put out."""

    def __init__(self, name: str, engine: Engine) -> None:
        self.name = name
        self.engine = engine
        self.log: list[Output] = []
        self.heard: list[Heard] = []
        self.views: list[View] = []
        self.parts = PartAssembler()
        self.assembler = Assembler()
        self.counter = 0

    def of(self, kind: type[Output]) -> list[Output]:
        return [output for output in self.log if isinstance(output, kind)]

    def notes(self, what: str) -> list[Note]:
        return [output for output in self.log if isinstance(output, Note) and output.what == what]

    @property
    def view(self) -> str:
        return names(self.views[-1])

    @property
    def history(self) -> list[str]:
        """Views and deliveries in the order in which they came out."""
        return [_word(output) for output in self.log if isinstance(output, Configure | Deliver)]


class Table:
    """Engines around one table. `disk_us` None means that writes never complete unless a test says so."""

    def __init__(
        self, names: str, *, ring_seq: Mapping[str, int] | None = None, disk_us: int | None = 0, window: Window | None = None
    ) -> None:
        self.now = 0
        self.disk_us = disk_us
        self.drops: list[Verdict] = []
        self.copies: list[tuple[Verdict, int]] = []
        """Packets for which the verdict is true arrive once more, so many microseconds later."""
        self.journeys: list[Journey] = []
        """Everything that was sent to somebody, dropped or not."""
        self.unwritten: list[tuple[str, Persist]] = []
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0
        self._window = window
        self.seats = {name: self._seat(node_id(name), (ring_seq or {}).get(name, 0)) for name in names}

    def _seat(self, me: NodeId, ring_seq: int) -> Seat:
        return Seat(me.name, Engine(config(me.name, window=self._window), me, ring_seq))

    def __getitem__(self, name: str) -> Seat:
        return self.seats[name]

    # --- time -------------------------------------------------------------------------------------------------------

    def start(self, *names: str) -> None:
        for name in names or self.seats:
            self.seats[name].engine.prepare(self.now)
            self.seats[name].engine.start(self.now)
            self.carry(name)

    def run(self, for_us: int) -> None:
        until = self.now + for_us
        while self._next() <= until:
            self.step()
        self.now = until

    def run_until(self, done: Callable[[], bool]) -> None:
        for _ in range(STEPS_MAX):
            if done():
                return
            self.step()
        raise AssertionError(f"not reached within {STEPS_MAX} steps: {[seat.engine.state for seat in self.seats.values()]}")

    def step(self) -> None:
        """One arrival or one turn of timers, whichever is next; arrivals first."""
        self.now = self._next()
        assert self.now < NEVER, "nothing will ever happen again"
        if self._queue and self._queue[0][0] <= self.now:
            heappop(self._queue)[2]()
            return
        for name, seat in self.seats.items():
            if seat.engine.deadline() <= self.now:
                seat.engine.wake(self.now)
                self.carry(name)
                return

    def lose_all(self) -> None:
        """Whatever is on its way arrives nowhere."""
        self._queue.clear()

    def _next(self) -> int:
        arrival = self._queue[0][0] if self._queue else NEVER
        return max(self.now, min([arrival, *(seat.engine.deadline() for seat in self.seats.values())]))

    def _later(self, after_us: int, step: Callable[[], None]) -> None:
        self._count += 1
        heappush(self._queue, (self.now + after_us, self._count, step))

    # --- doors ------------------------------------------------------------------------------------------------------

    def submit(self, name: str, service: Service, *texts: str, lane: Lane = Lane.APPLICATION) -> int:
        seat = self.seats[name]
        run = OutboundRun(0, b"", service, seat.counter + 1, [text.encode() for text in texts])
        taken = seat.engine.submit(self.now, lane, run)
        seat.counter += taken
        self.carry(name)
        return taken

    def restart(self, name: str) -> None:
        """A crash and at once a new life, with the ring sequence that the old one had reserved on disk."""
        durable = [output.value for output in self.seats[name].log if isinstance(output, Persist)]
        self.seats[name] = self._seat(node_id(name, 2), durable[-1])
        self.start(name)

    def leave(self, name: str) -> None:
        self.seats[name].engine.leave(self.now)
        self.carry(name)

    def hand(self, name: str, *packets: Packet) -> list[Output]:
        """Give packets to an engine outside the network; what it puts out is carried out and returned."""
        self.seats[name].engine.receive(self.now, packets)
        return self.carry(name)

    def persisted(self, name: str, ticket: int) -> None:
        self.seats[name].engine.persisted(self.now, ticket)
        self.carry(name)

    # --- outputs ----------------------------------------------------------------------------------------------------

    def carry(self, name: str) -> list[Output]:
        """Carry out what an engine wants, in order; opening a lane may produce more. Counts of traps are left out."""
        seat = self.seats[name]
        seat.engine.check()
        carried: list[Output] = []
        while outputs := seat.engine.take_outputs():
            carried += outputs
            for output in outputs:
                self._carry_one(seat, output)
        return [output for output in carried if not (isinstance(output, Note) and output.what == "trap")]

    def _carry_one(self, seat: Seat, output: Output) -> None:
        seat.log.append(output)
        match output:
            case Send():
                self._send(seat, output)
            case Persist():
                self._write(seat, output)
            case Configure():
                seat.views.append(output.view)
                if output.view.id.is_regular:
                    seat.assembler.reset()
                    seat.engine.open(self.now, Lane.APPLICATION)
            case Deliver():
                self._deliver(seat, output)

    def _write(self, seat: Seat, persist: Persist) -> None:
        if self.disk_us is None:
            self.unwritten.append((seat.name, persist))
        else:
            self._later(self.disk_us, lambda: self.persisted(seat.name, persist.ticket))

    def _deliver(self, seat: Seat, output: Deliver) -> None:
        burst, sender, view_id, phase, early, place_seq = output
        assert isinstance(burst, Burst)
        regular = next(view for view in seat.views if view.id == view_id)
        for run in seat.assembler.feed(burst, sender, view_id, phase, early, place_seq):
            for payload in run.payloads:
                seat.heard.append(Heard(bytes(payload).decode(), names(regular), phase.name.lower()))

    def _send(self, seat: Seat, send: Send) -> None:
        for target in self.seats.values():
            if target is seat or not (isinstance(send.to, Audience) or send.to.name == target.name):
                continue
            self._dispatch(seat.name, target, send)

    def _dispatch(self, source: str, target: Seat, send: Send) -> None:
        for packet in read(target.parts, source, send.datagrams):
            journey = Journey(source, target.name, send.port, packet)
            self.journeys.append(journey)
            if any(drop(journey) for drop in self.drops):
                continue
            for delay in (0, *(after for verdict, after in self.copies if verdict(journey))):
                self._later(HOP_US + delay, partial(self._arrive, target, packet))

    def _arrive(self, target: Seat, packet: Packet) -> None:
        """Tokens are mutable and belong to whoever receives them, so each arrival gets its own copy."""
        own = replace(packet, rtr=list(packet.rtr)) if isinstance(packet, Token) else packet
        target.engine.receive(self.now, [own])
        self.carry(target.name)

    # --- looking in -------------------------------------------------------------------------------------------------

    @property
    def is_still(self) -> bool:
        """Nothing is on its way: whoever has the token holds it."""
        return not self._queue

    def all_in(self, members: str, of: str | None = None) -> bool:
        """Is everybody of `of` (all of `members` unless told) in Operational in the regular view of `members`?"""
        return all(
            seat.engine.state is State.OPERATIONAL and bool(seat.views) and names(seat.views[-1]) == members
            for seat in (self.seats[name] for name in of or members)
        )

    def form(self, members: str) -> RingId:
        """Start everybody and wait for their common ring."""
        self.start(*members)
        self.run_until(lambda: self.all_in(members))
        return self.seats[members[0]].engine.ring_id

    def texts(self, name: str) -> list[str]:
        return [heard.text for heard in self.seats[name].heard]


def in_commit(members: str) -> tuple[Table, Commit]:
    """The first two of three members on their way to a ring of two: the second waits for the rotation that is returned."""
    table = Table(members)
    table.form(members)
    known = len(table.journeys)
    table.drops += [cut_off(members[2]), lambda journey: isinstance(journey.packet, Commit) and journey.packet.rotation == 2]
    second: list[Commit] = []
    while not second:
        table.step()
        packets = [journey.packet for journey in table.journeys[known:]]
        second = [packet for packet in packets if isinstance(packet, Commit) and packet.rotation == 2]
    table.drops.pop()
    return table, second[0]


def names(view: View) -> str:
    return "".join(node.name for node in view.nodes)


def _word(output: Configure | Deliver) -> str:
    if isinstance(output, Configure):
        return f"{output.view.kind.name.lower()} {names(output.view)}"
    return f"deliver {output.burst.first_seq}..{output.burst.last_seq} {output.phase.name.lower()}"
