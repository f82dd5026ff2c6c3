"""A running node with its sessions and its evidence: what a daemon, a program's node and a benchmark have in common.

1. State directory first (its lock keeps a second process out), then sockets, then the node. What cannot be opened leaves
   nothing open behind.
2. The window is no larger than the system's receive buffers can hold: more would be sent, lost and sent again.
3. A daemon, an embedded node and a benchmark add only what is their own: signals and an admin socket, a thread, a pipe to a
   parent.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal

from transis.net.driver import Driver
from transis.net.evidence import FlightKeeper, FlightPlan, KeptSink, Retention, TracePlan, open_flight
from transis.net.interfaces import Endpoint, Interface
from transis.net.runtime import boottime_us
from transis.net.session_server import SessionServer
from transis.net.state import StateDirectory, user_key
from transis.net.transport import GROUP, Group, MeshTransport, MulticastTransport, StatisticsDict, Transport
from transis.sessions.host import SessionHost, SessionPolicy
from transis.trace.recorder import Recorder
from transis.trace.recovery import end_previous
from transis.trace.segment import SegmentWriter, live_header
from transis.types.config import Config, Window
from transis.types.errors import ConfigError, IdentityError
from transis.types.ids import NodeId
from transis.types.limits import BURST_DATAGRAMS_MAX
from transis.types.outputs import Configure, NodeOutput, Observer
from transis.types.views import View

TransportKind = Literal["multicast", "mesh"]

ROOM_PARTS: Final = (3, 4)
"""The window may fill this part of a receive buffer; the rest is for retransmissions and for members ahead of the token."""

log: Final = logging.getLogger("transis")


@dataclass(frozen=True)
class Opening:
    """Everything a node needs to begin. `port` 0 leaves the choice to the system; seeds are for a mesh only."""

    config: Config
    interface: Interface
    state: Path
    transport: TransportKind = "multicast"
    group: Group = GROUP
    port: int = 0
    seeds: tuple[str, ...] = ()
    key: bytes | None = field(default=None, repr=False)
    user_key: Path | None = None
    """The file with the key of this user's nodes, for one on loopback that was given none. It is made when the node opens."""
    policy: SessionPolicy = field(default_factory=SessionPolicy)
    trace: TracePlan | None = None
    flight: FlightPlan | None = None
    """None: no flight recorder."""
    clients: Path | None = None
    """The Unix socket for clients; `mode` are its permissions."""
    mode: int = 0o600
    tcp: Endpoint | None = None
    admin: Path | None = None
    """This and `metrics` are a daemon's own."""
    metrics: Endpoint | None = None


def sealed(opening: Opening) -> Opening:
    """The same with the key that the node will use."""
    return opening if opening.user_key is None else replace(opening, key=user_key(opening.user_key), user_key=None)


def open_transport(opening: Opening) -> Transport:
    if opening.transport == "mesh":
        return MeshTransport(opening.interface, opening.config, opening.key, opening.seeds, opening.port)
    if opening.seeds:
        raise ConfigError("seeds", opening.seeds, "only a mesh has seeds: choose that transport, or take them out")
    return MulticastTransport(opening.interface, opening.group, opening.port)


def window_for(config: Config, room: int) -> Window:
    """The window of a node with this configuration if `room` datagrams fit a receive buffer.

    A visit of Lansis is a burst, which has a limit of its own.
    """
    window = fitted(config.window, room)
    if config.engine != "lansis" or window.visit_max <= BURST_DATAGRAMS_MAX:
        return window
    return replace(window, visit_max=BURST_DATAGRAMS_MAX, accelerated=min(window.accelerated, BURST_DATAGRAMS_MAX))


