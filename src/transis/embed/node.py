"""`transis.Node`: a node of the cluster inside this program, with the same sessions as a daemon's.

    async with transis.Node("ann") as node:
        async with node.connect() as session:
            async with session.join("orders") as group: ...

1. Arguments are checked where the Node is made, and errors name them; what depends on the moment (a port in use, a state
   directory in use, a name taken) is raised on entering.
2. Entering waits for the first view. Leaving the context leaves the cluster gracefully.
3. If the node fails, its sessions end with SessionLost, and leaving the context raises the cause, unless another exception is
   already on its way up.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, TypeVar, Unpack, overload

from transis.client.connection import WINDOW, Connection
from transis.client.contexts import UnenteredAsync
from transis.client.events import Codec, Raw
from transis.client.link import Link
from transis.embed.process import ChildNode
from transis.embed.thread import ThreadedNode
from transis.net.transport import StatisticsDict
from transis.process.fork import is_inherited, stays_here
from transis.settings.load import settings_of
from transis.settings.resolve import resolve
from transis.settings.schema import NodeArguments
from transis.types.errors import UsageError
from transis.types.ids import NodeId
from transis.types.views import View

T = TypeVar("T")


class Node(UnenteredAsync):
    """A node of the cluster inside this program. It takes a `name`, and settings as `arguments` (docs/embedding.md)."""

    _remedy = (
        "write `async with transis.Node(...) as node, node.connect() as session, session.join(...) as group:`; "
        "programs without an event loop have transis.blocking.Node"
    )

    def __init__(self, name: str, **arguments: Unpack[NodeArguments]) -> None:
        settings = settings_of(name, **arguments)
        opening = resolve(settings)
        self.name = name
        self._running = ThreadedNode(opening) if settings.program.run == "thread" else ChildNode(settings)
        self._id: NodeId | None = None
        self._was_entered = False

    # --- life -------------------------------------------------------------------------------------------------------

    async def open(self) -> Node:
        """Start the node and wait for its first view, for a program that cannot use `async with`."""
        if self._was_entered:
            raise UsageError("a Node cannot be started again: make a new one")
        self._was_entered = True
        stays_here(self)
        self._id = await self._running.start()
        return self

    async def leave(self) -> None:
        """Leave the cluster gracefully; sessions that are still open are lost. Leaving again does nothing."""
        if self._id is not None:
            await self._running.leave()

    async def ended(self) -> str:
        """Wait until the node has ended; returns the reason, or raises the error that made the node fail."""
        self._require_start()
        return await self._running.ended()

    @property
    def failure(self) -> BaseException | None:
        """The error that made the node fail; None if it has not failed."""
        return self._running.failure

    async def __aenter__(self) -> Node:
        return await self.open()

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if is_inherited(self) and error is not None:
            return
        await self.leave()
        if self.failure is not None and error is None:
            raise self.failure

    # --- sessions ---------------------------------------------------------------------------------------------------

    @overload
    def connect(self, *, name: str | None = None, label: str = "", window: int = WINDOW) -> Connection[bytes]: ...
    @overload
    def connect(self, *, name: str | None = None, label: str = "", window: int = WINDOW, codec: Codec[T]) -> Connection[T]: ...
    def connect(
        self, *, name: str | None = None, label: str = "", window: int = WINDOW, codec: Codec[Any] | None = None
    ) -> Connection[Any]:
        """Like `transis.connect`, with this node. To the others, each session is a process of its own, perhaps with a `name`.

        `label` is shown in the node's status, `window` is how many bytes may wait here, `codec` turns values into bytes and back.
        """
        return Connection(self._link, label, window, codec if codec is not None else Raw(), name)

    async def _link(self) -> Link:
        self._require_start()
        return await self._running.link()

    # --- looking in -------------------------------------------------------------------------------------------------

    @property
    def id(self) -> NodeId:
        """Its name, which life of that name it is, and a random number."""
        self._require_start()
        assert self._id is not None
        return self._id

    @property
    def view(self) -> View | None:
        """The configuration of nodes in force, regular or transitional; None before the first."""
        return self._running.view

    async def statistics(self) -> StatisticsDict:
        """Figures of the node, by name."""
        self._require_start()
        return await self._running.statistics()

    def _require_start(self) -> None:
        if self._id is None:
            raise not_started()

    def __repr__(self) -> str:
        return f"<Node {self._id or self.name}>"


def not_started() -> UsageError:
    return UsageError("the node is not running: write `async with transis.Node(...) as node:`, or `await node.open()`")
