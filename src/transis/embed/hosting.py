"""One node with its sessions in the running loop, from opening to the end: what a thread and a child process both run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from transis.net.driver import Event
from transis.net.evidence import FlightKeeper
from transis.net.host import open_node
from transis.net.session_server import SessionServer
from transis.net.transport import StatisticsDict
from transis.sessions.host import SessionHost
from transis.settings.schema import NodeSettings
from transis.trace.segment import SegmentWriter, live_header
from transis.types.errors import IdentityError
from transis.types.ids import NodeId
from transis.types.views import View


class HostedNode:
    """Open it in the loop it shall run in. `on_view` is told of the view in force when it changed, transitional ones too."""

    def __init__(self, settings: NodeSettings, on_view: Callable[[View], None]) -> None:
        self._settings = settings
        self._on_view = on_view
        self._segments: SegmentWriter | None = None
        self._first_view = asyncio.Event()
        self._view: View | None = None
        opening = settings.opening()
        self._config = opening.config
        self._flying: asyncio.Task[None] | None = None
        self.driver = open_node(opening, self._hear, make_sink=self._make_sink if settings.trace else None)
        self.host = SessionHost(self.driver.node, settings.cluster, settings.policy, self.statistics)
        self.server = SessionServer(self.driver, self.host)
        self._keeper = FlightKeeper(self.driver.flight) if self.driver.flight is not None else None

    @property
    def id(self) -> NodeId:
        return self.driver.node.id

    async def start(self) -> None:
        """Until the first view. Raises what ended the node before it had one."""
        self.driver.start()
        if self._keeper is not None:
            self._flying = asyncio.create_task(self._keeper.run(), name="looking after the flight recorder")
        ended = asyncio.ensure_future(self.driver.ended())
        first = asyncio.ensure_future(self._first_view.wait())
        try:
            await asyncio.wait({ended, first}, return_when=asyncio.FIRST_COMPLETED)
            if not first.done():
                raise IdentityError(f"the node {self._settings.name!r} did not come up: {await ended}")
        finally:
            ended.cancel()
            first.cancel()
            await asyncio.gather(ended, first, return_exceptions=True)

    async def close(self, why: str) -> None:
        """At once for the others, who will find out; the clients are told."""
        self.driver.close(why)
        if self._flying is not None:
            self._flying.cancel()
            await asyncio.gather(self._flying, return_exceptions=True)
        await self.server.close(f"the node ended: {why}")
        if self._segments is not None:
            self._segments.close()

    def statistics(self) -> StatisticsDict:
        return self.driver.statistics() | (self._keeper.statistics() if self._keeper is not None else {})

    def _hear(self, events: Sequence[Event]) -> None:
        """Called for every turn of a busy ring, so it looks at no event: of several views in one turn the last one counts."""
        view = self.driver.view
        if view is not self._view and view is not None:
            self._view = view
            self._on_view(view)
            self._first_view.set()
        self.server.hear(events)

    def _make_sink(self, node: NodeId) -> SegmentWriter:
        self._segments = SegmentWriter(Path(self._settings.trace), live_header(self._config, node))
        return self._segments
