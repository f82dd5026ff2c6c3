"""A host: one node at a time on a disk, a clock and three sockets with finite buffers.

It drives its node as the real driver does: what waits in the sockets is handed over before any timer fires, data before control
before token, and data that wait together are handed over together. Observers, effects and sessions come in the same order, but
output by output: a node may die between any two, and what it had not carried out then never happened.
"""

from __future__ import annotations

import traceback
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from transis.sim.faults import Ambush
from transis.sim.life import ClientAction, SimulatedLife, Submission
from transis.sim.network import Journey
from transis.types.config import Config
from transis.types.errors import IdentityError
from transis.types.outputs import (
    EFFECTS,
    HAND_OVER,
    NEVER,
    Checkpoint,
    Delivered,
    NodeOutput,
    Note,
    Persist,
    Port,
    ProcessConnected,
    ProcessGone,
    Stopped,
    Transmit,
)

if TYPE_CHECKING:
    from transis.sim.world import World


# --- clock ------------------------------------------------------------------------------------------------------------

MILLION = 1_000_000


class Clock(NamedTuple):
    """A clock with an offset of its own that runs a little fast or slow: local = virtual + offset + drift.

    Integers only, so that converting a time there and back gives the same on every machine. The clock belongs to the host and
    survives its nodes (CLOCK_BOOTTIME). `drift_ppm` is far above -1,000,000, so it never runs backwards.
    """

    offset_us: int = 0
    drift_ppm: int = 0

    def local(self, virtual: int) -> int:
        return virtual + self.offset_us + virtual * self.drift_ppm // MILLION

    def virtual(self, local: int) -> int:
        """The first virtual time at which this clock shows at least `local`."""
        guess = (local - self.offset_us) * MILLION // (MILLION + self.drift_ppm)
        while self.local(guess) >= local:
            guess -= 1
        while self.local(guess) < local:
            guess += 1
        return guess


# --- disk -------------------------------------------------------------------------------------------------------------


class Write(NamedTuple):
    ticket: int
    key: str
    value: int


class Disk:
    """1. `durable` changes only when a write completes, or when a crash keeps it, which the harness draws.
    2. Writes complete in the order in which they were handed over.
    """

    def __init__(self, durable: dict[str, int] | None = None) -> None:
        self.durable: dict[str, int] = dict(durable or {})
        self._waiting: list[Write] = []

    def write(self, write: Write) -> None:
        self._waiting.append(write)

    def complete(self) -> int:
        """The oldest write becomes durable; returns its ticket."""
        assert self._waiting, "nothing to complete"
        write = self._waiting.pop(0)
        self.durable[write.key] = write.value
        return write.ticket

    def crash(self, kept: Callable[[], bool]) -> int:
        """Power is cut: each waiting write is kept or lost. Returns how many were lost."""
        lost = 0
        for write in self._waiting:
            if kept():
                self.durable[write.key] = write.value
            else:
                lost += 1
        self._waiting.clear()
        return lost

    def copy(self) -> Disk:
        """A copy of the state directory, made while the node runs."""
        return Disk(self.durable)


# --- host -------------------------------------------------------------------------------------------------------------

SUBMISSIONS_MAX: Final = 64
"""Calls of applications that wait while their node is paused."""

MOMENTS: Final = {"received": "Received", "flushed": "Flushed"}
"""Notes that mark a moment for which an ambush may wait."""

UNCOUNTED: Final = frozenset({ProcessConnected, ProcessGone, Checkpoint})
"""Outputs that a `crash_after` does not count: they report what a process did, not what the node did."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What a host can do: time per turn and per datagram, and bytes that a socket holds."""

    turn_us: int = 5
    datagram_us: int = 1
    buffer_bytes: int = 1 << 20


