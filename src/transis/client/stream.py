"""Iteration over a stream, the buffer of frames behind it, and the spool on disk that takes what does not fit in memory.

1. A stream has one reader at a time. The reader may change between messages and batches, and go on after any error or
   cancellation: `__anext__` takes nothing before it returns it, so a cancelled call has lost nothing.
2. A stream ends when everything that came was taken: quietly if it was left or closed here, else with the error that ended it.
3. Taking or discarding a frame gives its credit back. A frame that went to several streams gives it back once, when the last of
   them lets go.
4. While a stream is *held* (a state transfer is under way), everything beyond `memory_max` goes to the spool and its credit goes
   back, so that the node does not close a session as slow whose application is only not allowed to read yet. The order is
   `_front`, then the spool, then `_back`, which is used only behind a spool.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from typing import IO, Final, Generic, NamedTuple, TypeVar

from transis.client.events import Batch, Codec, Configuration, Message, Passed, View
from transis.client.sending import require_loop
from transis.process.fork import stays_here
from transis.sessions.frames import (
    NODE_FRAMES,
    ClientFrame,
    Configured,
    Follow,
    FrameReader,
    Left,
    Stream,
    StreamFrame,
    cost,
    encode_frame,
)
from transis.types.errors import InternalError, JoinRefused, Rejection, TransisError, UsageError
from transis.types.ids import ProcessId

# --- stream -----------------------------------------------------------------------------------------------------------

T = TypeVar("T")


class MessageStream(Generic[T]):
    """Messages one by one, or whole frames; of groups and of the private name alike. `_passed` is where the iteration stands."""

    _passed: Passed | None = None

    def __init__(self, buffer: StreamBuffer, codec: Codec[T]) -> None:
        self._buffer = buffer
        self._codec = codec
        self._current: Batch[T] | None = None
        self._rank = 0
        stays_here(self)

    def __aiter__(self) -> MessageStream[T]:
        return self

    async def __anext__(self) -> Message[T] | View:
        while True:
            current = self._current
            if current is not None and self._rank < len(current):
                self._rank += 1
                return current[self._rank - 1]
            event = await self._next_event()
            if isinstance(event, Batch):
                self._current, self._rank = event, 0
            elif not isinstance(event, Configuration):
                return event

    def batches(self) -> AsyncIterator[Batch[T] | View]:
        """The same stream frame by frame: no object per message, unless a batch is iterated over."""
        return _Batches(self)

    def everything(self) -> AsyncIterator[Batch[T] | View | Configuration]:
        """Frame by frame, with the node's configurations at their places if the group was joined with `configurations=True`."""
        return _Everything(self)

    async def next_batch(self) -> Batch[T] | View:
        """The next of what `batches()` yields."""
        while isinstance(event := await self.next_of_all(), Configuration):
            pass
        return event

    async def next_of_all(self) -> Batch[T] | View | Configuration:
        """The next of what `everything()` yields."""
        current, self._current = self._current, None
        if current is not None and self._rank < len(current):
            return current.after(self._rank)
        return await self._next_event()

    @property
    def _is_ready(self) -> bool:
        """Whether the next event would come without waiting and, as far as can be seen, without an error."""
        entry = self._buffer.peek()
        return entry is not None and not isinstance(entry.frame, Left) and self._may_take()

    async def _next_event(self) -> Batch[T] | View | Configuration:
        buffer = self._buffer
        while True:
            entry = buffer.take() if self._may_take() else None
            if entry is None:
                if buffer.ended:
                    self._current = None
                    buffer.raise_failure()
                    raise StopAsyncIteration
                await buffer.wait()
                continue
            event = self._open(entry)
            if event is not None:
                return event

    def _may_take(self) -> bool:
        return True

    def _open(self, entry: BufferedFrame) -> Batch[T] | View | Configuration | None:
        """What the application sees of a frame; None if the frame is not for it."""
        frame = entry.frame
        if isinstance(frame, Stream):
            return Batch(frame, entry.names, self._codec)
        if not isinstance(frame, Left):
            return frame.view
        raise JoinRefused(f"this process was removed from the group {frame.name!r}: {frame.why}")


class _Batches(Generic[T]):
    def __init__(self, stream: MessageStream[T]) -> None:
        self._stream = stream

    def __aiter__(self) -> _Batches[T]:
        return self

    async def __anext__(self) -> Batch[T] | View:
        return await self._stream.next_batch()


class _Everything(Generic[T]):
    def __init__(self, stream: MessageStream[T]) -> None:
        self._stream = stream

    def __aiter__(self) -> _Everything[T]:
        return self

    async def __anext__(self) -> Batch[T] | View | Configuration:
        return await self._stream.next_of_all()


# --- buffer ------------------------------------------------------------------------------------------------------------

