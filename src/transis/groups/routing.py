"""Which local processes get a run: one step per run, as runs of one address have the same recipients until a view changes."""

from __future__ import annotations

from typing import Final

from transis.groups.state import Table
from transis.types.errors import Rejection
from transis.types.ids import NodeId
from transis.types.outputs import Recipient
from transis.types.views import Address, GroupId
from transis.wire.items import decode_address

ROUTES_MAX: Final = 4096
"""Addresses whose recipients are remembered; with more in use at once they are worked out again, which is slower and no more."""


class Router:
    """`processes` are the local processes that are connected; `forget` is called whenever they, or a view in force, change."""

    def __init__(self, me: NodeId) -> None:
        self._me = me
        self._routes: dict[bytes, tuple[Recipient, ...] | Rejection] = {}
        self.processes: set[int] = set()

    def forget(self) -> None:
        self._routes.clear()

    def recipients(self, address: bytes, table: Table) -> tuple[Recipient, ...] | Rejection:
        route = self._routes.get(address)
        if route is None:
            if len(self._routes) >= ROUTES_MAX:
                self._routes.clear()
            decoded = decode_address(address)
            route = decoded if isinstance(decoded, Rejection) else self._resolve(decoded, table)
            self._routes[address] = route
        return route

    def _resolve(self, address: Address, table: Table) -> tuple[Recipient, ...]:
        through: dict[int, list[GroupId]] = {}
        for name in address.processes:
            if name.boot == self._me.boot and name.number in self.processes:
                through.setdefault(name.number, [])
        for group in address.groups:
            for number in self._local_members(group, table):
                through.setdefault(number, []).append(group)
        return tuple(Recipient(number, tuple(groups)) for number, groups in sorted(through.items()))

    def _local_members(self, group: GroupId, table: Table) -> list[int]:
        known = table.groups.get(group)
        view = None if known is None else known.in_force
        return [] if view is None else self.local(view.members)

    def local(self, members: tuple[tuple[NodeId, int], ...]) -> list[int]:
        """The numbers of those that are connected here, in order."""
        return [number for node, number in members if node == self._me and number in self.processes]
