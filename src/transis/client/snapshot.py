"""Snapshots: what a group's members save and load, and how a provider sends one to each joiner that asks.

1. Each joiner gets its own snapshot, taken at its own cut and sent by its own task.
2. While a snapshot is read, the member's own stream waits, so that `save` may be a generator over the live state. With
   `background=True` the stream goes on, and `save` must return something that later messages do not change.
3. Chunks keep their boundaries: `load` gets exactly the chunks that `save` yielded. Small ones share a message.
4. At most WINDOW messages are on their way that `load` has not taken yet: memory stays flat on both sides for any size of state.
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
"""Sends a private message to one process."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """How the members of a group pass their state to later members (docs/client.md)."""

    save: Callable[[], Iterable[bytes] | AsyncIterable[bytes]]
    """Called at the cut, in the member's own stream: the application has seen everything before it and nothing after it."""
    load: Callable[[AsyncIterator[bytes]], Awaitable[None]]
    """Gets the chunks of one `save`, in order. May be called again from the start; its result counts once it returns."""
    background: bool = False
    """Let the member's stream go on while the chunks of `save` are read."""
    patience: float = 30.0
    """Seconds that a joiner's `load` may take nothing before the provider gives up on it."""
    memory_max: int = 1 << 20
    """Bytes arriving during a transfer that are kept in memory; more goes to a temporary file."""
    directory: str | None = None
    """Directory of that file; None for the system's temporary directory."""


class SnapshotProvider:
    """One snapshot on its way to one joiner."""

    def __init__(self, joiner: ProcessId, attempt: int, patience: float) -> None:
        self.joiner = joiner
        self.attempt = attempt
        self.window: ChunkWindow = ChunkWindow(patience)
        self.task: asyncio.Task[None] | None = None
        self.is_read = False


class SnapshotProviders:
    """All snapshots this member is providing now. `changed` is called when one was read to its end or given up."""

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
        """Take the snapshot now, and send it from a task of its own."""
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
        """Tell the joiner, which asks another member, and report the error to this program, which goes on."""
        asyncio.get_running_loop().call_exception_handler(
            {"message": f"the state could not be sent to {one.joiner}: {error}", "exception": error}
        )
        try:
            await self._send_message(one.joiner, StateFailed(self._group, one.attempt, str(error)[:ERROR_TEXT_MAX], False))
        except (SessionLost, UsageError):
            pass  # The session is over.
        finally:
            self._finished(one)

    def _finished(self, one: SnapshotProvider) -> None:
        one.is_read = True
        if self._active.get(one.joiner) is one:
            del self._active[one.joiner]
        self._changed()

    # --- answers of joiners -----------------------------------------------------------------------------------------

    def taken(self, joiner: ProcessId, attempt: int) -> None:
        one = self._active.get(joiner)
        if one is not None and one.attempt == attempt:
            one.window.taken()

    def stop(self, joiner: ProcessId, attempt: int | None = None) -> None:
        """The joiner wants no more of this attempt (of any, if None), or is gone."""
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
    """Iterating over bytes would send a state of single numbers."""
    if isinstance(chunks, bytes | bytearray | str) or not isinstance(chunks, Iterable | AsyncIterable):
        raise UsageError(f"save returned {type(chunks).__name__}: it must return an iterable of bytes")


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
    """Chunks packed into messages of up to PACK_BYTES; a larger chunk travels alone."""
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
    """The provider's side: bounds the number of messages on their way."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._outstanding = 0
        self._room: asyncio.Future[None] | None = None

    async def enter(self) -> None:
        """Wait for room. A joiner that takes nothing for too long is given up, because others may be waiting for this member."""
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
        self.finished: bool = False
        self.bytes: int = 0
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
