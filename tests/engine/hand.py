"""A few engines driven by hand: virtual time, a lossless network with one fixed delay, and doors to interfere.

The network is the same for every test of every engine; what a test wants to go wrong it says in `drops`, `copies` and `delays`.
What arrives passes through the wire room, so that engines meet packets exactly as they leave a node.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from heapq import heappop, heappush
from typing import Generic, NamedTuple, TypeVar

from transis.engine.base import Engine, Packet
from transis.totem.packets import Token
from transis.types.errors import Rejection
from transis.types.ids import NodeId, Service
from transis.types.outputs import NEVER, Audience, Configure, Deliver, Lane, Note, OutboundRun, Output, Port, Send
from transis.types.views import View
from transis.wire.burst import KIND_DATA, Burst, read_bursts
from transis.wire.control import PartAssembler, Probe, ProbeAnswer, decode_control
from transis.wire.envelope import transmitter_tag
from transis.wire.reassembly import Assembler

HOP_US = 100
"""What one datagram takes, always."""
STEPS_MAX = 40_000
OPERATIONAL = "Operational"
"""By this name traces and tests know the state of an installed view, whichever the engine."""

E = TypeVar("E", bound=Engine)


class Heard(NamedTuple):
    """One delivered message: its text, the members of its regular view, and the phase in which it came."""

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


def one_way(source: str, target: str) -> Verdict:
    return lambda journey: journey.source == source and journey.target == target


def is_data(journey: Journey) -> bool:
    return isinstance(journey.packet, Burst)


def both(*verdicts: Verdict) -> Verdict:
    return lambda journey: all(verdict(journey) for verdict in verdicts)


def node_id(name: str, incarnation: int = 1) -> NodeId:
    return NodeId(name, incarnation, 1000 * incarnation + ord(name[0]))


def read(parts: PartAssembler, source: str, datagrams: Sequence[bytes]) -> list[Packet]:
    """From bytes to packets; engines send nothing that the wire room would reject."""
    bursts, rejections = read_bursts([datagram for datagram in datagrams if datagram[0] == KIND_DATA])
    assert rejections == []
    packets: list[Packet] = list(bursts)
    for datagram in datagrams:
        if datagram[0] == KIND_DATA:
            continue
        whole = parts.feed(source.encode(), datagram)
        if whole is None:
            continue
        assert not isinstance(whole, Rejection), whole
        packet = decode_control(whole)
        assert not isinstance(packet, Rejection | Probe | ProbeAnswer), packet
        packets.append(packet)
    return packets


class Seat(Generic[E]):
    """One engine with everything it ever put out."""

    def __init__(self, me: NodeId, engine: E) -> None:
        self.me = me
        self.name = me.name
        self.engine = engine
        self.log: list[Output] = []
        self.heard: list[Heard] = []
        self.views: list[View] = []
        self.parts = PartAssembler()
        self.assembler = Assembler()
        self.counter = 0
        self.is_started = False

    def of(self, kind: type[Output]) -> list[Output]:
        return [output for output in self.log if isinstance(output, kind)]

    def notes(self, what: str) -> list[Note]:
        return [output for output in self.log if isinstance(output, Note) and output.what == what]

    @property
    def traps(self) -> set[str | int]:
        return {note.detail[0][1] for note in self.notes("trap")}

    @property
    def view(self) -> str:
        return names(self.views[-1])

    @property
    def history(self) -> list[str]:
        """Views and deliveries in the order in which they came out."""
        return [_word(output) for output in self.log if isinstance(output, Configure | Deliver)]

    @property
    def views_had(self) -> list[str]:
        """Views, regular and transitional, in the order in which they came out."""
        return [_word(output) for output in self.log if isinstance(output, Configure)]


class HandTable(ABC, Generic[E]):
    """Engines around one table."""

    def __init__(self, members: str) -> None:
        self.now = 0
        self.drops: list[Verdict] = []
        self.copies: list[tuple[Verdict, int]] = []
        """Packets for which the verdict is true arrive once more, so many microseconds later."""
        self.delays: list[tuple[Verdict, int]] = []
        """Packets for which the verdict is true take so much longer."""
        self.journeys: list[Journey] = []
        """Everything that was sent to somebody, dropped or not."""
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0
        self.dead: list[Seat[E]] = []
        self.seats = {name: Seat(me, self.engine(me)) for name, me in ((name, node_id(name)) for name in members)}

    @abstractmethod
    def engine(self, me: NodeId) -> E:
        """The engine of a life that begins."""

    def __getitem__(self, name: str) -> Seat[E]:
        return self.seats[name]

    # --- time -------------------------------------------------------------------------------------------------------

    def start(self, *members: str) -> None:
        for name in members or tuple(self.seats):
            self.seats[name].is_started = True
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

    def crash(self, name: str) -> None:
        """From here on it says nothing and hears nothing."""
        self.dead.append(self.seats.pop(name))

    def restart(self, name: str) -> None:
        """A crash and at once a new life."""
        me = node_id(name, self.seats[name].me.incarnation + 1)
        self.crash(name)
        self.seats[name] = Seat(me, self.engine(me))
        self.seats = dict(sorted(self.seats.items()))
        self.start(name)

    def leave(self, name: str) -> None:
        self.seats[name].engine.leave(self.now)
        self.carry(name)

    def hand(self, name: str, *packets: Packet) -> list[Output]:
        """Give packets to an engine outside the network; what it puts out is carried out and returned."""
        self.seats[name].engine.receive(self.now, packets)
        return self.carry(name)

    def hand_from(self, source: NodeId, name: str, *packets: Packet) -> list[Output]:
        """As the network does: what comes from `source`, by the word of its envelope."""
        self.seats[name].engine.receive(self.now, packets, [transmitter_tag(source)] * len(packets))
        return self.carry(name)

    # --- outputs ----------------------------------------------------------------------------------------------------

    def carry(self, name: str) -> list[Output]:
        """Carry out what an engine wants, in order; opening a lane may produce more. Counts of traps are left out."""
        seat = self.seats[name]
        carried: list[Output] = []
        while outputs := seat.engine.take_outputs():
            carried += outputs
            for output in outputs:
                self._carry_one(seat, output)
        seat.engine.check()
        return [output for output in carried if not (isinstance(output, Note) and output.what == "trap")]

    def _carry_one(self, seat: Seat[E], output: Output) -> None:
        seat.log.append(output)
        match output:
            case Send():
                self._send(seat, output)
            case Configure():
                seat.views.append(output.view)
                if output.view.id.is_regular:
                    seat.assembler.reset()
                    seat.engine.open(self.now, Lane.APPLICATION)
            case Deliver():
                self._deliver(seat, output)

    def _deliver(self, seat: Seat[E], output: Deliver) -> None:
        assert isinstance(output.burst, Burst)
        regular = next(view for view in seat.views if view.id == output.view)
        runs = seat.assembler.feed(output.burst, output.sender, output.view, output.phase, output.early, output.place_seq)
        for run in runs:
            for payload in run.payloads:
                seat.heard.append(Heard(bytes(payload).decode(), names(regular), output.phase.name.lower()))

    def _send(self, seat: Seat[E], send: Send) -> None:
        for target in self.seats.values():
            if target is seat or not target.is_started or not (isinstance(send.to, Audience) or send.to == target.me):
                continue
            self._dispatch(seat.me, target, send)

    def _dispatch(self, source: NodeId, target: Seat[E], send: Send) -> None:
        for packet in read(target.parts, source.name, send.datagrams):
            journey = Journey(source.name, target.name, send.port, packet)
            self.journeys.append(journey)
            if any(drop(journey) for drop in self.drops):
                continue
            slow = sum(after for verdict, after in self.delays if verdict(journey))
            for delay in (0, *(after for verdict, after in self.copies if verdict(journey))):
                self._later(HOP_US + slow + delay, partial(self._arrive, source, target, packet))

    def _arrive(self, source: NodeId, target: Seat[E], packet: Packet) -> None:
        """Tokens are mutable and belong to whoever receives them, so each arrival gets its own copy."""
        if self.seats.get(target.name) is target:
            own = replace(packet, rtr=list(packet.rtr)) if isinstance(packet, Token) else packet
            target.engine.receive(self.now, [own], [transmitter_tag(source)])
            self.carry(target.name)

    # --- looking in -------------------------------------------------------------------------------------------------

    def all_in(self, members: str, of: str | None = None) -> bool:
        """Is everybody of `of` (all of `members` unless told) in Operational in the regular view of `members`?"""
        return all(
            seat.engine.state.value == OPERATIONAL and bool(seat.views) and names(seat.views[-1]) == members
            for seat in (self.seats[name] for name in of or members)
        )

    def form(self, members: str) -> None:
        """Start everybody and wait for their common view."""
        self.start(*members)
        self.run_until(lambda: self.all_in(members))

    def texts(self, name: str) -> list[str]:
        return [heard.text for heard in self.seats[name].heard]


def names(view: View) -> str:
    return "".join(node.name for node in view.nodes)


def _word(output: Configure | Deliver) -> str:
    if isinstance(output, Configure):
        return f"{output.view.kind.name.lower()} {names(output.view)}"
    return f"deliver {output.burst.first_seq}..{output.burst.last_seq} {output.phase.name.lower()}"
