"""The driver: runs one node on real sockets, a real clock and a real directory, in one asyncio loop.

1. Data before control before token, as the node wants it; and the sockets are *read* in the opposite order, so that data sent
   before a token that was read is read as well.
2. A timer is believed only when the sockets are empty: a process that was stopped for a while reads what the others said
   meanwhile before it suspects them. A flood cannot put timers off forever: everything that waited when a turn began is
   read within a few rounds.
3. Observers see a turn's outputs first, so that evidence precedes effect. Then effects are carried out in list order, and none is
   held back. Then the sessions get the news: never in the middle of a node's step, and they may submit while they do.
4. Any exception, from the node or from those who get its outputs, ends the node and is raised again by `ended`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Final

from transis.net.runtime import NodeClock, boottime_us
from transis.net.state import StateDirectory, new_boot_id
from transis.net.transport import StatisticsDict, Transport
from transis.node.node import Node
from transis.types.config import Config
from transis.types.errors import UsageError, plainly
from transis.types.ids import Service
from transis.types.outputs import (
    HAND_OVER,
    NEVER,
    Configure,
    News,
    NodeOutput,
    Observer,
    Persist,
    Port,
    Reach,
    Room,
    Stopped,
    Transmit,
)
from transis.types.views import View

ROUNDS_MAX: Final = 8
"""Rounds of reading in one turn. One round reads more than a socket's buffer holds, so these read whatever waited."""
WAKES_MAX: Final = 16
"""Timers that one turn may fire; the next turn fires the others."""
TICK_US: Final = 1_000
"""Event loops sleep in multiples of this."""
SOON_US: Final = 150
"""A timer due within this time is waited for awake. For a later one the loop sleeps whole ticks: uvloop rounds half a tick down
to none, and the node would spin until then instead of leaving the processor to others."""
LEAVE_MARGIN_S: Final = 1.0
"""Beyond the protocol's own patience, how long a clean stop may take before the node is simply gone."""


