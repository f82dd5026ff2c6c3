"""Sessions on a simulated host: the code of a real node's (sessions/host.py), with clients that are programs in virtual time.

1. Clients' frames wait as in sockets, even while the node is paused. Each turn of the node handles one, and clients take turns:
   after everything that the node handed out before was carried out and recorded, so that the trace has what a client does in its
   true order.
2. For the same reason the sessions hear of the node's outputs in the turn after them.
3. Frames for clients leave some microseconds later. What has not left when a node crashes, no client sees.
4. The harness learns of these clients what it knows of its own client processes: who is connected, who wants to be in which
   group, and which bytes were sent.
5. Every message that a client sent has an end, and the client is told it once: delivered or refused, or its session is over.

A connection is to a session what a Unix socket is on a real machine (client/link.py has the contract), without bytes: frames in
memory, a few microseconds either way, in order. All callbacks of a session run in its event loop.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from transis.client.link import OnFrames, OnLost
from transis.node.node import Node
from transis.sessions.frames import ClientFrame, Done, Goodbye, Hello, Join, Leave, NodeFrame, NotSent, Send
from transis.sessions.host import HEARD, SessionHost, SessionPolicy
from transis.sessions.queues import Turns
from transis.sim.host import Host
from transis.sim.life import Clients, SimulatedLife
from transis.sim.world import World
from transis.testing.loop import VirtualLoop
from transis.types.errors import UsageError
from transis.types.outputs import Delivered, News

AT_ONCE: Final = 0
"""A deadline that has always passed."""

HOP_US: Final = (10, 60)
"""The least and the most that a frame takes between a client and its node."""


class SimulatedSessions:
    """`_links` has the connection of each process that is not over; `under_way` counts what clients sent and has not arrived, and
    `_open` the messages of each whose end it was not told."""

    def __init__(
        self, world: World, host: Host, life: SimulatedLife, policy: SessionPolicy, host_of: type[SessionHost] = SessionHost
    ) -> None:
        assert isinstance(life.node, Node)
        self.life = life
        self._sessions = host_of(life.node, host.config.cluster, policy)
        self._world = world
        self._host = host
        self._turns: Turns[SimulatedLink] = Turns()
        self._now = 0
        self._unheard: list[News] = []
        self._links: dict[int, SimulatedLink] = {}
        self._open: dict[int, int] = {}
        self._flush_arranged = False
        self.under_way = 0

    @property
    def is_idle(self) -> bool:
        """Nothing of a session is on its way to the node or to its client, and nothing waits for a turn."""
        return not (self.under_way or self._turns or self._unheard or self._flush_arranged or self._sessions.ready())

    @property
    def open_receipts(self) -> int:
        """Messages of clients whose sessions last, and who were not told what became of them."""
        return sum(self._open.values())

    # --- turns ------------------------------------------------------------------------------------------------------

    def hear(self, output: News) -> None:
        """Of deliveries the sessions need only those of their own node's messages: the others reach them through groups."""
        if type(output) in HEARD and not (isinstance(output, Delivered) and output.process.node != self.life.id):
            self._unheard.append(output)

    def deadline(self) -> int:
        if self._turns or self._unheard or self._sessions.is_busy or (self._sessions.ready() and not self._flush_arranged):
            return AT_ONCE
        return self._sessions.deadline()

    def wake(self, now: int) -> None:
        if self._unheard:
            news, self._unheard = self._unheard, []
            self._sessions.hear(now, news)
        elif self._sessions.deadline() <= now:
            self._sessions.wake(now)
        elif self._sessions.is_busy:
            self._sessions.go_on(now)
        elif self._turns:
            self._now = now
            self._turns.work(lambda: False)
        self._arrange_flush()

    def check(self) -> None:
        self._sessions.check()

    # --- connections ------------------------------------------------------------------------------------------------

    def arrive(self, link: SimulatedLink, frames: Sequence[ClientFrame | None]) -> None:
        """Frames of a client, None for the end of its connection."""
        link.said.extend(frames)
        self._turns.add(link)
        self._host.arrange()

    def attend(self, link: SimulatedLink, frame: ClientFrame | None) -> None:
        now = self._now
        if isinstance(frame, Hello) and link.process is None:
            self._welcome(now, link, frame)
        elif link.process is None or link.process not in self._links:
            return
        elif frame is None:
            self._is_over(link.process)
            self._sessions.forget(now, link.process)
        else:
            self._sessions.receive(now, link.process, frame)
            self._tell_harness(link.process, frame)

    def _tell_harness(self, process: int, frame: ClientFrame) -> None:
        """Report what liveness and the comparison of bytes need. A session takes all of a Send, in order, or ends."""
        if isinstance(frame, Send):
            self.life.payloads.setdefault(process, []).extend(frame.payloads)
            self._open[process] = self._open.get(process, 0) + len(frame.payloads)
        elif isinstance(frame, Join | Leave) and process in self._clients.wanted:
            self._clients.wanted[process] = self._sessions.wanted(process)

    @property
    def _clients(self) -> Clients:
        clients = self.life.clients
        assert clients is not None, "a node with groups has clients"
        return clients

    def _welcome(self, now: int, link: SimulatedLink, hello: Hello) -> None:
        try:
            link.process = self._sessions.connect(now, hello)
        except UsageError as refusal:
            link.arrived([Goodbye(str(refusal))])
        else:
            self._links[link.process] = link

    def _arrange_flush(self) -> None:
        if not self._flush_arranged and self._sessions.ready():
            self._flush_arranged = True
            hop_us = self._world.streams["sessions"].between(*HOP_US)
            self._world.at(self._world.now + hop_us, self._flush, None)

    def _flush(self, _: None) -> None:
        """A node that is paused by now does not write until it goes on."""
        self._flush_arranged = False
        if self._host.life is self.life and not self._host.paused:
            self._write()
            self._host.arrange()

    def _write(self) -> None:
        for process in self._sessions.ready():
            frames: list[NodeFrame] = [out.frame for out in self._sessions.take(process)]
            link = self._links.get(process)
            if link is not None:
                self._settle(process, frames)
                link.arrived(frames)
                if isinstance(frames[-1], Goodbye):
                    self._is_over(process)

    def _settle(self, process: int, frames: Sequence[NodeFrame]) -> None:
        told = sum(frame.count for frame in frames if isinstance(frame, Done | NotSent))
        if told:
            self._open[process] = self._open.get(process, 0) - told
            assert self._open[process] >= 0, f"{self.life.id}#{process} is told more ends than it sent messages"

    def _is_over(self, process: int) -> None:
        del self._links[process]
        self._open.pop(process, None)

    def died(self) -> None:
        """A node that stopped has told its clients why; if it crashed, their connections just break."""
        ended = self.life.ended
        if ended == "stopped":
            self._sessions.hear(self._host.clock.local(self._world.now), self._unheard)
            self._write()
        self._unheard, links, self._links, self._open = [], self._links, {}, {}
        for link in [*links.values(), *self._turns]:
            link.broke("it crashed" if ended == "failed" else f"it {ended}")
            self._turns.drop(link)


