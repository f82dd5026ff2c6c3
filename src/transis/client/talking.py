"""The words of state transfer on their way out: in the order in which they were said, by one task, as flow control allows."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Protocol

from transis.client.transfer import Private, Said, encode_said, transfer_address
from transis.types.errors import SessionLost, UsageError
from transis.types.ids import ProcessId
from transis.wire.items import encode_address


class Speaker(Protocol):
    """What state transfer needs of a session."""

    @property
    def process(self) -> ProcessId: ...

    def next_attempts(self) -> int:
        """A number above all attempts that this process made so far, with room for many more."""
        ...

    async def say(self, address: bytes, payload: bytes) -> object:
        """An agreed message; waits for credit."""
        ...


class Talker:
    """Whoever notices something in the middle of a frame cannot wait for credit, so words queue here: few, and small."""

    def __init__(self, speaker: Speaker) -> None:
        self._speaker = speaker
        self._words: asyncio.Queue[tuple[bytes, Said]] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None
        self._is_stopped = False

    def say(self, address: bytes, said: Said) -> None:
        if self._is_stopped:
            return
        self._words.put_nowait((address, said))
        if self._task is None:
            self._task = asyncio.ensure_future(self._talk())

    def say_to(self, process: ProcessId, said: Private) -> None:
        self.say(encode_address(transfer_address(process)), said)

    def whisper(self, process: ProcessId, said: Private) -> Awaitable[object]:
        """At once, past the queue, for whoever can wait."""
        return self._speaker.say(encode_address(transfer_address(process)), encode_said(said))

    async def _talk(self) -> None:
        try:
            while True:
                address, said = await self._words.get()
                await self._speaker.say(address, encode_said(said))
        except (SessionLost, UsageError):
            pass  # The session is over, and with it all that could be said in it.

    def stop(self) -> None:
        """What was not said is not said any more."""
        self._is_stopped = True
        if self._task is not None:
            self._task.cancel()
            self._task = None
