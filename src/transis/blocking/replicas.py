"""Replicas for threads and scripts: the same names, and every call waits.

    with transis.blocking.replica("accounts", me="ann", replicas=["ann", "bob", "cyd"], directory="/var/lib/bank") as log:
        offset = log.post(b"open 7").ordered(timeout=5)
        for entry in log.read(after=offset - 1): ...

A replica runs in a thread of its own, and so do the actions of a replicated object. Any thread may call.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack
from os import PathLike
from types import TracebackType
from typing import Any, Concatenate, Final, Generic, Literal, ParamSpec, TypeVar, overload

from transis import client
from transis.blocking.session import Connection
from transis.blocking.thread import LoopThread
from transis.client.contexts import UnenteredBlocking
from transis.client.events import Codec
from transis.process.fork import is_inherited, stays_here
from transis.prsl.actions import ActionId
from transis.replication import log as waiting
from transis.replication import machine as waiting_machine
from transis.replication import posts as waiting_posts
from transis.replication import replica as waiting_replica
from transis.replication.context import Once, carrying, current_once, remaining, within
from transis.replication.entries import Entries, Entry, EntryBatch
from transis.replication.posts import PostOutcome
from transis.replication.replica import Ack
from transis.replication.status import ReplicaStatus
from transis.types.errors import UsageError

T = TypeVar("T")
M = TypeVar("M")
H = TypeVar("H")
P = ParamSpec("P")
R = TypeVar("R")


Connect = Callable[[], client.Connection[bytes] | Connection[bytes]]

AHEAD: Final = 64
"""Batches that one call fetches at most from the replica's thread."""


class PostReceipt:
    """The receipt of one `post` or `post_many`."""

    def __init__(self, thread: LoopThread, inner: waiting_posts.PostReceipt) -> None:
        self._thread = thread
        self._inner = inner

    @property
    def count(self) -> int:
        """How many messages it is for."""
        return self._inner.count

    @property
    def actions(self) -> list[ActionId]:
        """The actions that carry the messages."""
        return list(self._inner.actions)

    @property
    def outcome(self) -> PostOutcome:
        """What is known now: `posted`, `accepted`, `ordered`, `stable` or `refused`."""
        return self._inner.outcome

    @property
    def offset(self) -> int | None:
        """The offset of its first message, None before it is ordered."""
        return self._inner.offset

    def accepted(self, timeout: float | None = None) -> None:
        """Wait until it is on this disk. NotYet after `timeout` seconds."""
        self._thread.call(self._inner.accepted(timeout))

    def ordered(self, timeout: float | None = None) -> int:
        """Wait until it has its place for all time, and return its first offset. NotYet after `timeout` seconds."""
        return self._thread.call(self._inner.ordered(timeout))

    def stable(self, timeout: float | None = None) -> None:
        """Wait until it is on the disk of every replica. NotYet after `timeout` seconds."""
        self._thread.call(self._inner.stable(timeout))

    def __repr__(self) -> str:
        return repr(self._inner)


class CallReceipt(PostReceipt, Generic[R]):
    """The receipt of one action: `result()` beside what every receipt has."""

    def __init__(self, thread: LoopThread, inner: waiting_machine.CallReceipt[R]) -> None:
        super().__init__(thread, inner)
        self._call = inner

    def result(self, timeout: float | None = None) -> R:
        """Wait until the action ran here, and return what it returned, or raise its error. NotYet after `timeout` seconds."""
        return self._thread.call(self._call.result(timeout))