WALL_BEGAN_US: Final = 946_684_800_000_000
"""The wall clocks of simulated clients show the year 2000 when the simulation begins: a date that nobody takes for today's."""


class SimulatedLink:
    """`process` is the number that the node gave it."""

    def __init__(self, world: World, loop: VirtualLoop, sessions: SimulatedSessions) -> None:
        self.process: int | None = None
        self.said: deque[ClientFrame | None] = deque()
        self._world = world
        self._loop = loop
        self._sessions = sessions
        self._arrival_us = 0
        self._on_frames: OnFrames | None = None
        self._on_lost: OnLost | None = None
        self._is_over = False

    @property
    def peer(self) -> str:
        return f"the simulated node {self._sessions.life.id.name}"

    # --- the session's side -----------------------------------------------------------------------------------------

    def start(self, on_frames: OnFrames, on_lost: OnLost) -> None:
        self._on_frames, self._on_lost = on_frames, on_lost
        if self._sessions.life.ended:
            self.broke(f"it {self._sessions.life.ended}")

    def send(self, frames: Sequence[ClientFrame]) -> None:
        if not self._is_over:
            self._carry(list(frames))

    def wall_us(self) -> int:
        return WALL_BEGAN_US + self._world.now

    async def close(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._carry([None])

    def _carry(self, frames: list[ClientFrame | None]) -> None:
        world = self._world
        self._arrival_us = max(self._arrival_us, world.now + world.streams["sessions"].between(*HOP_US))
        self._sessions.under_way += 1
        world.at(self._arrival_us, self._arrive, frames)

    # --- the node's side --------------------------------------------------------------------------------------------

    def _arrive(self, frames: list[ClientFrame | None]) -> None:
        self._sessions.under_way -= 1
        if self._sessions.life.ended:
            self.broke(f"it {self._sessions.life.ended}")
        else:
            self._sessions.arrive(self, frames)

    def work_off(self) -> bool:
        self._sessions.attend(self, self.said.popleft())
        return bool(self.said)

    def arrived(self, frames: list[NodeFrame]) -> None:
        if self._on_frames is not None and not self._is_over:
            self._loop.call_soon(self._on_frames, frames)

    def broke(self, why: str) -> None:
        """The node is gone; the session learns of it once."""
        if self._on_lost is not None and not self._is_over:
            self._is_over = True
            self._loop.call_soon(self._on_lost, why)
