"""A client's connection to a simulated node: frames in memory, a few microseconds either way, in order.

It is to a session what a Unix socket is on a real machine (client/link.py has the contract), without bytes. Everything that a
session is told runs in its event loop.
"""

from __future__ import annotations

from collections.abc import Sequence

from transis.client.link import OnFrames, OnLost
from transis.sessions.frames import ClientFrame, NodeFrame
from transis.sim.world import World
from transis.testing.loop import VirtualLoop
from transis.testing.node import HOP_US, SessionNode


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
