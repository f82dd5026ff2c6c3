"""Which groups a session is in, at this point of its own stream, and which streams a frame goes to.

1. A name belongs to one Group of a session at a time. A name that is being left can be joined again when it was left.
2. What a frame's address means changes only at the first view and at the last word of a group: it is worked out once in between.
3. Outcomes are results, never exceptions, of the futures here: nobody has to look at one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

from transis.client.inlet import Inlet
from transis.client.transfer import TRANSFER_MARK
from transis.sessions.frames import ClientFrame, Join, Leave, Left
from transis.types.errors import JoinRefused, Rejection, TransisError, UsageError
from transis.types.views import GroupId, GroupView, PrivateName, group_id
from transis.wire.items import decode_address

ROUTES_MAX: Final = 4096
"""Addresses whose streams are remembered; beyond it they are worked out again."""


class Membership:
    """One name. `inside` from its first view to its last word."""

    def __init__(self, name: str, inlet: Inlet) -> None:
        loop = asyncio.get_running_loop()
        self.name = name
        self.group = group_id(name)
        self.inlet = inlet
        self.inside = False
        self.is_leaving = False
        self.joined: asyncio.Future[Callable[[], TransisError] | None] = loop.create_future()
        self.left: asyncio.Future[None] = loop.create_future()

    async def until_joined(self) -> None:
        refusal = await asyncio.shield(self.joined)
        if refusal is not None:
            raise refusal()

    async def until_left(self, timeout: float | None = None) -> None:
        await asyncio.wait({self.left}, timeout=timeout)

    def answer(self, refusal: Callable[[], TransisError] | None) -> None:
        if not self.joined.done():
            self.joined.set_result(refusal)

    def end(self) -> None:
        if not self.left.done():
            self.left.set_result(None)


class Route(NamedTuple):
    """A stream that a frame goes to, and the names through which it does."""

    inlet: Inlet
    names: tuple[str, ...]


class Routes(NamedTuple):
    streams: tuple[Route, ...]
    is_private: bool
    is_transfer: bool


class Memberships:
    def __init__(self, me: PrivateName, post: Callable[[ClientFrame], None]) -> None:
        self._me = me
        self._post = post
        self._by_name: dict[str, Membership] = {}
        self._by_group: dict[GroupId, Membership] = {}
        self._routes: dict[bytes, Routes] = {}
        self._failure: Callable[[], TransisError] | None = None

    # --- what the application asks for ------------------------------------------------------------------------------

    async def begin(self, name: str, inlet: Inlet) -> Membership:
        """Ask to join; `until_joined` tells what came of it."""
        while (known := self._by_name.get(name)) is not None:
            if not known.is_leaving:
                raise UsageError(f"this session joined {name!r} already: use that group, or another session")
            await known.until_left()
        if self._failure is not None:
            raise self._failure()
        membership = Membership(name, inlet)
        self._by_name[name] = membership
        self._by_group[membership.group] = membership
        self._post(Join(name))
        return membership

    def leave(self, membership: Membership) -> None:
        if not membership.is_leaving and self._by_name.get(membership.name) is membership:
            membership.is_leaving = True
            self._post(Leave(membership.name))

    # --- what the node says -----------------------------------------------------------------------------------------

    def joined(self, name: str) -> None:
        if name in self._by_name:
            self._by_name[name].answer(None)

    def not_joined(self, name: str, why: str) -> None:
        membership = self._by_name.get(name)
        if membership is not None:
            membership.answer(lambda: JoinRefused(f"{name!r} was not joined: {why}"))
            self._forget(membership)

    def changed(self, view: GroupView) -> Membership | None:
        """Whose view this is."""
        membership = self._by_group.get(view.group)
        if membership is not None and not membership.inside:
            membership.inside = True
            self._routes.clear()
        return membership

    def left(self, frame: Left) -> Membership | None:
        membership = self._by_name.get(frame.name)
        if membership is not None:
            self._forget(membership)
        return membership

    def _forget(self, membership: Membership) -> None:
        del self._by_name[membership.name], self._by_group[membership.group]
        membership.inside = False
        membership.end()
        self._routes.clear()

    def inlets(self) -> list[Inlet]:
        """Each once, in the order of joining."""
        return list({id(one.inlet): one.inlet for one in self._by_name.values()}.values())

    def has(self, inlet: Inlet) -> bool:
        return any(one.inlet is inlet for one in self._by_name.values())

    def lose(self, failure: Callable[[], TransisError]) -> None:
        """The session is over: whoever waits is told, and whoever comes."""
        self._failure = failure
        for membership in list(self._by_name.values()):
            membership.answer(failure)
            self._forget(membership)

    # --- where frames go --------------------------------------------------------------------------------------------

    def routes(self, address: bytes) -> Routes:
        routes = self._routes.get(address)
        if routes is None:
            if len(self._routes) >= ROUTES_MAX:
                self._routes.clear()
            routes = self._routes[address] = self._resolve(address)
        return routes

    def _resolve(self, address: bytes) -> Routes:
        decoded = decode_address(address)
        if isinstance(decoded, Rejection):
            return Routes((), False, False)
        through: dict[int, Route] = {}
        for group in decoded.groups:
            membership = self._by_group.get(group)
            if membership is not None and membership.inside:
                route = through.get(id(membership.inlet), Route(membership.inlet, ()))
                through[id(membership.inlet)] = Route(route.inlet, (*route.names, membership.name))
        streams = tuple(Route(inlet, tuple(sorted(names))) for inlet, names in through.values())
        return Routes(streams, self._me in decoded.processes, TRANSFER_MARK in decoded.groups)
