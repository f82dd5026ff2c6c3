"""Iteration over a stream; its buffer and spool.

Iterating over a stream: messages one by one, or whole frames. The same for groups and for a process's private name.

1. One stream has one reader at a time; it may change between messages and batches, and go on after any error or cancellation.
2. Nothing is taken before it is returned: a cancelled `__anext__` has taken nothing.
3. A stream ends when everything that came was taken: quietly if it was left or closed here, else with the error that ended it.

The frames of one stream on their way from the session to whoever iterates.

1. What is taken or discarded gives its credit back; a frame that went to several streams when the last of them let go of it.
2. Waiting takes nothing: whoever is cancelled while it waits loses nothing, and the next one to ask goes on where it was.
3. A stream that is *held* (a state transfer is under way) puts what is more than `memory_max` into a spool and gives the credit
   back, so that the node does not take a client for a slow one that only is not allowed to look. Order: `_front`, then the spool,
   then `_back`, which is used only behind a spool.

Stream frames on disk, first in, first out: what arrives while an application cannot take it, without a bound on memory.

A nameless temporary file, made when the first frame comes and gone with the spool; nothing in it outlives the process. Frames
lie in it as they do on a socket.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from typing import IO, Final, Generic, NamedTuple, TypeVar

from transis.client.events import Batch, Codec, Message, Passed, View
from transis.sessions.frames import NODE_FRAMES, FrameReader, Left, Stream, StreamFrame, encode_frame
from transis.types.errors import InternalError, JoinRefused, Rejection, TransisError, UsageError
from transis.types.views import View as Configuration

# --- stream -----------------------------------------------------------------------------------------------------------

T = TypeVar("T")


class MessageStream(Generic[T]):
    """`passed` is where the iteration stands, in a stream that has positions."""

    passed: Passed | None = None

    def __init__(self, buffer: StreamBuffer, codec: Codec[T]) -> None:
        self._buffer = buffer
        self._codec = codec
        self._current: Batch[T] | None = None
        self._rank = 0

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
        """The same stream by frames: no object per message, unless a batch is iterated over."""
        return _Batches(self)

    def everything(self) -> AsyncIterator[Batch[T] | View | Configuration]:
        """By frames, with the node's configurations in their places, if the group was joined with `configurations=True`."""
        return _Everything(self)

    async def next_batch(self) -> Batch[T] | View:
        while isinstance(event := await self.next_of_all(), Configuration):
            pass
        return event

    async def next_of_all(self) -> Batch[T] | View | Configuration:
        current, self._current = self._current, None
        if current is not None and self._rank < len(current):
            return current.after(self._rank)
        return await self._next_event()

    @property
    def is_ready(self) -> bool:
        """Whether the next one would come without waiting and without an error, as far as can be seen."""
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
        """What the application sees of a frame; None if it is not for it."""
        frame = entry.frame
        if isinstance(frame, Stream):
            return Batch(frame, entry.names, self._codec)
        if not isinstance(frame, Left):
            return frame.view
        raise JoinRefused(f"this process was put out of the group {frame.name!r}: {frame.why}")


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
"""Looks at what arrives and says what of it is to be kept for the iteration: all, the rest behind a point, or nothing."""

SPOOL_MAX: Final = 16 << 30
"""Bytes that a spool may take on disk. Beyond it frames stay unread, and the node's own limits for slow clients apply."""


class CreditClaim:
    """A frame's claim on the credit of the session, until all the streams that have it let go."""

    __slots__ = ("_cost", "_give_back", "holders")

    def __init__(self, cost: int, give_back: Callable[[int], None]) -> None:
        self._cost = cost
        self._give_back = give_back
        self.holders = 0

    def let_go(self) -> None:
        assert self.holders > 0
        self.holders -= 1
        if not self.holders:
            self._give_back(self._cost)

    @property
    def cost(self) -> int:
        return self._cost


class BufferedFrame(NamedTuple):
    """A frame and the joined groups of this stream through which it came."""

    frame: StreamFrame
    names: tuple[str, ...]
    claim: CreditClaim | None


class StreamBuffer:
    """`put_count` and `taken_count` number the entries, so that a place between two of them can be named."""

    def __init__(self, filter: FrameFilter | None = None, memory_max: int = 1 << 20, spool: Spool | None = None) -> None:
        self.filter = filter
        self.put_count = self.taken_count = 0
        self.bytes = 0
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

    # --- the session's side -----------------------------------------------------------------------------------------

    def put(self, frame: StreamFrame, names: tuple[str, ...], claim: CreditClaim | None = None) -> None:
        """The frame arrived. The claim was counted for this stream already, if there is one."""
        kept = frame if self.filter is None else self.filter(frame)
        if kept is None or self._discarding or self._ended:
            if claim is not None:
                claim.let_go()
            return
        self.add(BufferedFrame(kept, names, claim))

    def add(self, entry: BufferedFrame) -> None:
        """Behind everything that is there, past the filter."""
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
        """What the application left lying must not use the window up while it may not look: other frames come through it."""
        self._held = held
        if held:
            self._spill()

    def _spill(self) -> None:
        """Move what is behind the first `memory_max` bytes to the spool, if there is room; its credit goes back."""
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
            (self._back if spool else self._front).extend(excess)  # Those that the disk did not take.

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
        """Nothing comes any more. What is there can still be taken; then the iteration ends, or raises the failure."""
        if not self._ended:
            self._ended, self._failure = True, failure
            self.wake()

    def discard(self, for_good: bool = False) -> None:
        """Let go of everything that is there; of what comes, too, if for good."""
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
        """The next entries, as far as they are in memory. Whoever takes one meanwhile ends it."""
        return iter(self._front)

    def drop_before(self, count: int) -> None:
        """Let go of the entries that were put as the first so many."""
        while self.taken_count < count:
            entry = self.take()
            assert entry is not None

    def put_first(self, frame: StreamFrame, names: tuple[str, ...]) -> None:
        """In front of everything that is there."""
        self._front.appendleft(BufferedFrame(frame, names, None))
        self.taken_count -= 1
        self.wake()

    async def wait(self) -> None:
        """Until something changed: an entry came, the stream ended, or somebody called `wake`."""
        if self._waiting is not None:
            raise UsageError("somebody else iterates over this stream at this moment: one stream has one reader")
        self._waiting = asyncio.get_running_loop().create_future()
        try:
            await self._waiting
        finally:
            self._waiting = None

    def wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    @property
    def ended(self) -> bool:
        """Nothing is left and nothing will come."""
        return self._ended and not self._front and not self._spool

    def raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure()


def _cost(entry: BufferedFrame) -> int:
    return 0 if entry.claim is None else entry.claim.cost


# --- spool ------------------------------------------------------------------------------------------------------------

BLOCK: Final = 256 * 1024


class Spool:
    """`size` is what lies in the file and was not read yet; `in_memory` how many bytes of it were read ahead."""

    def __init__(self, directory: str | None = None) -> None:
        self._directory = directory
        self._file: IO[bytes] | None = None
        self._reader = FrameReader(NODE_FRAMES)
        self._ready: deque[StreamFrame] = deque()
        self._read = self._written = 0
        self._count = 0

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
        self._written = end  # Not before: half a frame, on a disk that is full, is none.
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
            raise InternalError("what was written to a temporary file is not what is read from it")
        self._read += len(data)
        self._ready.extend(frames)

    def clear(self) -> None:
        """Forget everything and give the disk its room back."""
        if self._file is not None:
            self._file.close()
        self._file = None
        self._reader = FrameReader(NODE_FRAMES)
        self._ready.clear()
        self._read = self._written = self._count = 0
