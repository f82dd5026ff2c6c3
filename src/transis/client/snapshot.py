"""Snapshots in chunks to those who ask.

Giving the state to those who ask: one task per joiner, each with its own snapshot, taken at its own cut.

While a snapshot is read, the member's own stream waits, so that `save` may be a generator over the living state; with
`background=True` it does not, and `save` must return something that later messages do not change.

A snapshot in pieces: packed by the provider, kept within a window between the two, unpacked for `load`.

1. Chunks keep their borders: what `save` yields, `load` gets, one by one. Small ones share a message.
2. At most WINDOW messages are on their way that `load` did not take yet: memory is flat on both sides, whatever the state's size.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from transis.client.transfer import PrivateMessage, StateBegin, StateChunks, StateEnd, StateFailed
from transis.types.errors import SessionLost, TransferError, TransferInterrupted, UsageError
from transis.types.ids import ProcessId
from transis.types.views import GroupId

# --- providing --------------------------------------------------------------------------------------------------------

ERROR_TEXT_MAX: Final = 1000
"""Characters of an error that travel to the joiner."""

SendPrivately = Callable[[ProcessId, PrivateMessage], Awaitable[object]]
"""A private message to one process."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """How a group's members give their state to those who come later (docs/client.md)."""

    save: Callable[[], Iterable[bytes] | AsyncIterable[bytes]]
    """Called at the cut, in the member's own stream: the application has seen everything before it, and nothing behind it."""
    load: Callable[[AsyncIterator[bytes]], Awaitable[None]]
    """Gets the chunks of one `save`, in order. May be called again from the beginning; what it makes counts when it returns."""
    background: bool = False
    """The member's stream goes on while `save`'s chunks are read."""
    patience: float = 30.0
    """Seconds without `load` taking anything before the joiner is given up."""
    memory_max: int = 1 << 20
    """Bytes of what arrives during a transfer that stay in memory; more goes to a temporary file."""
    directory: str | None = None
    """Where that file is made, if not where temporary files are."""


class SnapshotProvider:
    """One snapshot on its way to one joiner."""

    def __init__(self, joiner: ProcessId, attempt: int, patience: float) -> None:
        self.joiner = joiner
        self.attempt = attempt
        self.window = ChunkWindow(patience)
        self.task: asyncio.Task[None] | None = None
        self.is_read = False


class SnapshotProviders:
    """All that one member gives at this moment. `changed` is called when a snapshot was read to its end, or given up."""

    def __init__(self, group: GroupId, transfer: Transfer, send: SendPrivately, changed: Callable[[], None]) -> None:
        self._group = group
        self._transfer = transfer
        self._send_message = send
        self._changed = changed
        self._active: dict[ProcessId, SnapshotProvider] = {}

    @property
    def holds_the_stream(self) -> bool:
        return not self._transfer.background and any(not one.is_read for one in self._active.values())

    def provide(self, joiner: ProcessId, attempt: int, holders: tuple[ProcessId, ...]) -> None:
        """Take the snapshot now and send it in a task of its own."""
        self.stop(joiner)
        provider = self._active[joiner] = SnapshotProvider(joiner, attempt, self._transfer.patience)
        try:
            chunks = self._transfer.save()
            _require_iterable(chunks)
        except Exception as error:
            provider.task = asyncio.ensure_future(self._fail(provider, error))
        else:
            provider.task = asyncio.ensure_future(self._send(provider, chunks, holders))

    async def _send(
        self, one: SnapshotProvider, chunks: Iterable[bytes] | AsyncIterable[bytes], holders: tuple[ProcessId, ...]
    ) -> None:
        try:
            await self._send_message(one.joiner, StateBegin(self._group, one.attempt, holders))
            async with aclosing(packs(chunks)) as source:
                async for pack in source:
                    await one.window.enter()
                    await self._send_message(one.joiner, StateChunks(self._group, one.attempt, pack))
            await self._send_message(one.joiner, StateEnd(self._group, one.attempt))
        except SessionLost:
            pass
        except Exception as error:
            await self._fail(one, error)
        finally:
            self._finished(one)

    async def _fail(self, one: SnapshotProvider, error: Exception) -> None:
        """The joiner asks somebody else; whoever wrote `save` is told here, and the member goes on."""
        asyncio.get_running_loop().call_exception_handler(
            {"message": f"the state for {one.joiner} could not be given: {error}", "exception": error}
        )
        try:
            await self._send_message(one.joiner, StateFailed(self._group, one.attempt, str(error)[:ERROR_TEXT_MAX], False))
        except SessionLost:
            pass
        finally:
            self._finished(one)

    def _finished(self, one: SnapshotProvider) -> None:
        one.is_read = True
        if self._active.get(one.joiner) is one:
            del self._active[one.joiner]
        self._changed()

    # --- what the joiners say ---------------------------------------------------------------------------------------

    def taken(self, joiner: ProcessId, attempt: int) -> None:
        one = self._active.get(joiner)
        if one is not None and one.attempt == attempt:
            one.window.taken()

    def stop(self, joiner: ProcessId, attempt: int | None = None) -> None:
        """It wants no more of this attempt, or of any, or is gone."""
        one = self._active.get(joiner)
        if one is not None and attempt in (None, one.attempt):
            del self._active[joiner]
            if one.task is not None:
                one.task.cancel()
            self._changed()

    def keep_only(self, members: tuple[ProcessId, ...]) -> None:
        for joiner in [one for one in self._active if one not in members]:
            self.stop(joiner)

    def stop_all(self) -> None:
        self.keep_only(())


def _require_iterable(chunks: object) -> None:
    """A mistake that would otherwise show as a state of numbers."""
    if isinstance(chunks, bytes | bytearray | str) or not isinstance(chunks, Iterable | AsyncIterable):
        raise UsageError(f"save returned {type(chunks).__name__}: return an iterable of bytes")


# --- chunks -----------------------------------------------------------------------------------------------------------

PACK_BYTES: Final = 64 * 1024
PACK_CHUNKS: Final = 1024
WINDOW: Final = 8


SnapshotChunks = Iterable[bytes] | AsyncIterable[bytes]
"""What `save` returns."""


async def each(chunks: SnapshotChunks) -> AsyncGenerator[bytes, None]:
    if isinstance(chunks, AsyncIterable):
        async for chunk in chunks:
            yield bytes(chunk)
    else:
        for chunk in chunks:
            yield bytes(chunk)


async def packs(chunks: SnapshotChunks) -> AsyncGenerator[list[bytes], None]:
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


class ChunkWindow:
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
