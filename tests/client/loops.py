"""Running a test's story in an event loop of its own, and letting everything that is ready run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE_S = 30.0
"""Far more than any story takes, so that a deadlock is a failure and not a hang."""


def run(story: Callable[[], Awaitable[T]]) -> T:
    async def in_time() -> T:
        async with asyncio.timeout(PATIENCE_S):
            return await story()

    return asyncio.run(in_time())


async def turns(count: int = 20) -> None:
    loop = asyncio.get_running_loop()
    for _ in range(count):
        future = loop.create_future()
        loop.call_soon(future.set_result, None)
        await future
