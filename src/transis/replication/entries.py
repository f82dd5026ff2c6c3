"""Reading what is ordered, from any offset on, for as long as the replica is open.

1. What was delivered last is in memory, up to a number of bytes; what is older comes from the log on disk, a piece at a time, in
   a thread of its own. A reader keeps nothing but its offset, so any number of them may be anywhere.
2. What has a place and no effect (a repeated key, a creator that was no member) is skipped, and its offsets with it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from typing import Final, Generic, NamedTuple, TypeVar

from transis.client.events import Codec
from transis.prsl.actions import Action, Kind
from transis.prsl.outputs import Effect, Ordered
from transis.prsl.prefix import Base
from transis.prsl.record import Record
from transis.replication.posts import Waiting, a_change, wake
from transis.replication.reader import actions
from transis.replication.store import Store
from transis.types.errors import CodecError, TransisError, UsageError

T = TypeVar("T")

TAIL_BYTES: Final = 8 << 20
"""What is kept in memory of what was delivered last."""
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def time_of(microseconds: int) -> datetime:
    return EPOCH + timedelta(microseconds=microseconds)


class Entry(NamedTuple, Generic[T]):
    """One ordered message: at this offset everywhere, for all time."""

    offset: int
    creator: str
    """The replica that posted it, by name."""
    data: T
    time: datetime
    """When it was posted, by its creator's clock. In UTC."""

    def __str__(self) -> str:
        return f"{self.offset} {self.creator}: {self.data!r}"


class EntryBatch(Generic[T]):
    """Consecutive messages that one replica posted together."""

    def __init__(self, offset: int, creator: str, action: Action, skip: int, codec: Codec[T]) -> None:
        self.offset: int = offset + skip
        """The offset of the first; the others follow one by one."""
        self.creator: str = creator
        """The replica that posted them, by name."""
        self._action = action
        self._skip = skip
        self._codec = codec

    @property
    def time(self) -> datetime:
        """When they were posted, by their creator's clock. In UTC."""
        return time_of(self._action.posted)

    @property
    def payloads(self) -> list[bytes]:
        """The data of the messages, not decoded."""
        return self._action.messages()[self._skip :]

    def __len__(self) -> int:
        return self._action.count - self._skip

    def __iter__(self) -> Iterator[Entry[T]]:
        time = self.time
        for offset, payload in enumerate(self.payloads, self.offset):
            yield Entry(offset, self.creator, self._decoded(offset, payload), time)

    def _decoded(self, offset: int, payload: bytes) -> T:
        try:
            return self._codec.decode(payload)
        except Exception as error:
            raise CodecError(f"the message at offset {offset} cannot be decoded: {error}") from error

    def __str__(self) -> str:
        return f"{self.offset}..{self.offset + len(self) - 1} {self.creator}: {len(self)} messages"

    __repr__ = __str__


class Delivered:
    """What was delivered here: where it ends, the last of it in memory, and who waits for more."""

    def __init__(self, store: Store, begin: Base) -> None:
        """What is before `begin` is not delivered again."""
        self.store: Final = store
        self.record: Record = begin.record
        self.place: int = begin.place
        self.end: int = begin.offset
        self.tail_start: int = begin.offset
        self.first: int = store.opened.base.offset
        """The first offset that is kept."""
        self.failure: TransisError | None = None
        self.waiting: Waiting = []
        self._tail: deque[tuple[int, Action]] = deque()
        self._tail_bytes = 0
        self._without_effect: set[int] = set()

    def add(self, news: Ordered) -> None:
        self.place, self.end = news.place + 1, news.offset + news.action.count
        if news.effect != Effect.RUN:
            self._without_effect.add(news.offset)
        if news.action.count:
            self._tail.append((news.offset, news.action))
            self._tail_bytes += news.action.size
            while self._tail_bytes > TAIL_BYTES and len(self._tail) > 1:
                offset, action = self._tail.popleft()
                self._tail_bytes -= action.size
                self._without_effect.discard(offset)
            self.tail_start = self._tail[0][0]
            wake(self.waiting)

    def jump(self, base: Base) -> None:
        """All before came as a snapshot."""
        self.record, self.place, self.end, self.tail_start, self.first = (
            base.record,
            base.place,
            base.offset,
            base.offset,
            base.offset,
        )
        self._tail.clear()
        self._tail_bytes = 0
        wake(self.waiting)

    def end_with(self, failure: TransisError) -> None:
        self.failure = failure
        wake(self.waiting)

    async def following(self, offset: int) -> list[tuple[int, Action]]:
        """The next actions with messages from an offset on; waits until there are some."""
        while offset >= self.end:
            if self.failure is not None:
                raise self.failure
            await a_change(self.waiting)
        if offset >= self.tail_start:
            return self._in_tail(offset)
        found = await asyncio.to_thread(actions, self.store.path, offset, self.tail_start, self.place)
        return found or self._in_tail(self.tail_start)

    def _in_tail(self, offset: int) -> list[tuple[int, Action]]:
        found: deque[tuple[int, Action]] = deque()
        for first, action in reversed(self._tail):
            if first + action.count <= offset:
                break
            found.appendleft((first, action))
        return list(found)

    def has_effect(self, offset: int, action: Action) -> bool:
        return action.kind == Kind.DATA and offset not in self._without_effect

    def creator(self, action: Action) -> str:
        entry = self.record.entry(action.id.creator)
        return entry.name if entry is not None else f"replica {action.id.creator}"


class Entries(Generic[T]):
    """`async for entry in log.read(after=offset)`, or `.batches()` for speed. It ends when the replica is closed."""

    def __init__(self, delivered: Delivered, start: int | None, codec: Codec[T]) -> None:
        if start is not None and start < delivered.first:
            raise UsageError(
                f"after = {start - 1}: what is before offset {delivered.first} was trimmed here, so read from there or a snapshot"
            )
        self._delivered = delivered
        self._codec = codec
        self._next = delivered.first if start is None else start
        self._batches: deque[EntryBatch[T]] = deque()
        self._entries: Iterator[Entry[T]] = iter(())

    def __aiter__(self) -> Entries[T]:
        return self

    async def __anext__(self) -> Entry[T]:
        while True:
            for entry in self._entries:
                return entry
            self._entries = iter(await self.next_batch())

    def batches(self) -> AsyncIterator[EntryBatch[T]]:
        """The same by what was posted together: no object per message, unless a batch is iterated over."""
        return _Batches(self)

    async def next_batch(self) -> EntryBatch[T]:
        """The next of what `batches()` yields."""
        while not self._batches:
            await self._fetch()
        return self._batches.popleft()

    @property
    def _is_ready(self) -> bool:
        """Whether the next batch would come without waiting for the order."""
        return bool(self._batches) or self._delivered.tail_start <= self._next < self._delivered.end

    async def _fetch(self) -> None:
        delivered = self._delivered
        try:
            found = await delivered.following(self._next)
        except UsageError:
            raise StopAsyncIteration from None
        for offset, action in found:
            if delivered.has_effect(offset, action):
                skip = max(0, self._next - offset)
                self._batches.append(EntryBatch(offset, delivered.creator(action), action, skip, self._codec))
            self._next = offset + action.count

    def __repr__(self) -> str:
        return f"<Entries from offset {self._next}>"


class _Batches(Generic[T]):
    def __init__(self, entries: Entries[T]) -> None:
        self._entries = entries

    def __aiter__(self) -> _Batches[T]:
        return self

    async def __anext__(self) -> EntryBatch[T]:
        return await self._entries.next_batch()
