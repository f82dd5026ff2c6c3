"""An event loop in a thread of its own, for callers that have none"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import Future
from contextlib import suppress
from threading import Lock, Thread, current_thread
from typing import Any, Generic, TypeVar

from transis.process.fork import stays_here
from transis.types.errors import UsageError

R = TypeVar("R")


class LoopThread:
    """An event loop in a thread of its own, for programs that have none: coroutines run there, and callers wait here."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._run, name="transis-client", daemon=True)
        self._stopped = False
        self._lock = Lock()
        stays_here(self)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.run_until_complete(_end_all())
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    def call(self, work: Coroutine[Any, Any, R], timeout: float | None = None) -> R:
        """Run the coroutine to its end. Raises TimeoutError after `timeout` seconds, unless it ends just then."""
        running = self._begin(work)
        try:
            task = running.done.result(timeout)
        except BaseException as error:
            with suppress(RuntimeError):  # The loop stopped just now, and so the call is over as well.
                self._loop.call_soon_threadsafe(running.cancel)
            task = running.done.result()
            in_time = isinstance(error, TimeoutError) and not task.cancelled()
            if not in_time:
                raise
        if task.cancelled():
            raise _closed()
        return task.result()

    def _begin(self, work: Coroutine[Any, Any, R]) -> _Running[R]:
        """Work that gets the lock before `stop` does is started before the loop stops, so it comes to its end."""
        running = _Running(work)
        with self._lock:
            if self._stopped:
                work.close()
                raise _closed()
            if current_thread() is self._thread:
                work.close()
                raise UsageError("called from inside `save`, which runs in the session's thread: the call would wait for itself")
            if _is_in_a_loop():
                work.close()
                raise UsageError(
                    "this call waits, and the event loop of this thread would stand still: write `async with transis.connect()` "
                    "here, or `await asyncio.to_thread(...)` with a function that uses transis.blocking"
                )
            self._loop.call_soon_threadsafe(running.start)
        return running

    def stop(self) -> None:
        """Stop the loop and wait for its thread. Stopping twice is harmless."""
        with self._lock:
            was_stopped, self._stopped = self._stopped, True
            if not was_stopped:
                self._loop.call_soon_threadsafe(self._loop.stop)
        if not was_stopped:
            self._thread.join()


def _is_in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _closed() -> UsageError:
    return UsageError("the session is closed")


async def _end_all() -> None:
    """Cancelling the tasks wakes the threads that wait for them."""
    waiting = asyncio.all_tasks() - {asyncio.current_task()}
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


class _Running(Generic[R]):
    """A coroutine as a task of the loop; `done` gets the task when it is over, however it ended."""

    def __init__(self, work: Coroutine[Any, Any, R]) -> None:
        self.done: Future[asyncio.Task[R]] = Future()
        self._work = work
        self._task: asyncio.Task[R] | None = None

    def start(self) -> None:
        self._task = asyncio.ensure_future(self._work)
        self._task.add_done_callback(self._over)

    def _over(self, task: asyncio.Task[R]) -> None:
        if not task.cancelled():
            task.exception()  # Retrieve it: an interrupted caller will not, and asyncio would warn.
        self.done.set_result(task)

    def cancel(self) -> None:
        assert self._task is not None, "it was started before"
        self._task.cancel()
