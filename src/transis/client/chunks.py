"""A snapshot in pieces: packed by the provider, kept within a window between the two, unpacked for `load`.

1. Chunks keep their borders: what `save` yields, `load` gets, one by one. Small ones share a message.
2. At most WINDOW messages are on their way that `load` did not take yet: memory is flat on both sides, whatever the state's size.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable
from contextlib import aclosing
from typing import Final

from transis.types.errors import TransferError, TransferInterrupted

PACK_BYTES: Final = 64 * 1024
PACK_CHUNKS: Final = 1024
WINDOW: Final = 8


async def each(chunks: Iterable[bytes] | AsyncIterable[bytes]) -> AsyncGenerator[bytes, None]:
    if isinstance(chunks, AsyncIterable):
        async for chunk in chunks:
            yield bytes(chunk)
    else:
        for chunk in chunks:
            yield bytes(chunk)


async def packs(chunks: Iterable[bytes] | AsyncIterable[bytes]) -> AsyncGenerator[list[bytes], None]:
    """Full messages: PACK_BYTES or a larger chunk alone."""
    pack: list[bytes] = []
    size = 0
    async with aclosing(each(chunks)) as source:
        async for chunk in source:
            if pack and (size + len(chunk) > PACK_BYTES or len(pack) == PACK_CHUNKS):
                yield pack
                pack, size = [], 0
            pack.append(chunk)
            size += len(chunk)
    if pack:
        yield pack


class Window:
    """The provider's side: how many messages are on their way."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._outstanding = 0
        self._room: asyncio.Future[None] | None = None

    async def enter(self) -> None:
        """Wait for room; a joiner that takes nothing for too long is given up, as others may wait for the same member."""
        while self._outstanding >= WINDOW:
            self._room = asyncio.get_running_loop().create_future()
            done, _ = await asyncio.wait({self._room}, timeout=self._patience)
            if not done:
                raise TransferError(f"the joiner took nothing for {self._patience:g} seconds")
        self._outstanding += 1

    def taken(self) -> None:
        self._outstanding = max(0, self._outstanding - 1)
        if self._room is not None and not self._room.done():
            self._room.set_result(None)


class ChunkReader:
    """The joiner's side: what `load` iterates over."""

    def __init__(self, on_taken: Callable[[], None]) -> None:
        self._interrupted = ""
        self.finished = False
        self.bytes = 0
        self._on_taken = on_taken
        self._packs: deque[list[bytes]] = deque()
        self._current: deque[bytes] = deque()
        self._news: asyncio.Future[None] | None = None

    def feed(self, chunks: list[bytes]) -> None:
        self._packs.append(chunks)
        self.bytes += sum(map(len, chunks))
        self._wake()

    def finish(self) -> None:
        self.finished = True
        self._wake()

    def interrupt(self, why: str) -> None:
        self._interrupted = why
        self._packs.clear()
        self._current.clear()
        self.bytes = 0
        self._wake()

    def is_interrupted(self) -> bool:
        return bool(self._interrupted)

    def _wake(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    def __aiter__(self) -> ChunkReader:
        return self

    async def __anext__(self) -> bytes:
        while not self._current:
            if self._interrupted:
                raise TransferInterrupted(f"the state will not be complete: {self._interrupted}")
            if self._packs:
                self._current.extend(self._packs.popleft())
                self._on_taken()
            elif self.finished:
                raise StopAsyncIteration
            else:
                self._news = asyncio.get_running_loop().create_future()
                await self._news
        chunk = self._current.popleft()
        self.bytes -= len(chunk)
        return chunk