class Host:
    """1. At most one turn is arranged, at `_turn_at`; what was arranged earlier for another time is void.
    2. A socket never holds more than `machine.buffer_bytes`: what does not fit is lost.
    3. Without a life everything that arrives is lost.
    """

    def __init__(self, world: World, address: str, config: Config, clock: Clock, machine: Machine) -> None:
        self.address = address
        self.config = config
        self.clock = clock
        self.machine = machine
        self.disk = Disk()
        self.life: SimulatedLife | None = None
        self.paused = False
        self.slow_us = 0
        self.overflowed = 0
        self.ambushes: list[Ambush] = []
        self.crash_after = -1
        self._world = world
        self._sockets: tuple[deque[Sequence[bytes]], ...] = (deque(), deque(), deque())
        self._held_bytes = [0, 0, 0]
        self._completed: deque[int] = deque()
        self._submissions: deque[Submission | ClientAction] = deque()
        self._busy_until = 0
        self._turn_at = NEVER

    @property
    def state(self) -> str:
        return "down" if self.life is None else self.life.node.state

    # -- births and deaths ---------------------------------------------------------------------------------------

    def start(self, boot: int, memory: str = "") -> None:
        """A new life from what the disk holds; a node that may not run here is refused and stays down.

        `memory` says in the trace that the directory is not the node's own (`copied`) or is gone (`lost`).
        """
        assert self.life is None, f"{self.address} runs already"
        world = self._world
        try:
            node = world.make_node(replace(self.config, plaintext=world.key is None), dict(self.disk.durable), boot, world.key)
        except IdentityError as refusal:
            world.note_refusal(self, str(refusal))
            return
        self.life = SimulatedLife(self.address, node, world.now, memory)
        self.life.observers += [world.coverage, *world.observers_of(self.life)]
        if world.open_sessions is not None:
            self.life.sessions = world.open_sessions(self, self.life)
        self.paused = False
        world.lives[node.id] = self.life
        if memory:
            self.life.recorder.fault(world.now, f"{memory} state directory")
        self._guarded(lambda: node.start(self.clock.local(world.now)))
        self.arrange()

    def die(self, how: str) -> None:
        """The node is gone: sockets are empty, and writes on their way to the disk are lost or kept."""
        life = self.life
        assert life is not None, f"{self.address} is down already"
        life.ended = how
        for observer in life.observers:
            observer.close(self._world.now, how)
        if how == "failed":
            self.disk.crash(self._world.write_survives)
        else:
            self.disk.crash(lambda: True)
        self.life = None
        self.crash_after = -1
        self._completed.clear()
        self._submissions.clear()
        self._held_bytes = [0, 0, 0]
        for socket in self._sockets:
            socket.clear()

    # -- what reaches it -----------------------------------------------------------------------------------------

    def arrive(self, journey: Journey) -> None:
        if self.life is None or not self._world.network.reaches(journey.source, self.address, journey.port):
            return
        port = journey.port
        datagrams = journey.datagrams
        size = sum(map(len, datagrams))
        if self._held_bytes[port] + size > self.machine.buffer_bytes:
            datagrams, size = self._what_fits(port, datagrams)
        if datagrams:
            self._held_bytes[port] += size
            self._sockets[port].append(datagrams)
            self._arrange_at(self._busy_until)

    def _what_fits(self, port: Port, datagrams: Sequence[bytes]) -> tuple[list[bytes], int]:
        room = self.machine.buffer_bytes - self._held_bytes[port]
        kept: list[bytes] = []
        size = 0
        for datagram in datagrams:
            if size + len(datagram) <= room:
                kept.append(datagram)
                size += len(datagram)
        self.overflowed += len(datagrams) - len(kept)
        return kept, size

    def submit(self, submission: Submission | ClientAction) -> None:
        """Queue a call of an application or a client process for the node's next turn."""
        if self.life is not None and len(self._submissions) < SUBMISSIONS_MAX:
            self._submissions.append(submission)
            self._arrange_at(self._busy_until)

    def written(self, life: SimulatedLife) -> None:
        """A sync completed; it counts only if the life that asked for it still runs."""
        if life is self.life:
            self._completed.append(self.disk.complete())
            self._arrange_at(self._busy_until)

    def leave(self) -> None:
        life = self.life
        if life is not None:
            self._guarded(lambda: life.node.leave(self.clock.local(self._world.now)))
            self.arrange()

    def resume(self) -> None:
        self.paused = False
        self.arrange()

    def quicken(self) -> None:
        """The machine is fast again, and the backlog that it had as a slow one is gone."""
        self.slow_us = 0
        self._busy_until = self._world.now
        self._turn_at = NEVER
        self.arrange()

    # -- turns ---------------------------------------------------------------------------------------------------

    def arrange(self) -> None:
        """Arrange the next turn: at once if something waits, else when the node wants to be woken."""
        life = self.life
        if life is None or self.paused:
            return
        if self._submissions or self._completed or any(self._sockets):
            self._arrange_at(self._busy_until)
            return
        deadline = life.deadline()
        if deadline < NEVER:
            self._arrange_at(max(self.clock.virtual(deadline), self._busy_until))

    def _arrange_at(self, time_us: int) -> None:
        time_us = max(time_us, self._world.now)
        if time_us < self._turn_at and not self.paused:
            self._turn_at = time_us
            self._world.at_turn(time_us, self)

    def turn(self, arranged_at: int) -> None:
        if arranged_at != self._turn_at:
            return
        self._turn_at = NEVER
        life = self.life
        if life is None or self.paused:
            return
        self._guarded(lambda: self._work(life))
        self.arrange()

    def _work(self, life: SimulatedLife) -> None:
        """One turn of the driver: completions, sockets, applications, and only then timers."""
        local = self.clock.local(self._world.now)
        node = life.node
        while self._completed and self.life is life:
            node.persisted(local, self._completed.popleft())
            self._carry_out(life)
        handled = self._drain(life, local)
        while self._submissions and self.life is life:
            self._call(life, local, self._submissions.popleft())
            self._carry_out(life)
        if self.life is life and life.wake(local):
            self._carry_out(life)
        busy = self.machine.turn_us + handled * (self.machine.datagram_us + self.slow_us)
        self._busy_until = self._world.now + max(1, busy)
        if self.life is life and self._world.check_is_due():
            life.check()

    def _call(self, life: SimulatedLife, local: int, call: Submission | ClientAction) -> None:
        if isinstance(call, Submission):
            life.submit(local, call)
        elif life.clients is not None:
            life.clients.ask(local, call)

    def _drain(self, life: SimulatedLife, local: int) -> int:
        """Hand over what the sockets hold; bursts that wait on the data socket become one."""
        handled = 0
        for port in HAND_OVER:
            for burst in self._take(port):
                handled += len(burst)
                life.node.receive(local, port, burst)
                self._carry_out(life)
                if self.life is not life:
                    return handled
        return handled

    def _take(self, port: Port) -> list[Sequence[bytes]]:
        socket = self._sockets[port]
        bursts = list(socket)
        socket.clear()
        self._held_bytes[port] = 0
        if port is Port.DATA and len(bursts) > 1:
            return [[datagram for burst in bursts for datagram in burst]]
        return bursts

    def _guarded(self, step: Callable[[], None]) -> None:
        """Whatever a node raises is a finding, not the end of the simulation; then its outputs are carried out."""
        life = self.life
        assert life is not None
        try:
            step()
            if self.life is life:
                self._carry_out(life)
        except Exception:
            self._world.note_exception(self, traceback.format_exc())
            if self.life is life:
                self.die("failed")
        for observer in life.observers:
            if observer.keeps_evidence:
                observer.flush()

    # -- outputs -------------------------------------------------------------------------------------------------

    def _carry_out(self, life: SimulatedLife) -> None:
        for output in life.node.outputs():
            kind = type(output)
            if self.crash_after >= 0 and kind not in UNCOUNTED:
                if self.crash_after == 0:
                    self.die("failed")
                    return
                self.crash_after -= 1
            for observer in life.observers:
                if kind in observer.kinds:
                    observer.observe(self._world.now, (output,))
            carry = _CARRY.get(kind)
            if carry is not None:
                carry(self, life, output)
            if life.sessions is not None and not isinstance(output, EFFECTS):
                life.sessions.hear(output)
            if self.life is not life:
                return
        if life.ended:
            self.die(life.ended)

    def _transmit(self, life: SimulatedLife, output: Transmit) -> None:
        self._world.transmit(self, output)

    def _persist(self, life: SimulatedLife, output: Persist) -> None:
        self.disk.write(Write(output.ticket, output.key, output.value))
        self._world.sync(self, life)
        self._world.moment(self, "Persist")

    def _delivered(self, life: SimulatedLife, output: Delivered) -> None:
        self._world.verify(life, output)

    def _note(self, life: SimulatedLife, output: Note) -> None:
        if output.what == "state":
            self._world.moment(self, str(dict(output.detail)["to"]))
        elif output.what in MOMENTS:
            self._world.moment(self, MOMENTS[output.what])

    def _stopped(self, life: SimulatedLife, output: Stopped) -> None:
        self._world.note_stop(self, output.why)
        life.ended = "stopped"


_CARRY: Final[dict[type[NodeOutput], Callable[[Host, SimulatedLife, Any], None]]] = {
    Transmit: Host._transmit,
    Persist: Host._persist,
    Delivered: Host._delivered,
    Note: Host._note,
    Stopped: Host._stopped,
}
"""Effects, and what the harness does with each kind of news. Reach needs nothing: on this LAN every host hears a multicast."""
