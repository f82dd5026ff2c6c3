"""What the strands of an archiver wait for: each other, and a while before they try again."""

from __future__ import annotations

import asyncio
from typing import Final

PAUSE_S: Final = (0.2, 5.0)
"""Between two attempts: at first, and at most."""


class Flow:
    """Between who takes and who writes: `wake` says that there is much to write, `room` that more may be taken."""

    def __init__(self) -> None:
        self.wake, self.room = asyncio.Event(), asyncio.Event()
        self.is_over = False

    def end(self) -> None:
        """Nothing more comes."""
        self.is_over = True
        self.wake.set()

    async def wait(self, seconds: float) -> None:
        if await set_within(self.wake, seconds):
            self.wake.clear()


async def set_within(event: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            return await event.wait()
    except TimeoutError:
        return False


class Pause:
    """Before an attempt: each time twice as long, until one was worth it."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._next, self._longest = PAUSE_S

    def take(self) -> float:
        taken, self._next = self._next, min(2 * self._next, self._longest)
        return taken
