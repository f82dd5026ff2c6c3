"""Iterating over a stream: messages one by one, or whole frames. The same for groups and for a process's private name.

1. One stream has one reader at a time; it may change between messages and batches, and go on after any error or cancellation.
2. Nothing is taken before it is returned: a cancelled `__anext__` has taken nothing.
3. A stream ends when everything that came was taken: quietly if it was left or closed here, else with the error that ended it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Generic, TypeVar

from transis.client.codecs import Codec
from transis.client.events import Batch, Message, View
from transis.client.inlet import Entry, Inlet
from transis.client.positions import Passed
from transis.sessions.frames import Left, Stream
from transis.types.errors import JoinRefused
from transis.types.views import View as Configuration

T = TypeVar("T")


class MessageStream(Generic[T]):
    """`passed` is where the iteration stands, in a stream that has positions."""

    passed: Passed | None = None

    def __init__(self, inlet: Inlet, codec: Codec[T]) -> None:
        self._inlet = inlet
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
        entry = self._inlet.peek()
        return entry is not None and not isinstance(entry.frame, Left) and self._may_take()

    async def _next_event(self) -> Batch[T] | View | Configuration:
        inlet = self._inlet
        while True:
            entry = inlet.take() if self._may_take() else None
            if entry is None:
                if inlet.ended:
                    self._current = None
                    inlet.raise_failure()
                    raise StopAsyncIteration
                await inlet.wait()
                continue
            event = self._open(entry)
            if event is not None:
                return event

    def _may_take(self) -> bool:
        return True

    def _open(self, entry: Entry) -> Batch[T] | View | Configuration | None:
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
