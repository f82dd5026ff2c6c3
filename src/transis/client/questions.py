"""Questions to the node, and their answers: each has a number, and they may be answered in any order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from transis.sessions.frames import Answer, Ask, ClientFrame, decode_value
from transis.types.errors import TransisError, UsageError


class Questions:
    def __init__(self, post: Callable[[ClientFrame], None]) -> None:
        self._post = post
        self._asked: dict[int, asyncio.Future[Answer]] = {}
        self._last = 0

    async def ask(self, question: str) -> dict[str, Any]:
        """What the node answers. Raises UsageError where it knows none, and what `lose` is told when the session is over."""
        self._last += 1
        number = self._last
        future = self._asked[number] = asyncio.get_running_loop().create_future()
        self._post(Ask(number, question))
        try:
            answer = await future
        finally:
            del self._asked[number]
        if answer.why:
            raise UsageError(answer.why)
        value: dict[str, Any] = decode_value(answer.value)
        return value

    def answered(self, answer: Answer) -> None:
        future = self._asked.get(answer.number)
        if future is not None and not future.done():
            future.set_result(answer)

    def lose(self, failure: Callable[[], TransisError]) -> None:
        for future in self._asked.values():
            if not future.done():
                future.set_exception(failure())
