"""A node embedded in a program without an event loop: `transis.blocking.Node`, the same in calls that wait.

    with transis.blocking.Node("ann") as node:
        with node.connect() as session:
            with session.join("orders") as group: ...

The node is looked after in a thread, and each session has a thread of its own, as everywhere in the blocking API.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, TypeVar, Unpack, overload

from transis.blocking import Connection, LoopThread
from transis.client.connection import WINDOW
from transis.client.events import Codec
from transis.embed import node
from transis.net.transport import StatisticsDict
from transis.settings.schema import NodeArguments
from transis.types.ids import NodeId
from transis.types.views import View

T = TypeVar("T")


class Node:
    """The arguments are those of `transis.Node`."""

    def __init__(self, name: str, **arguments: Unpack[NodeArguments]) -> None:
        self.name = name
        self._node = node.Node(name, **arguments)
        self._thread: LoopThread | None = None

    # --- life -------------------------------------------------------------------------------------------------------

    def open(self, timeout: float | None = None) -> Node:
        thread = LoopThread()
        try:
            thread.call(self._node.open(), timeout)
        except BaseException:
            thread.stop()
            raise
        self._thread = thread
        return self

    def leave(self) -> None:
        """Leave the cluster gracefully; sessions that are still open are lost. Again is nothing."""
        thread, self._thread = self._thread, None
        if thread is not None:
            try:
                thread.call(self._node.leave())
            finally:
                thread.stop()

    def __enter__(self) -> Node:
        return self.open()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.leave()
        if self._node.failure is not None and error is None:
            raise self._node.failure

    # --- sessions ---------------------------------------------------------------------------------------------------

    @overload
    def connect(self, *, label: str = "", window: int = WINDOW, timeout: float | None = None) -> Connection[bytes]: ...
    @overload
    def connect(
        self, *, label: str = "", window: int = WINDOW, codec: Codec[T], timeout: float | None = None
    ) -> Connection[T]: ...
    def connect(
        self, *, label: str = "", window: int = WINDOW, codec: Codec[Any] | None = None, timeout: float | None = None
    ) -> Connection[Any]:
        if codec is None:
            return Connection(self._node.connect(label=label, window=window), timeout)
        return Connection(self._node.connect(label=label, window=window, codec=codec), timeout)

    # --- looking in -------------------------------------------------------------------------------------------------

    @property
    def id(self) -> NodeId:
        return self._node.id

    @property
    def view(self) -> View | None:
        return self._node.view

    def statistics(self, timeout: float | None = None) -> StatisticsDict:
        return self._running().call(self._node.statistics(), timeout)

    def ended(self, timeout: float | None = None) -> str:
        """Wait for the end; why it came. Raises what made the node fail, if that was the reason."""
        return self._running().call(self._node.ended(), timeout)

    def _running(self) -> LoopThread:
        if self._thread is None:
            raise node.not_started()
        return self._thread

    def __repr__(self) -> str:
        return repr(self._node)