class EntryStream(Generic[T]):
    """An iterator over entries, or with `batches()` over what was posted together. It ends when the replica is closed."""

    def __init__(self, thread: LoopThread, inner: Entries[T]) -> None:
        self._thread = thread
        self._inner = inner
        self._came: deque[EntryBatch[T]] = deque()
        self._entries: Iterator[Entry[T]] = iter(())

    def __iter__(self) -> EntryStream[T]:
        return self

    def __next__(self) -> Entry[T]:
        return self.next()

    def next(self, timeout: float | None = None) -> Entry[T]:
        """The next entry; StopIteration at the end, TimeoutError if none came in `timeout` seconds."""
        while True:
            for entry in self._entries:
                return entry
            self._entries = iter(self.next_batch(timeout))

    def next_batch(self, timeout: float | None = None) -> EntryBatch[T]:
        """The next of what `batches()` yields; StopIteration at the end, TimeoutError if none came in `timeout` seconds."""
        if not self._came and not self._thread.call(self._fetch(), timeout):
            raise StopIteration
        return self._came.popleft()

    def batches(self) -> Iterator[EntryBatch[T]]:
        """The same by what was posted together: no object per message, unless a batch is iterated over."""
        while True:
            try:
                yield self.next_batch()
            except StopIteration:
                return

    async def _fetch(self) -> bool:
        """What came stays in `_came` even if the caller has given up."""
        try:
            self._came.append(await self._inner.next_batch())
        except StopAsyncIteration:
            return False
        while len(self._came) < AHEAD and self._inner._is_ready:
            self._came.append(await self._inner.next_batch())
        return True

    def __repr__(self) -> str:
        return repr(self._inner)


class Admin:
    """Changes of the replicas. Each returns when the change has its place; PostRefused if another one came first."""

    def __init__(self, thread: LoopThread, inner: waiting.ReplicaBase) -> None:
        self._thread = thread
        self._inner = inner

    def add(self, name: str) -> None:
        """A newcomer called `name`, which was started without a list of replicas, becomes one."""
        self._thread.call(in_time(remaining(), lambda: self._inner.admin.add(name)))

    def remove(self, name: str) -> None:
        """The replica called `name` is one no more, dead or alive. What nobody else has of it is gone."""
        self._thread.call(in_time(remaining(), lambda: self._inner.admin.remove(name)))

    def replace(self, name: str, *, directory_lost: bool) -> None:
        """A newcomer takes the place of the replica called `name`, whose directory is lost: say so with `directory_lost=True`."""
        self._thread.call(in_time(remaining(), lambda: self._inner.admin.replace(name, directory_lost=directory_lost)))


async def in_time(seconds: float | None, act: Callable[[], Awaitable[R]], key: Once | None = None) -> R:
    """The caller's `within` and `once`, in the replica's thread."""
    with ExitStack() as stack:
        if seconds is not None:
            stack.enter_context(within(max(seconds, 1e-6)))
        if key is not None:
            stack.enter_context(carrying(key))
        return await act()


class ReplicaBase:
    """What a replicated log and a replicated object have in common."""

    def __init__(self, thread: LoopThread, inner: waiting.ReplicaBase) -> None:
        self._thread = thread
        self._inner = inner
        stays_here(self)

    @property
    def group(self) -> str:
        """The name of the replication group."""
        return self._inner.group

    @property
    def me(self) -> str:
        """The name of this replica."""
        return self._inner.me

    @property
    def life(self) -> int:
        """How often its directory was opened."""
        return self._inner.life

    @property
    def admin(self) -> Admin:
        """Changes of who is a replica: `add`, `remove`, `replace`."""
        return Admin(self._thread, self._inner)

    @property
    def end(self) -> int:
        """The offset behind the last message that was delivered here."""
        return self._inner.end

    def status(self) -> ReplicaStatus:
        """How this replica stands: primary or not and why, who is missing, who lags, and what waits for what."""
        return self._thread.call(self._status())

    async def _status(self) -> ReplicaStatus:
        return self._inner.status()

    def close(self) -> None:
        """End the replica here. What was posted is on the disk and goes on when it is opened again. Closing twice is harmless."""
        try:
            self._thread.call(self._inner.close())
        except UsageError:
            pass  # It was closed already.
        finally:
            self._thread.stop()

    def __repr__(self) -> str:
        return repr(self._inner)


