"""Waiting for conditions with a bounded patience: whoever learns something sets `changed`, whoever waits looks again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

PATIENCE_S = 60.0
"""Longer than anything takes here, even on a machine that does a lot besides."""


class Changes:
    """One for a whole site: lines of daemons and events of clients."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()

    def tell(self) -> None:
        self._changed.set()

    async def until(self, condition: Callable[[], bool], what: Callable[[], str], patience_s: float = PATIENCE_S) -> None:
        """`what` says for people what was waited for, and how far it came."""
        try:
            async with asyncio.timeout(patience_s):
                while not condition():
                    await self._changed.wait()
                    self._changed.clear()
        except TimeoutError:
            raise AssertionError(f"waited {patience_s} s in vain for {what()}") from None


async def let_pass(seconds: float) -> None:
    """The length of a fault, such as of a pause: never a wait for something that is hoped for."""
    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()
    loop.call_later(seconds, over.set_result, None)
    await over
