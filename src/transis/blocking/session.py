"""Sessions for threads: what `connect` yields, sending from any thread, and questions to the node."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final, Generic, TypeVar, Unpack, overload

from transis import client
from transis.blocking.group import Joining, Receipt, Stream, Transfer
from transis.blocking.thread import LoopThread
from transis.client.attributes import Attached, AttachedToMany
from transis.client.connection import WINDOW
from transis.client.contexts import UnenteredBlocking
from transis.client.directory import GroupChange, Listing, Members, NameChange, Whereabouts
from transis.client.directory import Watch as _Watch
from transis.client.events import Codec
from transis.client.group import Destination
from transis.process.fork import is_inherited, stays_here
from transis.types.config import GroupWithoutQuorum
from transis.types.errors import UsageError
from transis.types.ids import ProcessId, Service

# --- session ----------------------------------------------------------------------------------------------------------

T = TypeVar("T")

AHEAD: Final = 64
"""Frames that one call fetches at most from the session's thread."""


class Session(Generic[T]):
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
        self,
        *names: str,
        state: Transfer | None = None,
        configurations: bool = False,
        without_quorum: GroupWithoutQuorum | None = None,
        timeout: float | None = None,
    ) -> Joining[T]:
        """`with session.join("orders") as group`. Several `names` make one stream over all of them.

        With `state`, this member gets the group's state from another one first; `timeout` is for the join with the state. With
        `configurations=True`, `everything()` also yields the node's configurations. `without_quorum` says what this session's
        sends to the group do in a view that is not primary, where the node goes on: "wait" or "raise".
        """
        inner = self._session.join(
            *names,
            state=None if state is None else state._for_loop(),
            configurations=configurations,
            without_quorum=without_quorum,
        )
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

    # --- who and where ----------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The name of this process on its node; empty without one."""
        return self._session.name

    def groups(self, timeout: float | None = None) -> dict[str, int]:
        """The groups of this node's configuration, by name, and how many members each has."""
        return self._thread.call(self._session.groups(), timeout)

    def members(self, group: str, timeout: float | None = None) -> dict[ProcessId, str]:
        """The members of a `group`, which need not be joined, each with its name ("" without one)."""
        return self._thread.call(self._session.members(group), timeout)

    def names(self, timeout: float | None = None) -> dict[str, ProcessId]:
        """All processes that have a name."""
        return self._thread.call(self._session.names(), timeout)

    def where(self, who: str | ProcessId, timeout: float | None = None) -> Whereabouts:
        """Where `who`, a name or id, is: its node's life and address. UnknownName if it cannot be reached."""
        return self._thread.call(self._session.where(who), timeout)

    def resolve(self, name: str, timeout: float | None = None) -> ProcessId:
        """The process of that `name` now, as in `billing@n1`. UnknownName if none can be reached."""
        return self._thread.call(self._session.resolve(name), timeout)

    def watch(self, group: str = "") -> Watch:
        """`for change in session.watch()`: a list, then what changes, of one `group`, or of all groups and names."""
        return Watch(self._thread, self._session.watch(group))

    def statistics(self, timeout: float | None = None) -> dict[str, Any]:
        """Figures of the node, of this session at the node, and of this side under `client`."""
        return self._thread.call(self._session.statistics(), timeout)

    def about(self, timeout: float | None = None) -> dict[str, str]:
        """What the node is: its cluster, engine, order, mode, guarantees and build."""
        return self._thread.call(self._session.about(), timeout)

    def __repr__(self) -> str:
        return repr(self._session)


class Watch:
    """Like `transis.Watch`; `next` with a timeout misses nothing when it gives up."""

    def __init__(self, thread: LoopThread, inner: _Watch) -> None:
        self._thread = thread
        self._watch = inner

    def __iter__(self) -> Watch:
        return self

    def __next__(self) -> Listing | Members | GroupChange | NameChange:
        return self.next()

    def next(self, timeout: float | None = None) -> Listing | Members | GroupChange | NameChange:
        change = self._thread.call(self._next(), timeout)
        if change is None:
            raise StopIteration
        return change

    async def _next(self) -> Listing | Members | GroupChange | NameChange | None:
        return await anext(self._watch, None)


# --- connecting -------------------------------------------------------------------------------------------------------


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