FrameFilter = Callable[[StreamFrame], StreamFrame | None]
"""Looks at a frame that arrives and returns what the iteration shall see of it: all, the rest behind a point, or nothing."""

SPOOL_MAX: Final = 16 << 30
"""Bytes a spool may take on disk. Beyond it frames stay unread, and the node's limits for slow clients apply."""


class CreditClaim:
    """A frame's claim on the credit of the session, until every stream that holds the frame lets go."""

    __slots__ = ("_cost", "_give_back", "holders")

    def __init__(self, cost: int, give_back: Callable[[int], None]) -> None:
        self._cost = cost
        self._give_back = give_back
        self.holders: int = 0

    def let_go(self) -> None:
        assert self.holders > 0
        self.holders -= 1
        if not self.holders:
            self._give_back(self._cost)

    @property
    def cost(self) -> int:
        return self._cost


class BufferedFrame(NamedTuple):
    """A frame, and the names of this stream it was sent to."""

    frame: StreamFrame
    names: tuple[str, ...]
    claim: CreditClaim | None


class StreamBuffer:
    """Frames between session and reader. `put_count` and `taken_count` number them, so that a point between two can be named."""

    def __init__(self, filter: FrameFilter | None = None, memory_max: int = 1 << 20, spool: Spool | None = None) -> None:
        self.filter = filter
        self.put_count: int = 0
        self.taken_count: int = 0
        self.bytes: int = 0
        self._held = False
        self._memory_max = memory_max
        self._spool = spool
        self._spooled_names: deque[tuple[str, ...]] = deque()
        self._front: deque[BufferedFrame] = deque()
        self._back: deque[BufferedFrame] = deque()
        self._discarding = False
        self._ended = False
        self._failure: Callable[[], TransisError] | None = None
        self._waiting: asyncio.Future[None] | None = None
        self.home: asyncio.AbstractEventLoop | None = None
        """The only loop in which anybody may wait, once that is known."""

    # --- the session's side -----------------------------------------------------------------------------------------

    def put(self, frame: StreamFrame, names: tuple[str, ...], claim: CreditClaim | None = None) -> None:
        """A frame arrived. Its claim, if it has one, already counts this stream."""
        kept = frame if self.filter is None else self.filter(frame)
        if kept is None or self._discarding or self._ended:
            if claim is not None:
                claim.let_go()
            return
        self.add(BufferedFrame(kept, names, claim))

    def add(self, entry: BufferedFrame) -> None:
        """Append a frame that passed the filter."""
        self.put_count += 1
        (self._back if self._spool else self._front).append(entry)
        self.bytes += _cost(entry)
        if self._held:
            self._spill()
        self.wake()

    @property
    def held(self) -> bool:
        return self._held

    @held.setter
    def held(self, held: bool) -> None:
        """While the application may not read, what waits for it must not use up the window: other frames need it."""
        self._held = held
        if held:
            self._spill()

    def _spill(self) -> None:
        """Move everything behind the first `memory_max` bytes to the spool, if there is room, and give its credit back."""
        spool = self._spool
        if spool is None or spool.size >= SPOOL_MAX:
            return
        excess = self._take_back() if spool else self._take_excess()
        try:
            while excess:
                spool.append(excess[0].frame)
                self._spooled_names.append(excess[0].names)
                self._let_go(excess.popleft())
        finally:
            (self._back if spool else self._front).extend(excess)  # What the disk did not take.

    def _take_back(self) -> deque[BufferedFrame]:
        back, self._back = self._back, deque()
        return back

    def _take_excess(self) -> deque[BufferedFrame]:
        excess: deque[BufferedFrame] = deque()
        remaining = self.bytes
        while self._front and remaining > self._memory_max:
            excess.appendleft(self._front.pop())
            remaining -= _cost(excess[0])
        return excess

    def end(self, failure: Callable[[], TransisError] | None = None) -> None:
        """Nothing more comes. What is there can still be taken; then the iteration ends, or raises the failure."""
        if not self._ended:
            self._ended, self._failure = True, failure
            self.wake()

    def discard(self, for_good: bool = False) -> None:
        """Drop everything that is there; if `for_good`, also everything that still comes."""
        self._discarding = self._discarding or for_good
        self.drop_before(self.put_count)

    # --- the application's side -------------------------------------------------------------------------------------

    def take(self) -> BufferedFrame | None:
        """The next entry, or None if there is none now."""
        if self._front:
            entry = self._let_go(self._front.popleft())
        elif self._spool:
            entry = BufferedFrame(self._spool.popleft(), self._spooled_names.popleft(), None)
            if not self._spool:
                self._front, self._back = self._back, self._front
        else:
            return None
        self.taken_count += 1
        return entry

    def _let_go(self, entry: BufferedFrame) -> BufferedFrame:
        if entry.claim is None:
            return entry
        self.bytes -= _cost(entry)
        entry.claim.let_go()
        return entry._replace(claim=None)

    def peek(self) -> BufferedFrame | None:
        """The next entry, if it is in memory."""
        return self._front[0] if self._front else None

    def ahead(self) -> Iterator[BufferedFrame]:
        """The next entries, as far as they are in memory. Taking one invalidates the iterator."""
        return iter(self._front)

    def drop_before(self, count: int) -> None:
        """Drop the entries up to the `count`-th one ever put."""
        while self.taken_count < count:
            entry = self.take()
            assert entry is not None

    def put_first(self, frame: StreamFrame, names: tuple[str, ...]) -> None:
        """Put a frame in front of everything that is there."""
        self._front.appendleft(BufferedFrame(frame, names, None))
        self.taken_count -= 1
        self.wake()

    async def wait(self) -> None:
        """Wait until an entry comes, the stream ends, or somebody calls `wake`. A cancelled wait loses nothing."""
        if self._waiting is not None:
            raise UsageError("another task is iterating over this stream: a stream has one reader at a time")
        self._waiting = require_loop(self.home).create_future()
        try:
            await self._waiting
        finally:
            self._waiting = None

    def wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    @property
    def ended(self) -> bool:
        """Whether nothing is left and nothing more will come."""
        return self._ended and not self._front and not self._spool

    def raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure()


