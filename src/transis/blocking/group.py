"""Streams and groups for threads: receipts that are waited for, plain iteration, and state that is loaded in a thread."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from threading import Lock
from types import TracebackType
from typing import Generic, TypeVar, Unpack

from transis import client
from transis.blocking.thread import LoopThread
from transis.client.attributes import Attached, AttachedToMany
from transis.client.contexts import UnenteredBlocking
from transis.client.events import Batch, Configuration, Message, Passed, Position, View
from transis.client.group import Joining as _Joining
from transis.client.group import require_passed
from transis.client.sending import Confirmation, Outcome
from transis.client.snapshot import ChunkReader
from transis.client.stream import MessageStream
from transis.process.fork import is_inherited, stays_here
from transis.types.errors import UsageError
from transis.types.ids import MessageId, ProcessId, Service

# --- receipts and streams ---------------------------------------------------------------------------------------------

T = TypeVar("T")


class Receipt:
    """The receipt of one `send` or `send_many`. `wait` returns once it was delivered here, or raises SendRefused or InDoubt."""

    def __init__(self, thread: LoopThread, receipt: client.Receipt) -> None:
        self._thread = thread
        self._receipt = receipt

    @property
    def id(self) -> MessageId:
        """The id of the first message; the others have the counters that follow."""
        return self._receipt.id

    @property
    def first(self) -> int:
        """The counter of the first message."""
        return self._receipt.first

    @property
    def count(self) -> int:
        """How many messages it is for."""
        return self._receipt.count

    @property
    def outcome(self) -> Outcome:
        """What is known now: `pending`, `delivered`, `refused` or `in doubt`."""
        return self._receipt.outcome

    def __repr__(self) -> str:
        return repr(self._receipt)

    def wait(self, timeout: float | None = None) -> Confirmation:
        """Wait until all its messages were delivered here, for `timeout` seconds at most; returns where."""

        async def settled() -> Confirmation:
            return await self._receipt

        if self._receipt.outcome == "pending":
            return self._thread.call(settled(), timeout)
        return self._receipt.confirmation()


class Stream(Generic[T]):
    """An iterator over messages and views, or with `batches()` over frames; with `everything()` also over configurations."""

    def __init__(self, thread: LoopThread, stream: MessageStream[T], ahead: int) -> None:
        self._thread = thread
        self._stream = stream
        self._ahead = ahead
        self._came: deque[tuple[Batch[T] | View | Configuration, Passed | None]] = deque()
        self._passed: Passed | None = None
        self._current: Batch[T] | None = None
        self._rank = 0
        self._reading = Lock()
        stays_here(self)

    def __iter__(self) -> Iterator[Message[T] | View]:
        return self

    def __next__(self) -> Message[T] | View:
        return self.next()

    def next(self, timeout: float | None = None) -> Message[T] | View:
        """The next event; StopIteration at the end, TimeoutError if none came in time."""
        while True:
            current = self._current
            if current is not None and self._rank < len(current):
                self._rank += 1
                return current[self._rank - 1]
            event = self._next_event(timeout)
            if isinstance(event, Batch):
                self._current, self._rank = event, 0
            elif not isinstance(event, Configuration):
                return event

    def next_batch(self, timeout: float | None = None) -> Batch[T] | View:
        """The next of what `batches()` yields; StopIteration at the end, TimeoutError if none came in time."""
        while isinstance(event := self.next_of_all(timeout), Configuration):
            pass
        return event

    def next_of_all(self, timeout: float | None = None) -> Batch[T] | View | Configuration:
        """The next of what `everything()` yields; StopIteration at the end, TimeoutError if none came in time."""
        current, self._current = self._current, None
        if current is not None and self._rank < len(current):
            return current.after(self._rank)
        return self._next_event(timeout)

    def batches(self) -> Iterator[Batch[T] | View]:
        """The same stream frame by frame: no object per message, unless a batch is iterated over."""
        while True:
            try:
                yield self.next_batch()
            except StopIteration:
                return

    def everything(self) -> Iterator[Batch[T] | View | Configuration]:
        """Frame by frame, with the node's configurations at their places if the group was joined with `configurations=True`."""
        while True:
            try:
                yield self.next_of_all()
            except StopIteration:
                return

    def __repr__(self) -> str:
        return repr(self._stream)

    def _next_event(self, timeout: float | None) -> Batch[T] | View | Configuration:
        if not self._reading.acquire(blocking=False):
            raise UsageError("another thread is iterating over this stream: a stream has one reader at a time")
        try:
            if not self._came and not self._thread.call(self._fetch(), timeout):
                raise StopIteration
            event, self._passed = self._came.popleft()
        finally:
            self._reading.release()
        if isinstance(event, View):
            self._entered(event)
        return event

    async def _fetch(self) -> bool:
        """Fetch what is there; False at the end. What came stays in `_came` even if the caller has given up."""
        try:
            self._came.append((await self._stream.next_of_all(), self._stream._passed))
            while len(self._came) < self._ahead and self._stream._is_ready:
                self._came.append((await self._stream.next_of_all(), self._stream._passed))
        except StopAsyncIteration:
            return bool(self._came)
        return True

    def _entered(self, view: View) -> None:
        """Hook: the application gets this view now."""


