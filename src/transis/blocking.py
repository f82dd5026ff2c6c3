"""The same API for threads and scripts: every call waits, and takes a timeout in seconds if it should not wait indefinitely.

    with transis.blocking.connect() as session:
        with session.join("orders") as group:
            group.send(b"new order").wait(timeout=5)
            for event in group:
                ...

1. A session runs in a thread of its own. Any thread may send; one thread at a time may iterate over a stream.
2. What arrived is kept until it is returned: a timeout or Ctrl-C in the middle loses nothing.
3. Streams are read ahead by whole frames, except those with state: there the place the application has reached matters.
4. A call that gives up (a timeout, Ctrl-C) waits for the end of its coroutine: it raises if nothing was done, else it returns.
5. A call in a thread with a running event loop is refused: it would stop that loop. (So it is in notebooks, where `async with`
   works at the top level.)
6. No call waits forever for a loop that cannot run it: stopping it ends what waits, and a call from its own thread is refused.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, Unpack, overload

from transis import client
from transis.client.attributes import Attached, AttachedToMany
from transis.client.blocking_directory import WhoIsWhere
from transis.client.connection import WINDOW
from transis.client.contexts import UnenteredBlocking
from transis.client.events import Batch, Codec, Configuration, Message, Passed, Position, View
from transis.client.group import Destination, require_passed
from transis.client.group import Joining as _Joining
from transis.client.loop_thread import LoopThread
from transis.client.sending import Confirmation, Outcome
from transis.client.snapshot import ChunkReader
from transis.client.stream import MessageStream
from transis.process.fork import is_inherited, stays_here
from transis.types.errors import UsageError
from transis.types.ids import MessageId, NodeId, ProcessId, Service

if TYPE_CHECKING:
    from transis.settings.schema import NodeArguments

# --- blocking ---------------------------------------------------------------------------------------------------------

T = TypeVar("T")

AHEAD: Final = 64
"""Frames that one call fetches at most from the session's thread."""


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


class Session(WhoIsWhere, Generic[T]):
    """Like `transis.Session`: what `connect` yields. To everybody else it is one process, with an id of its own."""

    def __init__(self, thread: LoopThread, inner: client.Session[T]) -> None:
        self._thread = thread
        self._session = inner
        self._private: Stream[T] | None = None
        stays_here(self)

    @property
    def process(self) -> ProcessId:
        """This process as others see it: a member of views, a sender of messages, an address for private messages."""
        return self._session.process

    @property
    def cluster(self) -> str:
        """The name of the node's cluster."""
        return self._session.cluster

    @property
    def held(self) -> str:
        """Why nothing is sent or delivered here, as in `transis.Session`; empty if there is a quorum, or it is not needed."""
        return self._session.held

    @property
    def closed(self) -> bool:
        """Whether the session is over, for whatever reason."""
        return self._session.closed

    def join(
        self, *names: str, state: Transfer | None = None, configurations: bool = False, timeout: float | None = None
    ) -> Joining[T]:
        """`with session.join("orders") as group`. Several `names` make one stream over all of them.

        With `state`, this member gets the group's state from another one first; `timeout` is for the join with the state. With
        `configurations=True`, `everything()` also yields the node's configurations.
        """
        inner = self._session.join(*names, state=None if state is None else state._for_loop(), configurations=configurations)
        return Joining(self._thread, inner, AHEAD if state is None else 1, timeout)

    @property
    def private(self) -> Stream[T]:
        """Messages to this process by its private name."""
        if self._private is None:
            self._private = Stream(self._thread, self._session.private, AHEAD)
        return self._private

    def send(
        self,
        to: Destination | Sequence[Destination],
        data: T,
        service: Service = Service.AGREED,
        timeout: float | None = None,
        **attached: Unpack[Attached],
    ) -> Receipt:
        """One multicast of `data` `to` groups and processes, as `service` promises; `attached` is `key`, `headers` and `time`."""
        sent = self._session.send(to, data, service, **attached)
        return Receipt(self._thread, self._thread.call(sent, timeout))

    def send_many(
        self,
        to: Destination | Sequence[Destination],
        datas: Sequence[T],
        service: Service = Service.AGREED,
        timeout: float | None = None,
        **attached: Unpack[AttachedToMany],
    ) -> Receipt:
        """Many messages, the `datas`; `to` and `service` as for `send`; `attached` are `keys`, `headers` and `times`."""
        sent = self._session.send_many(to, datas, service, **attached)
        return Receipt(self._thread, self._thread.call(sent, timeout))

    def close(self) -> None:
        """Leave all groups and disconnect. What was sent stays sent; open receipts are in doubt. Closing twice is harmless."""
        try:
            self._thread.call(self._session.close())
        except UsageError:
            pass  # It was closed already.
        finally:
            self._thread.stop()


class Connection(UnenteredBlocking, Generic[T]):
    """A context that yields the Session; or call `connection.open()` and, later, `session.close()`."""

    _remedy = "this is no session before it is entered: write `with transis.blocking.connect() as session:`"

    def __init__(self, inner: client.Connection[T], timeout: float | None) -> None:
        self._inner = inner
        self._timeout = timeout
        self._session: Session[T] | None = None

    def open(self) -> Session[T]:
        """Open the session, for a program that cannot use `with`."""
        thread = LoopThread()
        try:
            return Session(thread, thread.call(self._inner.open(), self._timeout))
        except BaseException:
            thread.stop()
            raise

    def __enter__(self) -> Session[T]:
        self._session = self.open()
        return self._session

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._session is not None
        if error is None or not is_inherited(self._session):
            self._session.close()


