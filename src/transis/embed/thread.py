"""A node in a thread with an event loop of its own: what blocks the program's event loop does not block the node.

1. The node runs entirely in its thread. Other threads put work into its loop and wait for the result in their own.
2. The thread ends when the node has ended, for whatever reason, and its sessions know why. `ended` raises what made it fail.
3. Both threads share one interpreter: a program that holds its lock for long stops the node too (then run it as a process).
4. Frames pass between the two loops as objects, shared and never changed; nothing is encoded. Each direction is a queue and one
   wake-up of the other loop for everything that was put in since its last look. Appending to a deque and looking at a flag are
   single steps of the interpreter, so there is no lock.
5. What is in flight is bounded by credit, as on a socket: the streams by the client's window, Sends by the node's.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Final, Generic, TypeVar

from transis.client.link import Link, OnFrames, OnLost, wall_clock_us
from transis.net.host import NodeHost, Opening
from transis.net.runtime import fast_loop
from transis.net.session_server import SessionServer, log
from transis.net.transport import StatisticsDict
from transis.process.fork import stays_here
from transis.sessions.frames import ClientFrame, Goodbye, NodeFrame
from transis.types.errors import NodeLost
from transis.types.ids import NodeId
from transis.types.views import View

# --- frames between two threads ---------------------------------------------------------------------------------------

Item = TypeVar("Item")

SAID_MAX: Final = 1 << 16
"""Frames of one client that wait for their turns. Credit keeps its Sends far below it, and an honest client waits for answers."""

CLOSE_SECONDS: Final = 1.0
"""How long a closing link waits for the node's loop. Only if that loop is gone does it wait in vain."""


class ThreadChannel(Generic[Item]):
    """One direction: `put` runs in one loop, `take` in the other. A loop that is gone takes nothing more."""

    def __init__(self, loop: asyncio.AbstractEventLoop, take: Callable[[list[Item]], None]) -> None:
        self._loop = loop
        self._take = take
        self._items: deque[Item] = deque()
        self._is_woken = False

    def put(self, items: Sequence[Item]) -> bool:
        """False if the other side is gone."""
        self._items.extend(items)
        if self._is_woken:
            return True
        self._is_woken = True
        try:
            self._loop.call_soon_threadsafe(self._empty)
        except RuntimeError:
            return False  # The other loop is closed.
        return True

    def _empty(self) -> None:
        """Clear the flag first, so that whatever is put in from now on wakes this loop again."""
        self._is_woken = False
        items = self._items
        taken = [items.popleft() for _ in range(len(items))]
        if taken:
            self._take(taken)


class ThreadConnection:
    """The node's side of a link: a connection of its session server. Everything here runs in the node's loop."""

    def __init__(self, server: SessionServer, out: ThreadChannel[NodeFrame | None]) -> None:
        self.process: int | None = None
        self.is_ending: bool = False
        self._server = server
        self._out = out
        self._label = ""
        self._said: deque[ClientFrame | None] = deque()
        self._is_lost = not server.made(self)
        if self._is_lost:
            out.put([Goodbye("the node takes no more sessions"), None])

    # --- from the client --------------------------------------------------------------------------------------------

    def take_in(self, frames: list[ClientFrame | None]) -> None:
        """Frames wait for their turns here, as those of a socket wait there; so their number is bounded."""
        self._said += frames
        if len(self._said) > SAID_MAX:
            self.refuse(f"{SAID_MAX} frames of this client wait to be handled: wait for answers before asking more")
        self._server.said(self)

    def work_off(self) -> bool:
        """None marks the end: the client closed the link. An error here ends this session and no other, as on a socket."""
        try:
            frame = self._said.popleft()
            if frame is None:
                self.abort()
            else:
                self._server.take_in(self, frame)
        except Exception:
            log.exception("session %s failed and is ended; this is a bug", self)
            self.abort()
        return bool(self._said)

    def accept(self, process: int, label: str) -> None:
        self.process, self._label = process, label

    # --- to the client ----------------------------------------------------------------------------------------------

    def pump(self) -> None:
        """Pass on everything that the client's credit allows; credit bounds what is in flight."""
        if self.process is None or self.is_ending:
            return
        leaving = self._server.host.take(self.process)
        if not leaving:
            return
        frames: list[NodeFrame | None] = [out.frame for out in leaving]
        last = frames[-1]
        if isinstance(last, Goodbye):
            self._finish(frames, last.why)
        elif not self._out.put(frames):
            self.abort()

    def linger(self) -> None:
        """Nothing to do when the session is over: its last frames leave at the next turn, whatever the program is doing."""

    def refuse(self, why: str) -> None:
        if self.is_ending:
            return
        if self.process is not None:
            self._server.host.disconnect(self._server.now(), self.process, why)
            self._server.worked()
        else:
            self._finish([Goodbye(why)], why)

    def _finish(self, frames: list[NodeFrame | None], why: str) -> None:
        log.info("session %s ended: %s", self, why)
        self.is_ending = True
        self._out.put([*frames, None])
        self.abort()

    def abort(self) -> None:
        if not self._is_lost:
            self._is_lost = True
            self._said.clear()
            self._server.lost(self)
            self._out.put([None])

    def __str__(self) -> str:
        number = "of a stranger" if self.process is None else f"#{self.process}"
        return f"{number} ({self._label})" if self._label else number


