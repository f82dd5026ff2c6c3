"""Questions for threads and scripts: what a blocking session may ask its node, about groups and processes too (directory.py)."""

from __future__ import annotations

from typing import Any

from transis.client.directory import GroupChange, Listing, Members, NameChange, Whereabouts
from transis.client.directory import Watch as _Watch
from transis.client.loop_thread import LoopThread
from transis.client.session import Session
from transis.types.ids import ProcessId


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


class WhoIsWhere:
    """Of a blocking session: each call waits for the answer, or for `timeout` seconds."""

    _thread: LoopThread
    _session: Session[Any]

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