@overload
def connect(
    path: str | None = None,
    *,
    host: str | None = None,
    key: bytes | None = None,
    name: str | None = None,
    label: str = "",
    window: int = WINDOW,
    timeout: float | None = None,
) -> Connection[bytes]: ...
@overload
def connect(
    path: str | None = None,
    *,
    host: str | None = None,
    key: bytes | None = None,
    name: str | None = None,
    label: str = "",
    window: int = WINDOW,
    codec: Codec[T],
    timeout: float | None = None,
) -> Connection[T]: ...
def connect(
    path: str | None = None,
    *,
    host: str | None = None,
    key: bytes | None = None,
    name: str | None = None,
    label: str = "",
    window: int = WINDOW,
    codec: Codec[Any] | None = None,
    timeout: float | None = None,
) -> Connection[Any]:
    """Connect to the node on this machine (at `path`, or at the usual place), or to the one at `host` over sealed TCP.

    `host` is `name:port`, and needs the cluster's `key`. `label` is shown in the node's status. `window` is how many bytes may
    wait here for this program. A `codec` turns values into bytes and back; without one, data are bytes. `timeout` limits
    the attempt.
    """
    if codec is None:
        return Connection(client.connect(path, host=host, key=key, name=name, label=label, window=window), timeout)
    return Connection(client.connect(path, host=host, key=key, name=name, label=label, window=window, codec=codec), timeout)


class Node(UnenteredBlocking):
    """A node inside a program without an event loop: its `name`, and settings as `arguments`, as for `transis.Node`.

        with transis.blocking.Node("ann") as node:
            with node.connect() as session:
                with session.join("orders") as group: ...

    A node runs in a thread or a process, and each session in a thread of its own, as everywhere in this API.
    """

    _remedy = "write `with transis.blocking.Node(...) as node, node.connect() as session, session.join(...) as group:`"

    def __init__(self, name: str, **arguments: Unpack[NodeArguments]) -> None:
        from transis.embed.node import Node as EmbeddedNode  # Sessions alone load no node.

        self.name = name
        self._node = EmbeddedNode(name, **arguments)
        self._thread: LoopThread | None = None

    # --- life -------------------------------------------------------------------------------------------------------

    def open(self, timeout: float | None = None) -> Node:
        """Start the node and wait for its first view, for a program that cannot use `with`."""
        thread = LoopThread()
        try:
            thread.call(self._node.open(), timeout)
        except BaseException:
            thread.stop()
            raise
        self._thread = thread
        stays_here(self)
        return self

    def leave(self) -> None:
        """Leave the cluster gracefully; sessions that are still open are lost. Leaving again does nothing."""
        thread, self._thread = self._thread, None
        if thread is not None:
            try:
                thread.call(self._node.leave())
            finally:
                thread.stop()

    def __enter__(self) -> Node:
        return self.open()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if is_inherited(self) and error is not None:
            return
        self.leave()
        if self._node.failure is not None and error is None:
            raise self._node.failure

    # --- sessions ---------------------------------------------------------------------------------------------------

    @overload
    def connect(
        self, *, name: str | None = None, label: str = "", window: int = WINDOW, timeout: float | None = None
    ) -> Connection[bytes]: ...
    @overload
    def connect(
        self, *, name: str | None = None, label: str = "", window: int = WINDOW, codec: Codec[T], timeout: float | None = None
    ) -> Connection[T]: ...
    def connect(
        self,
        *,
        name: str | None = None,
        label: str = "",
        window: int = WINDOW,
        codec: Codec[Any] | None = None,
        timeout: float | None = None,
    ) -> Connection[Any]:
        """Like `blocking.connect`, with this node. To the others, each session is a process of its own.

        `label` is shown in the node's status, `window` is how many bytes may wait here, `codec` turns values into bytes and back.
        """
        if codec is None:
            return Connection(self._node.connect(name=name, label=label, window=window), timeout)
        return Connection(self._node.connect(name=name, label=label, window=window, codec=codec), timeout)

    # --- looking in -------------------------------------------------------------------------------------------------

    @property
    def id(self) -> NodeId:
        """Its name, which life of that name it is, and a random number."""
        return self._node.id

    @property
    def view(self) -> Configuration | None:
        """The configuration of nodes in force, regular or transitional; None before the first."""
        return self._node.view

    def statistics(self, timeout: float | None = None) -> dict[str, int | str]:
        """Figures of the node, by name."""
        return self._running().call(self._node.statistics(), timeout)

    def ended(self, timeout: float | None = None) -> str:
        """Wait until the node has ended; returns the reason, or raises the error that made the node fail."""
        return self._running().call(self._node.ended(), timeout)

    def _running(self) -> LoopThread:
        if self._thread is None:
            raise UsageError("the node is not running: write `with transis.blocking.Node(...) as node:`, or call open")
        return self._thread

    def __repr__(self) -> str:
        return repr(self._node)


# --- public names ---------------------------------------------------------------------------------------------------------

__all__ = ["Connection", "Group", "Joining", "Node", "Receipt", "Session", "Stream", "Transfer", "connect"]