def _cost(entry: BufferedFrame) -> int:
    return 0 if entry.claim is None else entry.claim.cost


# --- spool ------------------------------------------------------------------------------------------------------------

BLOCK: Final = 256 * 1024


class Spool:
    """Frames on disk, first in, first out, encoded as on a socket. `size` is the number of bytes that were not read yet.

    The file is temporary and nameless, made for the first frame; nothing outlives the process.
    """

    def __init__(self, directory: str | None = None) -> None:
        self._directory = directory
        self._file: IO[bytes] | None = None
        self._reader = FrameReader(NODE_FRAMES)
        self._ready: deque[StreamFrame] = deque()
        self._read = self._written = 0
        self._count = 0
        stays_here(self)

    def descriptors(self) -> list[int]:
        return [] if self._file is None else [self._file.fileno()]

    def __len__(self) -> int:
        return self._count

    @property
    def size(self) -> int:
        return self._written - self._read

    def append(self, frame: StreamFrame) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile(dir=self._directory, prefix="transis-", buffering=0)  # noqa: SIM115  # Kept open.
        data, end = memoryview(encode_frame(frame)), self._written
        while data:
            done = os.pwrite(self._file.fileno(), data, end)
            end += done
            data = data[done:]
        self._written = end  # Only now: half a frame on a full disk does not count.
        self._count += 1

    def popleft(self) -> StreamFrame:
        assert self._count > 0
        while not self._ready:
            self._read_block()
        self._count -= 1
        frame = self._ready.popleft()
        if not self._count:
            self.clear()
        return frame

    def _read_block(self) -> None:
        assert self._file is not None
        data = os.pread(self._file.fileno(), BLOCK, self._read)
        frames = self._reader.feed(data)
        if not data or isinstance(frames, Rejection):
            raise InternalError("a temporary file does not hold what was written to it")
        self._read += len(data)
        self._ready.extend(frames)

    def clear(self) -> None:
        """Forget everything and free the disk space."""
        if self._file is not None:
            self._file.close()
        self._file = None
        self._reader = FrameReader(NODE_FRAMES)
        self._ready.clear()
        self._read = self._written = self._count = 0


# --- streams of a session ---------------------------------------------------------------------------------------------


class PrivateStream(MessageStream[T]):
    """The messages to one process by its private name."""

    def __init__(self, buffer: StreamBuffer, codec: Codec[T], process: ProcessId) -> None:
        super().__init__(buffer, codec)
        self._process = process

    def __repr__(self) -> str:
        return f"<Stream of private messages to {self._process}>"


class ConfigurationFollowers:
    """The streams that want the node's configurations. Only the first asks the node; later ones start from the last known."""

    def __init__(self, post: Callable[[ClientFrame], None]) -> None:
        self._post = post
        self._asked = False
        self._last: Configured | None = None
        self._buffers: list[StreamBuffer] = []

    def add(self, buffer: StreamBuffer) -> None:
        if not self._asked:
            self._asked = True
            self._post(Follow())
        elif self._last is not None:
            buffer.put(self._last, ())
        self._buffers.append(buffer)

    def remove(self, buffer: StreamBuffer) -> None:
        self._buffers = [one for one in self._buffers if one is not buffer]

    def configured(self, frame: Configured, give_back: Callable[[int], None]) -> None:
        self._last = frame
        claim = CreditClaim(cost(frame), give_back)
        claim.holders = 1 + len(self._buffers)
        for buffer in self._buffers:
            buffer.put(frame, (), claim)
        claim.let_go()