class Driver:
    """One life of one node. Takes over the transport and the state directory, and closes both.

    `observers` are added before the start, when the node has its id; they are closed with the node.
    """

    def __init__(
        self,
        config: Config,
        transport: Transport,
        state: StateDirectory,
        hear: Callable[[Sequence[News]], None] = lambda news: None,
        *,
        key: bytes | None = None,
        clock: NodeClock | None = None,
    ) -> None:
        self.node = Node(replace(config, address=transport.address), state.stored, new_boot_id(), key)
        self.view: View | None = None
        self.observers: list[Observer] = []
        self.config = config
        self._transport = transport
        self._state = state
        self.hear = hear
        """Sessions, or an application without them; given before the start."""
        self._clock = clock or NodeClock()
        self._writer = ThreadPoolExecutor(1, "transis-state")
        self._room = asyncio.Event()
        self._over = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_for = NEVER
        self._turn_arranged = False
        self._working = False
        self._closed = False
        self._why = ""
        self._failure: Exception | None = None
        self._stopped = False
        self._turns = self._wakes = 0

    # --- life -------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin, in the running loop. Messages are taken from the first view on."""
        if self._loop is not None:
            raise UsageError("a driver runs one life of a node: make a new one to start again")
        self._loop = asyncio.get_running_loop()
        for descriptor in self._transport.files().values():
            self._loop.add_reader(descriptor, self._turn)
        self.node.start(self._clock.now())
        self._soon()

    async def leave(self) -> bool:
        """Leave gracefully and end. False if that took too long and the node ended without a goodbye."""
        if self._loop is None:
            self.close("left before it was started")
        if not self._closed:
            self.node.leave(self._now())
            self._soon()
        patience_s = self.config.timing.leave_us / 1e6 * 2 + LEAVE_MARGIN_S
        while not self._closed:
            try:
                await asyncio.wait_for(self._over.wait(), patience_s)
            except TimeoutError:
                if not self.node.is_busy:  # Work on the groups' last views is our own, and ends.
                    self.close("did not manage to leave in time")
                    return False
        return self._failure is None

    def close(self, why: str = "closed") -> None:
        """End at once, without a goodbye. The others will notice; the trace says `failed`, unless the node had stopped."""
        if self._closed:
            return
        self._closed = True
        self._why = self._why or why
        if self._loop is not None:
            for descriptor in self._transport.files().values():
                self._loop.remove_reader(descriptor)
        if self._timer is not None:
            self._timer.cancel()
        self._transport.close()
        self._writer.shutdown(wait=True, cancel_futures=True)
        self._state.close()
        for observer in self.observers:
            observer.close(boottime_us(), "stopped" if self._stopped else "failed")
        self._room.set()
        self._over.set()

    async def ended(self) -> str:
        """Wait for the end; return why it came. If the node failed, raise what made it fail."""
        await self._over.wait()
        if self._failure is not None:
            raise self._failure
        return self._why

    def _fail(self, failure: Exception) -> None:
        if self._failure is None:
            self._failure = failure
        self.close(f"failed: {plainly(failure)}")

    # --- sending ----------------------------------------------------------------------------------------------------

    def submit(self, service: Service, payloads: Sequence[bytes], address: bytes = b"", process: int = 0) -> int:
        """Take messages for sending; return how many were taken. Room says when there is room for more."""
        if self._closed:
            raise UsageError(f"the node has ended: {self._why}")
        taken = self.node.submit(self._now(), service, payloads, address, process)
        if taken < len(payloads):
            self._room.clear()
        self._soon()
        return taken

    async def send(self, service: Service, payloads: Sequence[bytes], address: bytes = b"", process: int = 0) -> None:
        """Submit all of them, waiting for room as often as needed. When cancelled, what was taken stays taken."""
        taken = self.submit(service, payloads, address, process)
        while taken < len(payloads):
            await self._room.wait()
            taken += self.submit(service, payloads[taken:], address, process)

    def now(self) -> int:
        """The time to pass to the node's other methods. Call `attend` after them."""
        if self._closed:
            raise UsageError(f"the node has ended: {self._why}")
        return self._now()

    def attend(self) -> None:
        """A method of the node was called from outside: carry out its outputs soon."""
        self._soon()

    # --- turns ------------------------------------------------------------------------------------------------------

    def _soon(self) -> None:
        """Arrange one turn; calls before it share it. Inside a turn none is needed: it goes on while there are outputs."""
        if not self._turn_arranged and not self._working and not self._closed and self._loop is not None:
            self._turn_arranged = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._turn_arranged = False
        if self._closed:
            return
        self._working = True
        try:
            self._work()
        except Exception as failure:
            self._fail(failure)
        finally:
            self._working = False
        self._arrange()

    def _work(self) -> None:
        """Read the sockets until they are empty, and only then fire timers."""
        self._turns += 1
        self._carry_out()
        for _ in range(ROUNDS_MAX):
            if self._closed or not self._hand_over():
                break
            self._carry_out()
        for _ in range(WAKES_MAX):
            now = self._attending()
            if self._closed or self.node.deadline() > now:
                break
            self._wakes += 1
            self.node.wake(now)
            self._carry_out()
            if self.node.is_busy:
                break  # Sockets first, then another slice of what the groups have to do.

    def _attending(self) -> int:
        """The time to pass to the node in a turn, without the pauses of this process."""
        self._clock.resume(self.node.engine_deadline())
        return self._clock.now()

    def _now(self) -> int:
        """The time to pass to the node outside a turn, when nobody knows yet what waits in the sockets."""
        return self._clock.passing_by(self.node.engine_deadline())

    def _hand_over(self) -> bool:
        """Give the node what waits in the sockets; False if nothing did."""
        tokens = self._transport.receive(Port.TOKEN)
        control = self._transport.receive(Port.CONTROL)
        data = self._transport.receive(Port.DATA)
        now = self._attending()
        for port, datagrams in zip(HAND_OVER, (data, control, tokens), strict=True):
            if datagrams:
                self.node.receive(now, port, datagrams)
        return bool(data or control or tokens)

    def _arrange(self) -> None:
        """Set the timer for the node's deadline. One that is set too early stays: when it fires, it is set anew."""
        if self._closed or self._loop is None:
            return
        deadline = self.node.deadline()
        if deadline >= self._timer_for:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_for = deadline
        wait_us = deadline - self._clock.now()
        ticks = 0 if wait_us <= SOON_US else -(-wait_us // TICK_US)
        self._timer = self._loop.call_later(ticks * TICK_US / 1e6, self._timer_fired)

    def _timer_fired(self) -> None:
        self._timer, self._timer_for = None, NEVER
        self._turn()

    # --- outputs ----------------------------------------------------------------------------------------------------

    def _carry_out(self) -> None:
        """Evidence, then effects in order, then the sessions; they may have submitted something, so look again."""
        while outputs := self.node.outputs():
            now = boottime_us()
            kinds = set(map(type, outputs))
            for observer in self.observers:
                if not observer.kinds.isdisjoint(kinds):
                    observer.observe(now, outputs)
                if observer.keeps_evidence:
                    observer.flush()
            news = self._take_effect(outputs)
            if news:
                self.hear(news)
            if self._stopped:
                self.close()
            if self._closed:
                return

    def _take_effect(self, outputs: Sequence[NodeOutput]) -> list[News]:
        """Carry out the effects; return the news."""
        news: list[News] = []
        for output in outputs:
            kind = type(output)
            effect = _EFFECTS.get(kind)
            if effect is not None:
                effect(self, output)
                continue
            news.append(output)  # type: ignore[arg-type]  # what is not an effect is news
            if kind in _CONCERNS:
                _CONCERNS[kind](self, output)
        return news

    def _transmit(self, output: Transmit) -> None:
        self._transport.send(output.to, output.port, output.datagrams)

    def _persist(self, output: Persist) -> None:
        """Write in the one thread that writes, in order; the node learns of it in a turn of its own."""
        assert self._loop is not None, "a node asks for nothing before it was started"
        writing = self._loop.run_in_executor(self._writer, self._state.write, output.key, output.value)
        writing.add_done_callback(lambda done: self._written(output.ticket, done))

    def _written(self, ticket: int, done: asyncio.Future[None]) -> None:
        failure = None if done.cancelled() else done.exception()  # Looked at, or it would be called never retrieved.
        if self._closed or done.cancelled():
            return
        if isinstance(failure, Exception):
            self._fail(failure)
            return
        self.node.persisted(self._now(), ticket)
        self._turn()

    def _reach(self, output: Reach) -> None:
        self._transport.install(output.addresses)

    def _configured(self, output: Configure) -> None:
        self.view = output.view
        if output.view.id.is_regular:
            self._room.set()

    def _has_room(self, output: Room) -> None:
        self._room.set()

    def _node_stopped(self, output: Stopped) -> None:
        """The node stopped; the driver ends once the sessions know."""
        self._stopped = True
        self._why = output.why

    # --- looking in -------------------------------------------------------------------------------------------------

    @property
    def warnings(self) -> Sequence[str]:
        return self._transport.warnings

    def statistics(self) -> StatisticsDict:
        own: StatisticsDict = {"state": self.node.state, "turns": self._turns, "wakes": self._wakes, "pauses": self._clock.pauses}
        own |= {"longest_pause_us": self._clock.longest_pause_us, "rejected": sum(self.node.rejections.values())}
        return own | self.node.statistics() | self._transport.statistics()


_EFFECTS: Final[dict[type[NodeOutput], Callable[[Driver, Any], None]]] = {
    Transmit: Driver._transmit,
    Persist: Driver._persist,
    Reach: Driver._reach,
}
_CONCERNS: Final[dict[type[NodeOutput], Callable[[Driver, Any], None]]] = {
    Configure: Driver._configured,
    Room: Driver._has_room,
    Stopped: Driver._node_stopped,
}
"""News that the driver itself needs."""