class ReplicaLog(ReplicaBase, Generic[T]):
    """Like `transis.ReplicaLog`: a replicated log."""

    def __init__(self, thread: LoopThread, inner: waiting.ReplicaLog[T]) -> None:
        super().__init__(thread, inner)
        self._log = inner

    def post(self, data: T, *, key: str | bytes | None = None, at: int | None = None) -> PostReceipt:
        """Post one message, `data`: when this returns, it is on this disk and will be ordered. `key` and `at` as in `transis`."""
        return PostReceipt(self._thread, self._thread.call(self._log.post(data, key=key, at=at)))

    def post_many(self, datas: Sequence[T], *, key: str | bytes | None = None, at: int | None = None) -> PostReceipt:
        """Post several messages, the `datas`, with one receipt; `key` and `at` as in `transis`."""
        return PostReceipt(self._thread, self._thread.call(self._log.post_many(datas, key=key, at=at)))

    def read(self, after: int | None = None) -> EntryStream[T]:
        """What is ordered, from behind the offset `after` on, or from the first that is kept; it follows the end."""
        return EntryStream(self._thread, self._thread.call(self._read(after)))

    async def _read(self, after: int | None) -> Entries[T]:
        return self._log.read(after)

    def ack(self, offset: int) -> None:
        """This application needs nothing up to and with this `offset` any more. It may be trimmed when all have said so."""
        self._thread.call(self._ack(offset))

    async def _ack(self, offset: int) -> None:
        self._log.ack(offset)