# --- groups -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Transfer:
    """Like `transis.Transfer`, with a `load` that gets a plain iterator and runs in a thread of its own while `join` waits."""

    save: Callable[[], Iterable[bytes]]
    """Called in the session's thread, in the member's own stream."""
    load: Callable[[Iterator[bytes]], None]
    """Gets the chunks of one `save`, in order. May be called again from the start; its result counts once it returns."""
    background: bool = False
    """Let the member's stream go on while the chunks of `save` are read."""
    patience: float = 30.0
    """Seconds that a joiner's `load` may take nothing before the provider gives up on it."""
    memory_max: int = 1 << 20
    """Bytes arriving during a transfer that are kept in memory; more goes to a temporary file."""
    directory: str | None = None
    """Directory of that file; None for the system's temporary directory."""

    def _for_loop(self) -> client.Transfer:
        async def load(chunks: object) -> None:
            assert isinstance(chunks, ChunkReader)
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(None, self.load, _plain(chunks, loop))

        return client.Transfer(self.save, load, self.background, self.patience, self.memory_max, self.directory)


def _plain(chunks: ChunkReader, loop: asyncio.AbstractEventLoop) -> Iterator[bytes]:
    async def following() -> bytes | None:
        return await anext(chunks, None)

    while (chunk := asyncio.run_coroutine_threadsafe(following(), loop).result()) is not None:
        yield chunk


class Group(Stream[T]):
    """Like `transis.Group`: one or several joined groups, a stream to iterate over and an address to send to."""

    def __init__(self, thread: LoopThread, inner: client.Group[T], ahead: int) -> None:
        super().__init__(thread, inner, ahead)
        self._group = inner
        self._views: dict[str, View] = {}

    def _entered(self, view: View) -> None:
        self._views[view.name] = view

    @property
    def names(self) -> tuple[str, ...]:
        """The names that were joined."""
        return self._group.names

    @property
    def name(self) -> str:
        """The first of its names, mostly the only one."""
        return self._group.name

    @property
    def views(self) -> dict[str, View]:
        """The view of each name that is in force where the iteration stands."""
        return dict(self._views) if self._views else self._group.views

    @property
    def view(self) -> View | None:
        """The view in force, None before the first one came. With several names, the view of the first name."""
        return self.views.get(self.name)

    @property
    def members(self) -> tuple[ProcessId, ...]:
        """The members of that view; none before the first one came."""
        view = self.view
        return () if view is None else view.members

    @property
    def held(self) -> str:
        """Why nothing is sent to this group from here, as in `transis.Group`; empty if there is a quorum, or it is not needed."""
        return self._group.held

    def send(
        self, data: T, service: Service = Service.AGREED, timeout: float | None = None, **attached: Unpack[Attached]
    ) -> Receipt:
        """One multicast of `data` to all members, as `service` promises; `attached` are its `key`, `headers` and `time`."""
        sent = self._group.send(data, service, **attached)
        return Receipt(self._thread, self._thread.call(sent, timeout))

    def send_many(
        self,
        datas: Sequence[T],
        service: Service = Service.AGREED,
        timeout: float | None = None,
        **attached: Unpack[AttachedToMany],
    ) -> Receipt:
        """Many messages, the `datas`, with one receipt; `service` as for `send`; `attached` are `keys`, `headers` and `times`."""
        sent = self._group.send_many(datas, service, **attached)
        return Receipt(self._thread, self._thread.call(sent, timeout))

    def reload(self, timeout: float | None = None) -> bool:
        """Replace this member's state by that of another member; False if this member's was chosen: then nothing changes."""
        loaded = self._thread.call(self._group.reload(), timeout)
        if loaded:
            self._current, self._passed = None, self._group._passed
        return loaded

    @property
    def position(self) -> Position:
        """The position behind what the iteration has passed: the last message, or all of the last batch."""
        return require_passed(self.names, self._passed).at(self._taken())

    def is_due(self, every: int) -> bool:
        """Whether every member that records a checkpoint after `every` so many messages does so behind the last one."""
        return require_passed(self.names, self._passed).is_due(every, self._taken())

    def checkpoint(self, digest: bytes | str | int) -> None:
        """Record a `digest` of this member's state at `position`; members that record different digests there have diverged."""
        self._thread.call(self._group._checkpoint_at(self.position, digest))

    def _taken(self) -> int | None:
        return None if self._current is None else self._rank

    def leave(self) -> None:
        """Ask to leave. The iteration goes on to the place of the leave and ends there. Leaving twice is harmless."""
        self._thread.call(self._group.leave())

    def close(self, timeout: float | None = None) -> None:
        """Leave, discard what was not read, and wait for the node to confirm, but not longer than a few seconds."""
        self._thread.call(self._group.close(), timeout)


class Joining(UnenteredBlocking, Generic[T]):
    """A context that yields the Group; or call `joining.open()` and, later, `group.close()`."""

    _remedy = "this is no group before it is entered: write `with session.join(...) as group:`"

    def __init__(self, thread: LoopThread, inner: _Joining[T], ahead: int, timeout: float | None) -> None:
        self._thread = thread
        self._inner = inner
        self._ahead = ahead
        self._timeout = timeout
        self._group: Group[T] | None = None

    def open(self) -> Group[T]:
        """Join, for a program that cannot use `with`."""
        return Group(self._thread, self._thread.call(self._inner.open(), self._timeout), self._ahead)

    def __enter__(self) -> Group[T]:
        self._group = self.open()
        return self._group

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._group is not None
        if error is None or not is_inherited(self._group):
            self._group.close()
