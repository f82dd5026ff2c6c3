"""connect(): a context that opens a session with a node."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Final, Generic, TypeVar, overload

from transis.client.contexts import UnenteredAsync
from transis.client.events import Codec, Raw
from transis.client.link import Link, link_to_host, link_to_unix
from transis.client.session import Session
from transis.process.fork import is_inherited
from transis.types.errors import UsageError
from transis.types.views import require_process_name

T = TypeVar("T")

WINDOW: Final = 4 << 20
"""Bytes of the stream that the node may send before the application has taken them."""
WINDOW_MIN: Final = 4 << 10
WINDOW_MAX: Final = 1 << 30
LABEL_MAX: Final = 128


class Connection(UnenteredAsync, Generic[T]):
    """A context that yields the Session; or call `await connection.open()` and, later, `await session.close()`."""

    _remedy = "this is no session before it is entered: write `async with transis.connect() as session:`"

    def __init__(
        self, make_link: Callable[[], Awaitable[Link]], label: str, window: int, codec: Codec[T], name: str | None = None
    ) -> None:
        if not WINDOW_MIN <= window <= WINDOW_MAX:
            raise UsageError(f"window = {window}: must be from {WINDOW_MIN} to {WINDOW_MAX} bytes")
        if len(label) > LABEL_MAX:
            raise UsageError(f"the label has {len(label)} characters: at most {LABEL_MAX} are allowed")
        if isinstance(codec, type):
            raise UsageError(f"codec = {codec.__name__}: this is a class, write {codec.__name__}()")
        if name is not None:
            require_process_name(name)
        self._name = name or ""
        self._make_link = make_link
        self._label = label
        self._window = window
        self._codec = codec
        self._session: Session[T] | None = None

    async def open(self) -> Session[T]:
        """Open the session, for a program that cannot use `async with`."""
        link = await self._make_link()
        session = Session(link, self._name, self._label, self._window, self._codec)
        try:
            await session._open()
        except BaseException:
            await link.close()
            raise
        return session

    def __repr__(self) -> str:
        return f"<Connection, {'entered' if self._session is not None else 'not entered'}>"

    async def __aenter__(self) -> Session[T]:
        if self._session is not None:
            raise UsageError("this connection was already entered: call connect again for another session")
        self._session = await self.open()
        return self._session

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._session is not None
        if error is None or not is_inherited(self._session):
            await self._session.close()


@overload
def connect(
    path: str | None = None,
    *,
    host: str | None = None,
    key: bytes | None = None,
    name: str | None = None,
    label: str = "",
    window: int = WINDOW,
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
) -> Connection[Any]:
    """Connect to the node on this machine (at `path`, or at the usual place), or to the one at `host` over sealed TCP.

    With `name="billing"` this process is `billing@n1` to others, where n1 is the node: they find it and see it in views by that
    name. ConnectError if another process of the node has it. `host` is `name:port`, and needs the cluster's `key`. `label` is
    shown in the node's status. `window` is how many bytes may wait here for this program. A `codec` turns values into bytes and
    back; without one, data are bytes.
    """
    if path is not None and host is not None:
        raise UsageError("give a path or a host, not both")

    async def make_link() -> Link:
        return await link_to_unix(path) if host is None else await link_to_host(host, key)

    return Connection(make_link, label, window, codec if codec is not None else Raw(), name)
