"""A node in a thread of its own, with an event loop of its own: what blocks the program's event loop does not block the node.

1. Everything of the node happens in its thread. Others put work into its loop and wait for what comes of it in their own.
2. The thread ends when the node has ended, for whatever reason, and its sessions were told. `ended` raises what made it fail.
3. Both threads share one interpreter: a program that holds its lock for long stops the node too (then run it as a process).
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from typing import TypeVar

from transis.client.link import Link
from transis.model.errors import NodeLost
from transis.model.ids import NodeId
from transis.model.view import View
from transis.net.process import fast_loop
from transis.net.transport import StatisticsDict
from transis.node.hosting import HostedNode
from transis.node.settings import NodeSettings
from transis.node.threadlink import ThreadLink

Result = TypeVar("Result")


class ThreadedNode:
    def __init__(self, settings: NodeSettings) -> None:
        self.view: View | None = None
        self._settings = settings
        self._node: HostedNode
        self._loop: asyncio.AbstractEventLoop | None = None
        self._leaving: asyncio.Task[bool] | None = None
        self._is_unwanted = False
        self._id: Future[NodeId] = _kept(Future())
        self._end: Future[str] = _kept(Future())
        self._thread = threading.Thread(target=self._run, name=f"transis-{settings.name}", daemon=True)

    # --- in the program's loop --------------------------------------------------------------------------------------

    async def start(self) -> NodeId:
        """Until the first view; raises what went wrong."""
        self._thread.start()
        try:
            return await asyncio.wrap_future(self._id)
        except asyncio.CancelledError:
            self._ask_to_leave()
            raise

    async def link(self) -> Link:
        return ThreadLink(f"the node {self._settings.name} in this process", self._living_loop(), self._node.server)

    async def statistics(self) -> StatisticsDict:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._statistics(), self._living_loop()))

    async def leave(self) -> None:
        """Gracefully; the thread has ended when this returns. A node that has failed is only waited for."""
        self._ask_to_leave()
        await asyncio.gather(asyncio.wrap_future(self._end), return_exceptions=True)
        await asyncio.to_thread(self._thread.join)

    async def ended(self) -> str:
        """Why the node ended, when it has; raises what made it fail."""
        return await asyncio.wrap_future(self._end)

    @property
    def failure(self) -> BaseException | None:
        return self._end.exception() if self._end.done() else None

    def _ask_to_leave(self) -> None:
        """The flag is for a thread that is still opening the node."""
        self._is_unwanted = True
        if self._loop is not None and not self._end.done():
            try:
                self._loop.call_soon_threadsafe(self._begin_to_leave)
            except RuntimeError:
                return  # It has just ended by itself.

    def _living_loop(self) -> asyncio.AbstractEventLoop:
        if self._end.done():
            raise NodeLost(f"the node {self._settings.name} has ended: {self._end.exception() or self._end.result()}")
        assert self._loop is not None, "who has an embedded node waited for its start"
        return self._loop

    # --- in the thread ----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=fast_loop()) as runner:
                why = runner.run(self._live())
        except BaseException as failure:
            if not self._id.done():
                self._id.set_exception(failure)
            self._end.set_exception(failure)
        else:
            self._end.set_result(why)

    async def _live(self) -> str:
        self._node = HostedNode(self._settings, self._see)
        try:
            self._loop = asyncio.get_running_loop()
            if self._is_unwanted:
                self._begin_to_leave()
            await self._node.start()
            self._id.set_result(self._node.id)
            return await self._node.driver.ended()
        finally:
            if self._leaving is not None:
                await self._leaving
            await self._node.close("its thread ends")

    def _begin_to_leave(self) -> None:
        if self._leaving is None:
            self._leaving = asyncio.get_running_loop().create_task(self._node.driver.leave())

    def _see(self, view: View) -> None:
        self.view = view

    async def _statistics(self) -> StatisticsDict:
        return self._node.statistics()


def _kept(future: Future[Result]) -> Future[Result]:
    """Make it one that nobody who waits for it in an event loop can cancel: it is the thread's to end."""
    future.set_running_or_notify_cancel()
    return future
