"""The replicated table: every group of the configuration, its members, and the group view in force.

Every daemon of a configuration changes its table at the same places of one order, so the tables are equal. Rules of this file:
1. `members` is who belongs to the group by the order so far; the *view in force* is what members were last told. They differ only
   while views wait: in a transitional configuration and during an exchange.
2. Each member carries the group view it comes from, None until it had its first. Two members with the same one delivered the same
   messages so far; nothing else is known about them, and nothing else is needed to merge histories (EVS, Moser et al. 1994).
3. Nothing here decides when a view is due or who hears of it; that is for views.py and layer.py.
"""

from __future__ import annotations

from collections.abc import Callable, Container

from transis.types.ids import NodeId, ProcessId
from transis.types.views import GROUP_MEMBERS_MAX, GROUPS_MAX, GroupId, GroupView, GroupViewId

Identify = Callable[[str], GroupId]


class Group:
    """1. A transitional view is in force only over a regular one, which is kept because the next view tells who left since then.
    2. Who carries the id of the view in force is one of its members.
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
        """Nobody belongs to it, and nobody is still to be told so."""
        return not self.members and (self.in_force is None or not self.in_force.members)

    def install(self, view: GroupView) -> None:
        """A regular view: all who belong to the group come from it from now on."""
        assert view.id.configuration.is_regular
        self.regular, self.transitional = view, None
        self.members = dict.fromkeys(view.members, view.id)

    def enter_transitional(self, view: GroupView) -> None:
        """Those who come along have the transitional view behind them, so that it tells them from those who went elsewhere."""
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
            told = set(in_force.members)
            assert all(member in told for member, origin in self.members.items() if origin == in_force.id)


class Table:
    def __init__(self) -> None:
        self.groups: dict[GroupId, Group] = {}

    def in_order(self) -> list[Group]:
        return [group for _, group in sorted(self.groups.items())]

    def is_member(self, process: ProcessId, group: GroupId) -> bool:
        return group in self.groups and process in self.groups[group].members

    def refusal(self, group: GroupId, name: str) -> str:
        """Why a join at this place must be refused, or nothing; every daemon answers the same at the same place."""
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
        self.groups.setdefault(group, Group(group, name)).members[process] = None

    def leave(self, process: ProcessId, group: GroupId) -> None:
        assert self.is_member(process, group)
        del self.groups[group].members[process]

    def memberships(self, process: ProcessId) -> list[GroupId]:
        return sorted(group.id for group in self.groups.values() if process in group.members)

    def drop_lost(self, nodes: Container[NodeId]) -> None:
        """Members on nodes that are not in the configuration any more are members of nothing here."""
        for group in self.groups.values():
            lost = [member for member in group.members if member.node not in nodes]
            for member in lost:
                del group.members[member]

    def forget_finished(self, touched: list[Group]) -> None:
        for group in touched:
            if group.is_over:
                del self.groups[group.id]

    def check(self) -> None:
        for key, group in self.groups.items():
            assert key == group.id
            assert not group.is_over
            group.check()
