"""Changing the replicas from a program: `await log.admin.add("dan")`.

A change is an action like others: it gets its place in the order, and of two that were asked for at the same time one wins. A
newcomer is started first, without a list of replicas; then a member adds it, or puts it in the place of one whose disk is lost.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from transis.prsl.record import What
from transis.replication.context import remaining
from transis.replication.posts import a_change
from transis.types.errors import PostRefused, Rejection, ReplicaError, UsageError

if TYPE_CHECKING:
    from transis.replication.log import ReplicaBase

WAIT_S: Final = 5.0
"""How long a newcomer is waited for, unless `within` says otherwise: it tells of itself twice a second."""


class Admin:
    """Changes of the replicas. Each returns when the change has its place; PostRefused if another one came first."""

    def __init__(self, replica: ReplicaBase) -> None:
        self._replica = replica

    async def add(self, name: str) -> None:
        """A newcomer called `name`, which was started without a list of replicas, becomes one."""
        if self._number(name):
            raise UsageError(f"{name!r} is a replica already: replace it if its directory is lost")
        await self._change(What.JOIN, name, await self._waiting(name), 0)

    async def remove(self, name: str) -> None:
        """The replica called `name` is one no more, dead or alive. What nobody else has of it is gone."""
        await self._change(What.LEAVE, "", b"", self._member(name))

    async def replace(self, name: str, *, directory_lost: bool) -> None:
        """A newcomer takes the place of the replica called `name`, whose directory is lost: say so with `directory_lost=True`."""
        if not directory_lost:
            raise UsageError(f"{name!r} has its directory: start it again, and it catches up by itself")
        number = self._member(name)
        await self._change(What.REPLACE, name, await self._waiting(name), number)

    def _number(self, name: str) -> int:
        record = self._replica._host.machine.record
        entries = [entry for number in record.members if (entry := record.entry(number)) is not None]
        return next((entry.number for entry in entries if entry.name == name), 0)

    def _member(self, name: str) -> int:
        number = self._number(name)
        if not number:
            raise UsageError(f"{name!r} is no replica of {self._replica.group!r}")
        return number

    async def _waiting(self, name: str) -> bytes:
        host = self._replica._host
        try:
            async with asyncio.timeout(remaining() or WAIT_S):
                while name not in host.newcomers:
                    await a_change(host.newcomers_waiting)
        except TimeoutError:
            raise ReplicaError(
                f"nobody called {name!r} waits to become a replica of {self._replica.group!r}: start it with an empty directory "
                "and without `replicas`, then try again"
            ) from None
        return host.newcomers[name]

    async def _change(self, what: What, name: str, directory: bytes, number: int) -> None:
        if not self._replica._host.machine.record.is_founded:
            raise UsageError(f"{self._replica.group!r} is not founded yet: its founders must be together once before it changes")
        answer = self._replica._host.admin(what, name, directory, number)
        if isinstance(answer, Rejection):
            raise PostRefused(answer.why)
        await self._replica._posts.follow(answer).ordered(remaining())
