"""A simulated node with real sessions.

A simulated node with its sessions: the code of a real one (sessions/host.py), on a simulated host.

The host drives it like any node; its sessions live in its turns:
1. Clients' frames wait in an inbox, as in sockets, also while the node is paused. One is worked off a turn, after everything that
   the node handed out before was carried out and recorded, so that the trace has a client's doings in their true order.
2. For the same reason the sessions hear of the node's outputs in the turn after them.
3. Frames for clients leave some microseconds later. What has not left when a node crashes, no client sees.
4. What clients do is told to the harness as its own client processes are: it knows who is connected, who wants to be in which
   group, and which bytes were sent.

A client's connection to a simulated node: frames in memory, a few microseconds either way, in order.

It is to a session what a Unix socket is on a real machine (client/link.py has the contract), without bytes. Everything that a
session is told runs in its event loop.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final

from transis.client.link import OnFrames, OnLost
from transis.node.node import GroupedNode, GroupedOutput
from transis.sessions.frames import ClientFrame, Goodbye, Hello, NodeFrame
from transis.sessions.host import HostEvent, SessionHost, SessionPolicy
from transis.sim.life import Clients, Life
from transis.sim.world import World
from transis.testing.loop import VirtualLoop
from transis.types.config import Config
from transis.types.errors import UsageError
from transis.types.ids import Service
from transis.types.outputs import (
    Configure,
    Delivered,
    GroupDelivered,
    GroupLeft,
    GroupRefused,
    GroupViewInstalled,
    Refused,
    Room,
    Stopped,
)

# --- node -------------------------------------------------------------------------------------------------------------

AT_ONCE: Final = 0
"""A deadline that has always passed."""

HOP_US: Final = (10, 60)
"""What a frame takes between a client and its node, from and to."""


class SessionNode(GroupedNode):
    """`_links` has the connection of each process that is not over; `under_way` counts what clients sent and has not arrived."""

    def __init__(
        self, world: World, config: Config, stored: Mapping[str, int], boot: int, key: bytes | None, policy: SessionPolicy
    ) -> None:
        super().__init__(config, stored, boot, key, frozenset(config.quorum))
        self.sessions = SessionHost(self, config.cluster, policy)
        self._world = world
        self._host = world.hosts[config.address]
        self._inbox: deque[tuple[SimulatedLink, ClientFrame | None]] = deque()
        self._unheard: list[HostEvent] = []
        self._links: dict[int, SimulatedLink] = {}
        self._flush_arranged = False
        self.under_way = 0

    @property
    def life(self) -> Life:
        return self._world.lives[self.id]

    @property
    def is_idle(self) -> bool:
        """Nothing of a session is on its way to the node or to its client, and nothing waits for a turn."""
        return not (self.under_way or self._inbox or self._unheard or self._flush_arranged or self.sessions.ready())

    # --- the doors of the host --------------------------------------------------------------------------------------

    def deadline(self) -> int:
        if self._inbox or self._unheard or (self.sessions.ready() and not self._flush_arranged):
            return AT_ONCE
        return min(super().deadline(), self.sessions.deadline())

    def wake(self, now: int) -> None:
        if super().deadline() <= now:
            super().wake(now)
        elif self._unheard:
            events, self._unheard = self._unheard, []
            self.sessions.hear(now, events)
        elif self.sessions.deadline() <= now:
            self.sessions.wake(now)
        elif self._inbox:
            self._attend(now, *self._inbox.popleft())
        self._arrange_flush()

    def outputs(self) -> list[GroupedOutput]:
        """Of deliveries the sessions want their own: the others' come to them through groups."""
        outputs = super().outputs()
        for output in outputs:
            if isinstance(output, Delivered):
                if output.process.node == self.id:
                    self._unheard.append(output)
            elif isinstance(
                output, GroupDelivered | Configure | Refused | Room | Stopped | GroupViewInstalled | GroupLeft | GroupRefused
            ):
                self._unheard.append(output)
        return outputs

    def check(self) -> None:
        super().check()
        self.sessions.check()

    # --- the doors of the sessions ----------------------------------------------------------------------------------

    def connect(self, process: int) -> None:
        super().connect(process)
        self.life.recorder.client(self._world.now, process, True)
        clients = self._clients
        clients.wanted[process], clients.inside[process] = set(), {}

    def disconnect(self, now: int, process: int) -> None:
        self.life.recorder.client(self._world.now, process, False)
        clients = self._clients
        del clients.wanted[process], clients.inside[process]
        super().disconnect(now, process)

    def join_group(self, now: int, process: int, name: str) -> bool:
        taken = super().join_group(now, process, name)
        if taken:
            self._clients.wanted[process].add(name)
        return taken

    def leave_group(self, now: int, process: int, name: str) -> bool:
        taken = super().leave_group(now, process, name)
        if taken:
            self._clients.wanted[process].discard(name)
        return taken

    def submit(self, now: int, service: Service, payloads: Sequence[bytes], address: bytes = b"", process: int = 0) -> int:
        taken = super().submit(now, service, payloads, address, process)
        self.life.payloads.setdefault(process, []).extend(payloads[:taken])
        return taken

    @property
    def _clients(self) -> Clients:
        clients = self.life.clients
        assert clients is not None, "a node with groups has clients"
        return clients

    # --- connections ------------------------------------------------------------------------------------------------

    def arrive(self, link: SimulatedLink, frames: Sequence[ClientFrame | None]) -> None:
        """Frames of a client, None for the end of its connection."""
        self._inbox.extend((link, frame) for frame in frames)
        self._host.arrange()

    def _attend(self, now: int, link: SimulatedLink, frame: ClientFrame | None) -> None:
        if isinstance(frame, Hello) and link.process is None:
            self._welcome(now, link, frame)
        elif link.process is None or link.process not in self._links:
            return
        elif frame is None:
            del self._links[link.process]
            self.sessions.forget(now, link.process)
        else:
            self.sessions.receive(now, link.process, frame)

    def _welcome(self, now: int, link: SimulatedLink, hello: Hello) -> None:
        try:
            link.process = self.sessions.connect(now, hello)
        except UsageError as refusal:
            link.arrived([Goodbye(str(refusal))])
        else:
            self._links[link.process] = link

    def _arrange_flush(self) -> None:
        if not self._flush_arranged and self.sessions.ready():
            self._flush_arranged = True
            hop_us = self._world.streams["sessions"].between(*HOP_US)
            self._world.at(self._world.now + hop_us, self._flush, None)

    def _flush(self, _: None) -> None:
        """A node that is paused by now does not write; it does when it goes on."""
        self._flush_arranged = False
        if self._host.life is self.life and not self._host.paused:
            self._write()
            self._host.arrange()

    def _write(self) -> None:
        for process in self.sessions.ready():
            frames: list[NodeFrame] = [parcel.frame for parcel in self.sessions.take(process)]
            link = self._links.get(process)
            if link is not None:
                link.arrived(frames)
                if isinstance(frames[-1], Goodbye):
                    del self._links[process]

    def died(self) -> None:
        """Who stopped has told its clients why; of one that crashed, connections only break."""
        ended = self.life.ended
        if ended == "stopped":
            self.sessions.hear(self._host.clock.local(self._world.now), self._unheard)
            self._write()
        self._unheard, links, self._links = [], self._links, {}
        for link in [*links.values(), *(link for link, _ in self._inbox)]:
            link.broke("it crashed" if ended == "failed" else f"it {ended}")
        self._inbox.clear()


