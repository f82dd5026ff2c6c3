"""An event loop in a thread of its own, for programs that have none: coroutines are run there, and waited for here.

1. A call that gives up (a timeout, Ctrl-C) cancels its coroutine and waits until that is over. So either it raises and nothing
   was done, or it was done just in time and the call returns as if nothing had happened.
2. No call waits for ever for a loop that cannot run it: those that wait when the loop is stopped are ended, and one from the
   loop's own thread is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import Future
from contextlib import suppress
from threading import Lock, Thread, current_thread
from typing import Any, Generic, TypeVar

from transis.types.errors import UsageError

R = TypeVar("R")


class LoopThread:
    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._run, name="transis-client", daemon=True)
        self._stopped = False
        self._door = Lock()
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
        """Run it to its end. TimeoutError after so many seconds, unless it came to its end meanwhile."""
        running = self._begin(work)
        try:
            task = running.done.result(timeout)
        except BaseException as error:
            with suppress(RuntimeError):  # It was stopped just now, and then the call is over as well.
                self._loop.call_soon_threadsafe(running.cancel)
            task = running.done.result()
            in_time = isinstance(error, TimeoutError) and not task.cancelled()
            if not in_time:
                raise
        if task.cancelled():
            raise _closed()
        return task.result()

    def _begin(self, work: Coroutine[Any, Any, R]) -> _Running[R]:
        """What passes the door before the stop is started before it, and so comes to an end."""
        running = _Running(work)
        with self._door:
            if self._stopped:
                work.close()
                raise _closed()
            if current_thread() is self._thread:
                work.close()
                raise UsageError("called from inside `save`, which runs where the session does: it would wait for itself")
            self._loop.call_soon_threadsafe(running.start)
        return running

    def stop(self) -> None:
        """After this nothing runs there any more. Again is nothing."""
        with self._door:
            was_stopped, self._stopped = self._stopped, True
            if not was_stopped:
                self._loop.call_soon_threadsafe(self._loop.stop)
        if not was_stopped:
            self._thread.join()


def _closed() -> UsageError:
    return UsageError("the session is closed")


async def _end_all() -> None:
    """Whoever still waits in another thread is told by the cancellation."""
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
            task.exception()  # Looked at: if the caller was interrupted, nobody else will.
        self.done.set_result(task)

    def cancel(self) -> None:
        assert self._task is not None, "it was started before"
        self._task.cancel()
