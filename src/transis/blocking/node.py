"""A node inside a program without an event loop."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

from transis.blocking.session import Connection
from transis.blocking.thread import LoopThread
from transis.client.connection import WINDOW
from transis.client.contexts import UnenteredBlocking
from transis.client.events import Codec, Configuration
from transis.process.fork import is_inherited, stays_here
from transis.types.errors import UsageError
from transis.types.ids import NodeId

if TYPE_CHECKING:
    from transis.settings.schema import NodeArguments

T = TypeVar("T")


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