class ThreadLink:
    """The client's side; a `client.link.Link`. Make it in the client's loop."""

    def __init__(self, peer: str, node_loop: asyncio.AbstractEventLoop, server: SessionServer) -> None:
        self.peer = peer
        self._on_frames: OnFrames | None = None
        self._on_lost: OnLost | None = None
        self._is_lost = False
        loop = asyncio.get_running_loop()
        self._gone: asyncio.Future[None] = loop.create_future()
        self._server = server
        self._connection: ThreadConnection | None = None
        self._to_client: ThreadChannel[NodeFrame | None] = ThreadChannel(loop, self._arrived)
        self._to_node: ThreadChannel[ClientFrame | None] = ThreadChannel(node_loop, self._take_in)
        stays_here(self)

    def start(self, on_frames: OnFrames, on_lost: OnLost) -> None:
        self._on_frames, self._on_lost = on_frames, on_lost

    def send(self, frames: Sequence[ClientFrame]) -> None:
        if not self._is_lost and not self._to_node.put(frames):
            self._lose("its thread has ended")

    wall_us = staticmethod(wall_clock_us)

    async def close(self) -> None:
        if not self._is_lost and self._to_node.put([None]):
            await asyncio.wait({self._gone}, timeout=CLOSE_SECONDS)
        self._is_lost = True

    # --- in the node's loop -----------------------------------------------------------------------------------------

    def _take_in(self, frames: list[ClientFrame | None]) -> None:
        if self._connection is None:
            self._connection = ThreadConnection(self._server, self._to_client)
        self._connection.take_in(frames)

    # --- in the client's loop ---------------------------------------------------------------------------------------

    def _arrived(self, frames: list[NodeFrame | None]) -> None:
        ends = frames[-1] is None
        said = [frame for frame in frames if frame is not None] if ends else frames
        if said and not self._is_lost:
            assert self._on_frames is not None, "a session starts its link before it says anything"
            self._on_frames(said)  # type: ignore[arg-type]  # None comes last, and was taken out.
        if ends:
            self._lose("it closed the connection")

    def _lose(self, why: str) -> None:
        if not self._gone.done():
            self._gone.set_result(None)
        if not self._is_lost:
            self._is_lost = True
            if self._on_lost is not None:
                self._on_lost(why)


# --- the node ---------------------------------------------------------------------------------------------------------

Result = TypeVar("Result")


class ThreadedNode:
    def __init__(self, opening: Opening) -> None:
        self.view: View | None = None
        self._opening = opening
        self._name = opening.config.name
        self._host: NodeHost
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_unwanted = False
        self._id: Future[NodeId] = _kept(Future())
        self._end: Future[str] = _kept(Future())
        self._thread = threading.Thread(target=self._run, name=f"transis-{self._name}", daemon=True)

    # --- in the program's loop --------------------------------------------------------------------------------------

    async def start(self) -> NodeId:
        """Start the thread and wait for the first view; raises what went wrong."""
        self._thread.start()
        try:
            return await asyncio.wrap_future(self._id)
        except asyncio.CancelledError:
            self._ask_to_leave()
            raise

    async def link(self) -> Link:
        return ThreadLink(f"the node {self._name} in this process", self._living_loop(), self._host.server)

    async def statistics(self) -> StatisticsDict:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._statistics(), self._living_loop()))

    async def leave(self) -> None:
        """Leave gracefully; the thread has ended when this returns. If the node has failed, only wait."""
        self._ask_to_leave()
        await asyncio.gather(asyncio.wrap_future(self._end), return_exceptions=True)
        await asyncio.to_thread(self._thread.join)

    async def ended(self) -> str:
        """Wait until the node has ended; returns the reason, or raises the error that made it fail."""
        return await asyncio.wrap_future(self._end)

    @property
    def failure(self) -> BaseException | None:
        return self._end.exception() if self._end.done() else None

    def _ask_to_leave(self) -> None:
        """The flag is for a thread that is still opening the node."""
        self._is_unwanted = True
        if self._loop is not None and not self._end.done():
            try:
                self._loop.call_soon_threadsafe(self._host.leave)
            except RuntimeError:
                return  # It has just ended by itself.

    def _living_loop(self) -> asyncio.AbstractEventLoop:
        if self._end.done():
            raise NodeLost(f"the node {self._name} has ended: {self._end.exception() or self._end.result()}")
        assert self._loop is not None, "an embedded node is handed out when it has started"
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
        self._host = host = NodeHost(self._opening, on_view=self._see)
        try:
            self._loop = asyncio.get_running_loop()
            if self._is_unwanted:
                host.leave()
            host.start()
            await host.first_view()
            self._id.set_result(host.id)
            return await host.ended()
        finally:
            await host.close("its thread ends")

    def _see(self, view: View) -> None:
        self.view = view

    async def _statistics(self) -> StatisticsDict:
        return self._host.statistics()


def _kept(future: Future[Result]) -> Future[Result]:
    """A future that waiters in an event loop cannot cancel: only the thread completes it."""
    future.set_running_or_notify_cancel()
    return future
