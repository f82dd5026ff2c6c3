"""The replicated table: every group of the configuration, its members, the group view in force, and who gets a run.

Every daemon of a configuration changes its table at the same places of one order, so the tables are equal.

1. `members` are the processes that belong to the group by the order so far; the *view in force* is what members last saw. They
   differ only while views wait: in a transitional configuration and during an exchange.
2. Each member carries the group view it comes from, None until it had its first. Two members with the same one have delivered
   the same messages so far; nothing else is known about them, and nothing else is needed to merge histories (EVS94).
3. A view compares with the view in force at this daemon. A member that does not come from that view has joined. One that was in
   the last regular view and does not come from the view in force has left, even if it is a member now: one that went away and
   came back between two views is in both lists, and a client that only looks at regular views misses nobody.
4. Nothing here decides when a view is due or who hears of it: layer.py does.
5. Runs with one address have the same recipients until a view changes, so routing is one step per run (`Router`).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from hashlib import blake2b
from typing import Final

from transis.types.errors import Rejection
from transis.types.ids import NodeId, ProcessId
from transis.types.outputs import Recipient
from transis.types.views import GROUP_MEMBERS_MAX, GROUPS_MAX, Address, GroupCause, GroupId, GroupView, GroupViewId, Origin
from transis.wire.items import decode_address

# --- groups and table -------------------------------------------------------------------------------------------------

Identify = Callable[[str], GroupId]


class GroupState:
    """1. A transitional view is in force only after a regular one, which is kept because the next view says who left since then.
    2. A member that carries the id of the view in force is in that view.
    """

    __slots__ = ("id", "members", "name", "regular", "transitional")

    def __init__(self, group: GroupId, name: str) -> None:
        self.id = group
        self.name = name
        self.members: dict[ProcessId, GroupViewId | None] = {}
        self.regular: GroupView | None = None
        self.transitional: GroupView | None = None

    @property
    def in_force(self) -> GroupView | None:
        return self.transitional or self.regular

    @property
    def is_over(self) -> bool:
        """Nobody belongs to the group, and no member has yet to see that."""
        return not self.members and (self.in_force is None or not self.in_force.members)

    def install(self, view: GroupView) -> None:
        """Put a regular view in force: all members come from it from now on."""
        assert view.id.configuration.is_regular
        self.regular, self.transitional = view, None
        self.members = dict.fromkeys(view.members, view.id)

    def enter_transitional(self, view: GroupView) -> None:
        """Put a transitional view in force: its members come from it now, which tells them from those that went elsewhere."""
        assert not view.id.configuration.is_regular
        assert self.in_force is not None
        before, self.transitional = self.in_force.id, view
        for member, origin in self.members.items():
            if origin == before:
                self.members[member] = view.id

    def check(self) -> None:
        in_force = self.in_force
        assert self.transitional is None or self.regular is not None
        if in_force is not None:
            shown = set(in_force.members)
            assert all(member in shown for member, origin in self.members.items() if origin == in_force.id)


class Table:
    def __init__(self) -> None:
        self.groups: dict[GroupId, GroupState] = {}

    def in_order(self) -> list[GroupState]:
        return [group for _, group in sorted(self.groups.items())]

    def is_member(self, process: ProcessId, group: GroupId) -> bool:
        return group in self.groups and process in self.groups[group].members

    def refusal(self, group: GroupId, name: str) -> str:
        """Why a join at this place must be refused, empty if it need not; every daemon decides alike at the same place."""
        known = self.groups.get(group)
        if known is None:
            full = len(self.groups) >= GROUPS_MAX
            return f"there are {GROUPS_MAX} groups already, and no more are allowed" if full else ""
        if known.name != name:
            return f"the name has the same hash as that of the group {known.name!r}: choose another"
        if len(known.members) >= GROUP_MEMBERS_MAX:
            return f"the group has {GROUP_MEMBERS_MAX} members already, and no more are allowed"
        return ""

    def join(self, process: ProcessId, group: GroupId, name: str) -> None:
        assert not self.refusal(group, name)
        assert not self.is_member(process, group)
        self.groups.setdefault(group, GroupState(group, name)).members[process] = None

    def leave(self, process: ProcessId, group: GroupId) -> None:
        assert self.is_member(process, group)
        del self.groups[group].members[process]

    def memberships(self, process: ProcessId) -> list[GroupId]:
        return sorted(group.id for group in self.groups.values() if process in group.members)

    def drop_lost(self, nodes: Container[NodeId]) -> None:
        """Remove members on nodes that are no longer in the configuration."""
        for group in self.groups.values():
            lost = [member for member in group.members if member.node not in nodes]
            for member in lost:
                del group.members[member]

    def forget_finished(self, touched: list[GroupState]) -> None:
        for group in touched:
            if group.is_over:
                del self.groups[group.id]

    def check(self) -> None:
        for key, group in self.groups.items():
            assert key == group.id
            assert not group.is_over
            group.check()


# --- views ------------------------------------------------------------------------------------------------------------


def next_regular(group: GroupState, view_id: GroupViewId, cause: GroupCause, primary: bool | None) -> GroupView | None:
    """The regular view that is due, or None if nothing changed for its members."""
    members = tuple(sorted(group.members))
    in_force = group.in_force
    if in_force is None and not members:
        return None
    if in_force is None:
        return GroupView(group.id, group.name, view_id, members, members, (), origins(group, members), cause, primary)
    assert group.regular is not None
    joined = tuple(member for member in members if group.members[member] != in_force.id)
    left = tuple(member for member in group.regular.members if group.members.get(member) != in_force.id)
    if group.transitional is None and not joined and not left:
        return None
    return GroupView(group.id, group.name, view_id, members, joined, left, origins(group, members), cause, primary)


def next_transitional(
    group: GroupState, nodes: Container[NodeId], view_id: GroupViewId, cause: GroupCause, primary: bool | None
) -> GroupView | None:
    """The transitional view of the members that remain, or None if no member of the view in force was lost."""
    in_force = group.in_force
    if in_force is None:
        return None
    lost = tuple(member for member in in_force.members if member.node not in nodes)
    if not lost:
        return None
    remaining = tuple(member for member in in_force.members if member.node in nodes)
    return GroupView(group.id, group.name, view_id, remaining, (), lost, (Origin(in_force.id, remaining),), cause, primary)


def fingerprint(view: GroupViewId) -> int:
    """A number that stands for a view id, the same at every daemon; below 2^62, as the index of a place must be."""
    (kind, seq, rep), place = view
    text = f"{int(kind)} {seq} {rep.name} {rep.incarnation} {rep.boot} {place.seq} {place.index}"
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big") >> 2


def origins(group: GroupState, members: tuple[ProcessId, ...]) -> tuple[Origin, ...]:
    """The previous views that came together, each with the members that come from it; newcomers come from none."""
    together: dict[GroupViewId, list[ProcessId]] = {}
    for member in members:
        origin = group.members[member]
        if origin is not None:
            together.setdefault(origin, []).append(member)
    return tuple(Origin(view, tuple(coming)) for view, coming in sorted(together.items()))


def consensus(group: GroupState, sizes: Mapping[GroupViewId, int]) -> GroupViewId | None:
    """The one regular view that all members come from, if none of its members is missing: then nothing changed for them.

    `sizes` has the number of members of each previous view; members themselves know only which view they come from.
    """
    found = set(group.members.values())
    view = next(iter(sorted(view for view in found if view is not None)), None)
    if view is None or len(found) > 1 or not view.configuration.is_regular:
        return None
    return view if sizes.get(view) == len(group.members) else None


# --- routing ----------------------------------------------------------------------------------------------------------

ROUTES_MAX: Final = 4096
"""Addresses whose recipients are remembered; with more in use they are worked out again, which is only slower."""


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
        """The numbers of the members that are connected here, in order."""
        return [number for node, number in members if node == self._me and number in self.processes]
