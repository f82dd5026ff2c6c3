"""Sessions of the real client with the real session host of a node that is alone, in one loop and in virtual time.

Nothing here imitates anything: frames go as objects from the client's link to the host and back. The clock stands still while
nobody wants anything, and jumps on while the node has work, so tests neither sleep nor depend on the machine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from tests.sessions.hosting import Alone
from transis.client.connection import WINDOW, Connection
from transis.client.events import Codec, Raw
from transis.client.link import Link, OnFrames, OnLost, wall_clock_us
from transis.sessions.frames import ClientFrame, Goodbye, Hello, NodeFrame
from transis.sessions.host import SessionPolicy
from transis.types.config import Window
from transis.types.errors import UsageError


class HostLink:
    """A client's link to the host. `sent` and `got` are all frames that went over it."""

    def __init__(self, hosted: Hosted) -> None:
        self.peer = "the node of this test"
        self.process: int | None = None
        self.sent: list[ClientFrame] = []
        self.got: list[NodeFrame] = []
        self.reading = True
        self._hosted = hosted
        self._kept: list[NodeFrame] = []
        self._on_frames: OnFrames | None = None
        self._on_lost: OnLost | None = None

    wall_us = staticmethod(wall_clock_us)

    def start(self, on_frames: OnFrames, on_lost: OnLost) -> None:
        self._on_frames, self._on_lost = on_frames, on_lost

    def send(self, frames: Sequence[ClientFrame]) -> None:
        alone = self._hosted.alone
        for frame in frames:
            self.sent.append(frame)
            if self.process is not None:
                alone.say(self.process, frame)
            elif isinstance(frame, Hello):
                try:
                    self.process = alone.host.connect(alone.now, frame)
                    self._hosted.links[self.process] = self
                except UsageError as error:
                    asyncio.get_running_loop().call_soon(self.deliver, [Goodbye(str(error))])
        self._hosted.work()

    def deliver(self, frames: list[NodeFrame]) -> None:
        """What left the host; kept while the client's socket is not read."""
        self._kept += frames
        if self.reading and self._kept and self._on_frames is not None:
            kept, self._kept = self._kept, []
            self.got += kept
            self._on_frames(kept)

    def cut(self, why: str = "it closed the connection") -> None:
        """The connection breaks."""
        if self._on_lost is not None and self._hosted.links.get(self.process or 0) is self:
            del self._hosted.links[self.process or 0]
            self._hosted.alone.host.forget(self._hosted.alone.now, self.process or 0)
            self._on_lost(why)
            self._hosted.work()

    async def close(self) -> None:
        self.cut()


class Hosted:
    """A node with its sessions. `paused` keeps the node from doing anything."""

    def __init__(self, policy: SessionPolicy | None = None, window: Window | None = None) -> None:
        self.alone = Alone(policy, window)
        self.links: dict[int, HostLink] = {}
        self.all_links: list[HostLink] = []
        self.paused = False
        self._planned = False

    def connect(
        self, window: int = WINDOW, codec: Codec[Any] | None = None, label: str = "", name: str | None = None
    ) -> Connection[Any]:
        async def make_link() -> Link:
            link = HostLink(self)
            self.all_links.append(link)
            return link

        return Connection(make_link, label, window, codec or Raw(), name)

    def work(self) -> None:
        """Let the node go on in the next turn of the loop, until nothing comes of it."""
        if not self._planned and not self.paused:
            self._planned = True
            asyncio.get_running_loop().call_soon(self._work)

    def resume(self) -> None:
        self.paused = False
        self.work()

    def _work(self) -> None:
        self._planned = False
        if self.paused:
            return
        self.alone.settle(4)
        busy = False
        for process, frames in list(self.alone.seen.items()):
            self.alone.seen[process] = []
            link = self.links.get(process)
            if frames and link is not None:
                busy = True
                link.deliver(frames)
        if busy or self.alone.host.deadline() < self.alone.now + 1_000_000:
            self.work()

    def end(self, why: str) -> None:
        """The node stops, and says so."""
        for process in list(self.links):
            self.alone.host.disconnect(self.alone.now, process, why)
        self.work()