# --- link -------------------------------------------------------------------------------------------------------------


class SimulatedLink:
    """`process` is the number that the node gave it."""

    def __init__(self, world: World, loop: VirtualLoop, node: SessionNode) -> None:
        self.process: int | None = None
        self._world = world
        self._loop = loop
        self._node = node
        self._arrival_us = 0
        self._on_frames: OnFrames | None = None
        self._on_lost: OnLost | None = None
        self._is_over = False

    @property
    def peer(self) -> str:
        return f"the simulated node {self._node.id.name}"

    # --- the session's side -----------------------------------------------------------------------------------------

    def start(self, on_frames: OnFrames, on_lost: OnLost) -> None:
        self._on_frames, self._on_lost = on_frames, on_lost
        if self._node.life.ended:
            self.broke(f"it {self._node.life.ended}")

    def send(self, frames: Sequence[ClientFrame]) -> None:
        if not self._is_over:
            self._carry(list(frames))

    async def close(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._carry([None])

    def _carry(self, frames: list[ClientFrame | None]) -> None:
        world = self._world
        self._arrival_us = max(self._arrival_us, world.now + world.streams["sessions"].between(*HOP_US))
        self._node.under_way += 1
        world.at(self._arrival_us, self._arrive, frames)

    # --- the node's side --------------------------------------------------------------------------------------------

    def _arrive(self, frames: list[ClientFrame | None]) -> None:
        self._node.under_way -= 1
        if self._node.life.ended:
            self.broke(f"it {self._node.life.ended}")
        else:
            self._node.arrive(self, frames)

    def arrived(self, frames: list[NodeFrame]) -> None:
        if self._on_frames is not None and not self._is_over:
            self._loop.call_soon(self._on_frames, frames)

    def broke(self, why: str) -> None:
        """The node is gone, which the session hears once."""
        if self._on_lost is not None and not self._is_over:
            self._is_over = True
            self._loop.call_soon(self._on_lost, why)
