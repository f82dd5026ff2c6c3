"""A few Lansis engines driven by hand: virtual time, a lossless network with one fixed delay, and doors to interfere.

The network is the same for every test; what a test wants to go wrong it says in `drops` and `copies`. What arrives passes through
the wire room, so that engines meet packets exactly as they leave a node.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from heapq import heappop, heappush
from typing import NamedTuple

from transis.lansis.engine import Engine
from transis.lansis.states import State
from transis.model.config import Config, Pulse, Timing, Window
from transis.model.contract import (
    NEVER,
    Audience,
    Configure,
    Deliver,
    Lane,
    Note,
    OutboundRun,
    Output,
    Port,
    Send,
)
from transis.model.ids import NodeId
from transis.model.service import Service
from transis.model.view import View
from transis.ordering.engine import Packet
from transis.wire.alive import KIND_ALIVE, Alive, decode_alive
from transis.wire.burst import Burst, read_bursts
from transis.wire.control import decode_control
from transis.wire.header import KIND_DATA
from transis.wire.lansis_packets import Flushed, Statement
from transis.wire.packets import Beacon
from transis.wire.parts import PartAssembler
from transis.wire.rejection import Rejection
from transis.wire.stream import Assembler

HOP_US = 100
"""What one datagram takes, always."""
STEPS_MAX = 40_000
PULSE = Pulse()
TIMING = Timing()


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


def is_alive(journey: Journey) -> bool:
    return isinstance(journey.packet, Alive)


def is_statement(journey: Journey) -> bool:
    return isinstance(journey.packet, Statement)


def is_flushed(journey: Journey) -> bool:
    return isinstance(journey.packet, Flushed)


def is_beacon(journey: Journey) -> bool:
    return isinstance(journey.packet, Beacon)


def both(*verdicts: Verdict) -> Verdict:
    return lambda journey: all(verdict(journey) for verdict in verdicts)


def node_id(name: str, incarnation: int = 1) -> NodeId:
    return NodeId(name, incarnation, 1000 * incarnation + ord(name[0]))


def config(
    name: str, *, timing: Timing = TIMING, pulse: Pulse = PULSE, window: Window | None = None, mode: str = "evs"
) -> Config:
    given = Config(name, address=f"{name}:1", timing=timing, window=window or Window(), engine="lansis", mode=mode, pulse=pulse)
    return given.validated()


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
        packet = decode_alive(whole) if whole[0] == KIND_ALIVE else decode_control(whole)
        assert not isinstance(packet, Rejection), packet
        packets.append(packet)
    return packets


class Seat:
    """One engine with everything it ever put out."""

    def __init__(self, me: NodeId, engine: Engine) -> None:
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
        """Views, regular and transitional, in the order in which they came out."""
        return [f"{view.kind.name.lower()} {names(view)}" for view in self.views]


class Table:
    """Engines around one table."""

    def __init__(self, members: str, *, window: Window | None = None, pulse: Pulse = PULSE, mode: str = "evs") -> None:
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
        self._window = window
        self._pulse = pulse
        self._mode = mode
        self.seats = {name: self._seat(node_id(name)) for name in members}
        self.dead: list[Seat] = []

    def _seat(self, me: NodeId) -> Seat:
        return Seat(me, Engine(config(me.name, window=self._window, pulse=self._pulse, mode=self._mode), me, 0))

    def __getitem__(self, name: str) -> Seat:
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
        old = self.seats[name].me
        self.crash(name)
        self.seats[name] = self._seat(node_id(name, old.incarnation + 1))
        self.seats = dict(sorted(self.seats.items()))
        self.start(name)

    def leave(self, name: str) -> None:
        self.seats[name].engine.leave(self.now)
        self.carry(name)

    def hand(self, name: str, *packets: Packet) -> list[Output]:
        """Give packets to an engine outside the network; what it puts out is carried out and returned."""
        self.seats[name].engine.receive(self.now, packets)
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

    def _carry_one(self, seat: Seat, output: Output) -> None:
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

    def _deliver(self, seat: Seat, output: Deliver) -> None:
        assert isinstance(output.burst, Burst)
        regular = next(view for view in seat.views if view.id == output.view)
        runs = seat.assembler.feed(output.burst, output.sender, output.view, output.phase, output.early, output.place_seq)
        for run in runs:
            for payload in run.payloads:
                seat.heard.append(Heard(bytes(payload).decode(), names(regular), output.phase.name.lower()))

    def _send(self, seat: Seat, send: Send) -> None:
        for target in self.seats.values():
            if target is seat or not target.is_started or not (isinstance(send.to, Audience) or send.to == target.me):
                continue
            self._dispatch(seat.name, target, send)

    def _dispatch(self, source: str, target: Seat, send: Send) -> None:
        for packet in read(target.parts, source, send.datagrams):
            journey = Journey(source, target.name, send.port, packet)
            self.journeys.append(journey)
            if any(drop(journey) for drop in self.drops):
                continue
            slow = sum(after for verdict, after in self.delays if verdict(journey))
            for delay in (0, *(after for verdict, after in self.copies if verdict(journey))):
                self._later(HOP_US + slow + delay, partial(self._arrive, target, packet))

    def _arrive(self, target: Seat, packet: Packet) -> None:
        if self.seats.get(target.name) is target:
            target.engine.receive(self.now, [packet])
            self.carry(target.name)

    # --- looking in -------------------------------------------------------------------------------------------------

    def all_in(self, members: str, of: str | None = None) -> bool:
        """Is everybody of `of` (all of `members` unless told) in Operational in the regular view of `members`?"""
        return all(
            seat.engine.state is State.OPERATIONAL and bool(seat.views) and names(seat.views[-1]) == members
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


def brought_to(state: State, mode: str = "evs") -> Table:
    """`a` in the state asked for: because `c` starts beside `a` and `b`, or because it was lost; FLUSHED comes to nobody."""
    table = Table("abc", mode=mode)
    joins = state in (State.STAGE_1, State.STAGE_2)
    table.form("ab" if joins else "abc")
    table.run(100_000)
    table.drops.append(is_flushed)
    if joins:
        table.start("c")
    elif state is not State.OPERATIONAL:
        table.crash("c")
    table.run_until(lambda: table["a"].engine.state is state)
    return table


def heard_by_one(table: Table, odd: str, members: str) -> list[Alive]:
    """The next view of `members` is flushed by all and installed by `odd` alone, which nobody hears any more.

    What it says of itself in that view is returned, to be handed to the others late.
    """
    held_back: list[Alive] = []

    def is_held_back(journey: Journey) -> bool:
        is_there = journey.source == odd and table[odd].view == members
        if is_there and isinstance(journey.packet, Alive):
            held_back.append(journey.packet)
        return is_there or (journey.source == odd and bool(held_back))

    def is_first_promise(journey: Journey) -> bool:
        return is_flushed(journey) and journey.target != odd and not held_back

    table.drops += [is_held_back, is_first_promise]
    table.run_until(lambda: bool(held_back))
    return held_back