class ReplicaMachine(ReplicaBase, Generic[M]):
    """Like `transis.ReplicaMachine`: a replicated object. Its actions and queries are methods of this, which wait."""

    def __init__(self, thread: LoopThread, inner: waiting_machine.ReplicaMachine[M]) -> None:
        super().__init__(thread, inner)
        self._machine = inner

    def call(self, action: Callable[Concatenate[M, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run this `action` everywhere, with `args` and `kwargs`, and return its result."""
        result: R = self._thread.call(in_time(remaining(), lambda: self._machine.call(action, *args, **kwargs), current_once()))
        return result

    def post(self, action: Callable[Concatenate[M, P], R], *args: P.args, **kwargs: P.kwargs) -> CallReceipt[R]:
        """The same without waiting for the result: returns when the `action`, with `args` and `kwargs`, is on this disk."""
        receipt = self._thread.call(in_time(remaining(), lambda: self._machine.post(action, *args, **kwargs), current_once()))
        return CallReceipt(self._thread, receipt)

    def ask(self, query: Callable[Concatenate[M, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        """The answer of this `query`, with `args` and `kwargs`, that sees every action which returned before, at any replica."""
        answer: R = self._thread.call(in_time(remaining(), lambda: self._machine.ask(query, *args, **kwargs)))
        return answer

    @overload
    def read(self, how: Literal["local", "dirty"]) -> Answers: ...
    @overload
    def read(self, *, at_least: int) -> Answers: ...
    def read(self, how: Any = "", *, at_least: Any = None) -> Answers:
        """Queries that need no majority. Say `how`: "local" sees what was delivered here, "dirty" also what is not ordered yet
        and may come out otherwise. `at_least=offset` waits until what is at that offset was delivered here."""
        return Answers(self._thread, self._machine, how, at_least)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} has no {name!r}", name=name, obj=self)
        method = getattr(self._machine, name)
        return lambda *args, **kwargs: self._thread.call(in_time(remaining(), lambda: method(*args, **kwargs), current_once()))


class Answers:
    """Queries of a replicated object that need no majority."""

    def __init__(self, thread: LoopThread, machine: waiting_machine.ReplicaMachine[Any], how: Any, at_least: Any) -> None:
        self._thread = thread
        self._machine = machine
        self._how: dict[str, Any] = {"at_least": at_least} if at_least is not None and not how else {"how": how}

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} has no {name!r}", name=name, obj=self)
        return lambda *args, **kwargs: self._thread.call(self._answer(remaining(), name, args, kwargs))

    async def _answer(self, seconds: float | None, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with within(3600.0 if seconds is None else max(seconds, 1e-6)):
            answer = getattr(self._machine.read(**self._how), name)(*args, **kwargs)
            return await answer if "at_least" in self._how else answer


class OpeningReplica(UnenteredBlocking, Generic[H]):
    """A context that yields the replica; or call `opening.open()` and, later, `replica.close()`."""

    _remedy = "this is no replica before it is entered: write `with transis.blocking.replica(...) as log:`"

    def __init__(self, inner: waiting_replica.OpeningReplica[Any], make: Callable[[LoopThread, Any], H]) -> None:
        self._inner = inner
        self._make = make
        self._replica: H | None = None

    def open(self) -> H:
        """Open the replica, for a program that cannot use `with`."""
        thread = LoopThread()
        try:
            return self._make(thread, thread.call(self._inner.open()))
        except BaseException:
            thread.stop()
            raise

    def __enter__(self) -> H:
        self._replica = self.open()
        return self._replica

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert isinstance(self._replica, ReplicaBase)
        if error is None or not is_inherited(self._replica):
            self._replica.close()


@overload
def replica(
    group: str,
    *,
    me: str | None = None,
    replicas: Sequence[str] | None = None,
    directory: str | PathLike[str] | None = None,
    settings: str | PathLike[str] | None = None,
    connect: Connect | None = None,
    ack: Ack = "majority",
    explicit_ack: bool = False,
    snapshot_every: int = 100_000,
) -> OpeningReplica[ReplicaLog[bytes]]: ...
@overload
def replica(
    group: str,
    *,
    me: str | None = None,
    replicas: Sequence[str] | None = None,
    directory: str | PathLike[str] | None = None,
    settings: str | PathLike[str] | None = None,
    connect: Connect | None = None,
    ack: Ack = "majority",
    explicit_ack: bool = False,
    snapshot_every: int = 100_000,
    codec: Codec[T],
) -> OpeningReplica[ReplicaLog[T]]: ...
@overload
def replica(
    group: str,
    *,
    me: str | None = None,
    replicas: Sequence[str] | None = None,
    directory: str | PathLike[str] | None = None,
    settings: str | PathLike[str] | None = None,
    connect: Connect | None = None,
    ack: Ack = "majority",
    explicit_ack: bool = False,
    snapshot_every: int = 100_000,
    machine: M,
) -> OpeningReplica[ReplicaMachine[M]]: ...
def replica(
    group: str,
    *,
    me: str | None = None,
    replicas: Sequence[str] | None = None,
    directory: str | PathLike[str] | None = None,
    settings: str | PathLike[str] | None = None,
    connect: Connect | None = None,
    ack: Ack = "majority",
    explicit_ack: bool = False,
    snapshot_every: int = 100_000,
    codec: Codec[Any] | None = None,
    machine: Any = None,
) -> OpeningReplica[Any]:
    """A replica called `me` of the replication group `group`, with its log in `directory`, as `transis.replica` gives one.

    `replicas` names all who found the group. These three may stand in the file `settings`. `connect` opens a session with a node,
    if not with the daemon of this machine: `node.connect` of an embedded one, or `lambda: transis.connect(path)`. `ack`,
    `explicit_ack`, `snapshot_every`, `codec` and `machine` as there.
    """
    given: dict[str, Any] = {"me": me, "replicas": replicas, "directory": directory, "settings": settings}
    given["connect"] = (lambda: _unwrapped(connect())) if callable(connect) else connect
    given |= {"ack": ack, "explicit_ack": explicit_ack, "snapshot_every": snapshot_every}
    given |= {"codec": codec, "machine": machine}
    return OpeningReplica(waiting_replica.replica(group, **given), ReplicaLog if machine is None else ReplicaMachine)


def _unwrapped(connection: client.Connection[bytes] | Connection[bytes]) -> client.Connection[bytes]:
    return connection._inner if isinstance(connection, Connection) else connection
