"""What a session may ask its node: figures, lists of groups and processes, where somebody is, and what changes.

1. Everything is what this session's node knows: the configuration that it is in. What cannot be reached is not there.
2. Lists are read in pages, each of its moment. What was there all the time is in the list.
3. A Watch begins with a list, and takes changes from the node when the application wants one, so it keeps next to nothing. One
   that falls behind is told so and gets a fresh list, as does everybody when components have come together.
4. The groups of state transfer are no application's, and are left out.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from transis.client.transfer import COMPANION_SUFFIX
from transis.sessions.frames import (
    Answer,
    Ask,
    Changes,
    ClientFrame,
    GroupsPage,
    Inquire,
    MembersPage,
    NamesPage,
    Whereabouts,
    decode_value,
)
from transis.types.errors import TransisError, UnknownName, UsageError
from transis.types.ids import ProcessId
from transis.types.views import GroupChange, NameChange, require_group_name

__all__ = ["Directory", "GroupChange", "Listing", "Members", "NameChange", "Watch", "Whereabouts"]

# --- changes ----------------------------------------------------------------------------------------------------------


class Listing(NamedTuple):
    """All groups, with how many members each has, and all names; `why` says why it had to be made again, if it had to."""

    groups: dict[str, int]
    names: dict[str, ProcessId]
    why: str = ""


class Members(NamedTuple):
    """The members of a group, each with its name ("" without one); `why` says why the list had to be made again, if it had to."""

    group: str
    members: dict[ProcessId, str]
    why: str = ""


class Inquiry(Protocol):
    """A question to the node; it is withdrawn if the caller is cancelled."""

    def __call__(self, question: str, *, name: str = "", process: ProcessId | None = None, at: int = 0) -> Awaitable[bytes]: ...


_GROUPS: Final = msgspec.msgpack.Decoder(GroupsPage)
_MEMBERS: Final = msgspec.msgpack.Decoder(MembersPage)
_NAMES: Final = msgspec.msgpack.Decoder(NamesPage)
_WHERE: Final = msgspec.msgpack.Decoder(Whereabouts)
_CHANGES: Final = msgspec.msgpack.Decoder(Changes)


def is_for_applications(group: str) -> bool:
    return not group.endswith(COMPANION_SUFFIX)


# --- directory --------------------------------------------------------------------------------------------------------


class Directory:
    def __init__(self, inquire: Inquiry) -> None:
        self._inquire = inquire

    async def groups(self) -> tuple[dict[str, int], int]:
        """By name, and the place in the log of changes where the list began; likewise below."""
        found: dict[str, int] = {}
        last, begun = "", -1
        while True:
            page = _GROUPS.decode(await self._inquire("groups", name=last))
            begun = page.at if begun < 0 else begun
            found.update((name, size) for name, size in page.groups if size and is_for_applications(name))
            if not page.more:
                return found, begun
            last = page.groups[-1][0]

    async def names(self) -> dict[str, ProcessId]:
        found: dict[str, ProcessId] = {}
        more = True
        while more:
            page = _NAMES.decode(await self._inquire("names", name=next(reversed(found), "")))
            found.update(page.names)
            more = page.more
        return found

    async def members(self, group: str) -> tuple[dict[ProcessId, str], int]:
        found: dict[ProcessId, str] = {}
        begun, more = -1, True
        while more:
            last = next(reversed(found), None)
            page = _MEMBERS.decode(await self._inquire("members", name=require_group_name(group), process=last))
            begun = page.at if begun < 0 else begun
            found.update(page.members)
            more = page.more
        return found, begun

    async def where(self, who: str | ProcessId) -> Whereabouts:
        name, process = (who, None) if isinstance(who, str) else ("", who)
        try:
            return _WHERE.decode(await self._inquire("where", name=name, process=process))
        except UsageError as error:
            raise UnknownName(str(error)) from None

    async def changes(self, group: str, at: int) -> Changes:
        return _CHANGES.decode(await self._inquire("changes", name=group, at=at))


# --- watch ------------------------------------------------------------------------------------------------------------


class Watch:
    """`async for change in session.watch()`. Calling `anext` again after it was cancelled misses nothing."""

    def __init__(self, directory: Directory, group: str, is_over: Callable[[], bool]) -> None:
        self._directory = directory
        self._group = group
        self._is_over = is_over
        self._came: deque[Listing | Members | GroupChange | NameChange] = deque()
        self._members: set[ProcessId] = set()
        self._at = -1
        self._why = ""

    def __aiter__(self) -> Watch:
        return self

    async def __anext__(self) -> Listing | Members | GroupChange | NameChange:
        try:
            while not self._came:
                await (self._list() if self._at < 0 else self._go_on())
        except UsageError:
            if not self._is_over():
                raise
            raise StopAsyncIteration from None
        return self._came.popleft()

    async def _list(self) -> None:
        if self._group:
            members, at = await self._directory.members(self._group)
            self._members = set(members)
            self._came.append(Members(self._group, members, self._why))
        else:
            groups, at = await self._directory.groups()
            self._came.append(Listing(groups, await self._directory.names(), self._why))
        self._at = at

    async def _go_on(self) -> None:
        changes = await self._directory.changes(self._group, self._at)
        self._at, self._why = (-1 if changes.why else changes.at), changes.why
        self._came.extend(changes.names)
        self._came.extend(filter(None, map(self._news, changes.groups)))

    def _news(self, change: GroupChange) -> GroupChange | None:
        """Of a group, what the list does not have already: it may have been read in pages."""
        if not self._group:
            return change if is_for_applications(change.group) else None
        left = tuple(one for one in change.left if one in self._members)
        self._members.difference_update(left)
        joined = tuple(one for one in change.joined if one not in self._members)
        self._members.update(joined)
        return change._replace(joined=joined, left=left) if joined or left else None


# --- questions --------------------------------------------------------------------------------------------------------


class Questions:
    """Questions to the node. Each has a number; answers may come in any order."""

    def __init__(self, post: Callable[[ClientFrame], None]) -> None:
        self._post = post
        self._asked: dict[int, asyncio.Future[Answer]] = {}
        self._last = 0

    async def ask(self, question: str) -> dict[str, Any]:
        value: dict[str, Any] = decode_value(await self.put(lambda number: Ask(number, question)))
        return value

    async def put(self, question: Callable[[int], Ask | Inquire]) -> bytes:
        """The node's answer. Raises UsageError if the node has none, and the failure given to `lose` if the session ends.

        The node is told if nobody waits any more, for some questions wait there for their answer.
        """
        self._last += 1
        number = self._last
        future = self._asked[number] = asyncio.get_running_loop().create_future()
        self._post(question(number))
        try:
            answer = await future
        except asyncio.CancelledError:
            self._post(Inquire(number, "end"))
            raise
        finally:
            del self._asked[number]
        if answer.why:
            raise UsageError(answer.why)
        value: bytes = answer.value
        return value

    def answered(self, answer: Answer) -> None:
        future = self._asked.get(answer.number)
        if future is not None and not future.done():
            future.set_result(answer)

    def lose(self, failure: Callable[[], TransisError]) -> None:
        for future in self._asked.values():
            if not future.done():
                future.set_exception(failure())