def fitted(window: Window, room: int) -> Window:
    """The window, no larger than `room` datagrams allow (rule 2)."""
    most = max(1, room * ROOM_PARTS[0] // ROOM_PARTS[1])
    if window.window <= most:
        return window
    visit_max = min(window.visit_max, max(1, most // 2))
    return replace(window, window=most, visit_max=visit_max, accelerated=min(window.accelerated, visit_max // 2))


class ViewWatch(Observer):
    """Notes the first view, and reports every view."""

    kinds = frozenset({Configure})

    def __init__(self, on_view: Callable[[View], None] | None) -> None:
        self.first = asyncio.Event()
        self._on_view = on_view

    def observe(self, now_us: int, outputs: Sequence[NodeOutput]) -> None:
        for output in outputs:
            if isinstance(output, Configure):
                self.first.set()
                if self._on_view is not None:
                    self._on_view(output.view)


class NodeHost:
    """Open it in the loop it shall run in; nothing is sent before `start`.

    `on_view` sees every view, transitional ones too. `statistics` answers clients who ask; by default it is the host's own. More
    observers are added to `driver` before the start.
    """

    def __init__(
        self,
        opening: Opening,
        *,
        on_view: Callable[[View], None] | None = None,
        statistics: Callable[[], StatisticsDict] | None = None,
        transport_for: Callable[[Opening], Transport] = open_transport,
    ) -> None:
        self.opening = sealed(opening)
        self._views = ViewWatch(on_view)
        self._sink: SegmentWriter | KeptSink | None = None
        self._retention: Retention | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._leaving: asyncio.Task[bool] | None = None
        self._keeper: FlightKeeper | None = None
        self._open(transport_for)
        self.sessions = SessionHost(
            self.driver.node, opening.config.cluster, opening.policy, self.statistics if statistics is None else statistics
        )
        self.server = SessionServer(self.driver, self.sessions)
        self.driver.hear = self.server.hear

    # --- opening ----------------------------------------------------------------------------------------------------

    def _open(self, transport_for: Callable[[Opening], Transport]) -> None:
        opening = self.opening
        state = StateDirectory(opening.state, opening.config.name)
        try:
            self.transport = transport_for(opening)
        except BaseException:
            state.close()
            raise
        try:
            self.driver = self._driver(state)
            self._observe(state.previous)
            state.begin(self.id)
        except BaseException:
            self.transport.close()
            state.close()
            raise

    def _driver(self, state: StateDirectory) -> Driver:
        opening = self.opening
        room = self.transport.datagrams_that_fit(opening.config.datagram)
        config = replace(opening.config, window=window_for(opening.config, room))
        return Driver(config, self.transport, state, key=opening.key)

    def _observe(self, previous: NodeId | None) -> None:
        """Add the observers that keep evidence first: later ones may report what is already on disk. If the previous life was
        killed, its end is recorded."""
        opening, observers = self.opening, self.driver.observers
        if opening.trace is not None:
            end_previous(opening.trace.directory, previous)
            self._sink = self._open_sink(opening.trace)
            observers.append(Recorder(self.id, self._sink))
        if opening.flight is not None:
            flight = open_flight(opening.flight, opening.config, self.id, previous)
            observers.append(flight)
            self._keeper = FlightKeeper(flight)
        observers.append(self._views)

    def _open_sink(self, plan: TracePlan) -> SegmentWriter | KeptSink:
        writer = SegmentWriter(plan.directory, live_header(self.opening.config, self.id), plan.segment_bytes)
        if plan.limits is None:
            return writer
        sink = KeptSink(writer, plan.segment_age_us, boottime_us)
        self._retention = Retention(plan.directory, self.id.name, sink, plan.limits)
        return sink

    # --- life -------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self.driver.start()
        if self._retention is not None:
            self._beside(self._retention.run(), "looking after the traces")
        if self._keeper is not None:
            self._beside(self._keeper.run(), "looking after the flight recorder")

    def _beside(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        task.add_done_callback(complain)
        self._tasks.append(task)

    async def listen(self) -> None:
        """Open the sockets of clients."""
        opening = self.opening
        if opening.clients is not None:
            await self.server.listen_unix(opening.clients, opening.mode)
        if opening.tcp is not None:
            assert opening.key is not None, "clients over TCP have a key"
            await self.server.listen_tcp(opening.tcp, opening.key)

    async def first_view(self) -> None:
        """Wait for the first view. If the node ends before it, raise why."""
        ended = asyncio.ensure_future(self.driver.ended())
        first = asyncio.ensure_future(self._views.first.wait())
        try:
            await asyncio.wait({ended, first}, return_when=asyncio.FIRST_COMPLETED)
            if not first.done():
                raise IdentityError(f"the node {self.opening.config.name!r} did not come up: {await ended}")
        finally:
            ended.cancel()
            first.cancel()
            await asyncio.gather(ended, first, return_exceptions=True)

    def leave(self) -> asyncio.Task[bool]:
        """Begin to leave gracefully; another call returns the same task. It gives False if the node ended without a goodbye."""
        if self._leaving is None:
            self._leaving = asyncio.get_running_loop().create_task(self.driver.leave())
        return self._leaving

    async def ended(self) -> str:
        """Wait for the end; return why it came. If the node failed, raise what made it fail."""
        return await self.driver.ended()

    async def close(self, why: str) -> None:
        """Close after a leave that has begun; without one the other nodes must notice the end. Clients are told why."""
        if self._leaving is not None:
            await self._leaving
        self.driver.close(why)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.server.close(f"the node ended: {why}")
        if self._sink is not None:
            self._sink.close()

    # --- looking in -------------------------------------------------------------------------------------------------

    @property
    def id(self) -> NodeId:
        return self.driver.node.id

    def statistics(self) -> StatisticsDict:
        figures = self.driver.statistics()
        for one in (self._retention, self._keeper):
            if one is not None:
                figures |= one.statistics()
        return figures


def complain(task: asyncio.Task[None]) -> None:
    """Log a task beside the node that ended without being cancelled: it failed, and the node goes on without it."""
    if not task.cancelled() and (failure := task.exception()) is not None:
        log.error("%s ended by a bug, the node goes on", task.get_name(), exc_info=failure)
