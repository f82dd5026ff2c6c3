"""The replicated table: every group of the configuration, its members, their names, the group view in force, and who gets a run.

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

from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from hashlib import blake2b
from itertools import islice
from typing import Final

from transis.groups.messages import DisconnectRequest, JoinRequest, LeaveRequest, NameRequest
from transis.types.errors import Rejection, UsageError
from transis.types.ids import NodeId, ProcessId
from transis.types.outputs import Recipient
from transis.types.views import (
    GROUP_MEMBERS_MAX,
    GROUPS_MAX,
    LOCAL_MEMBERSHIPS_MAX,
    NAMED_PROCESSES_MAX,
    PROCESSES_MAX,
    Address,
    GroupCause,
    GroupChange,
    GroupId,
    GroupView,
    GroupViewId,
    NameChange,
    Origin,
    full_name,
    require_group_name,
    require_process_name,
)
from transis.wire.items import decode_address

# --- names ------------------------------------------------------------------------------------------------------------


class Names:
    """`billing@n1` is the process that its node n1 calls billing.

    1. A name is a request in the order, made before the process asks for anything else, so that a view shows the name of every
       member that has one. It ends with its process.
    2. No daemon speaks for another: it names its own processes only, and announces these names after a merge, before its groups.
    3. On one node a name belongs to one process and a process has one name. A node that says otherwise lies: what came first in
       the order stays, at all daemons alike.
    """

    def __init__(self) -> None:
        self._of: dict[ProcessId, str] = {}
        self._by_node: dict[NodeId, dict[str, int]] = {}

    # --- changes ----------------------------------------------------------------------------------------------------

    def give(self, process: ProcessId, name: str) -> bool:
        """False if the process has a name, the name has a process, or the node has too many."""
        taken = self._by_node.get(process.node, {})
        if process in self._of or name in taken or len(taken) >= NAMED_PROCESSES_MAX:
            return False
        self._of[process] = name
        self._by_node.setdefault(process.node, taken)[name] = process.number
        return True

    def take_back(self, process: ProcessId) -> str:
        """The process is gone; the name it had, if any."""
        name = self._of.pop(process, "")
        if name:
            names = self._by_node[process.node]
            del names[name]
            if not names:
                del self._by_node[process.node]
        return name

    def drop_lost(self, nodes: Container[NodeId]) -> list[tuple[ProcessId, str]]:
        """Forget the names on nodes that are no longer in the configuration, and return them."""
        lost = [process for node in sorted(self._by_node) if node not in nodes for process, _ in self.on(node)]
        return [(process, self.take_back(process)) for process in lost]

    # --- looking in -------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._of)

    def of(self, process: ProcessId) -> str:
        return self._of.get(process, "")

    def of_all(self, members: Iterable[ProcessId]) -> tuple[str, ...]:
        """As a view has them: nothing if none has a name."""
        names = tuple(self._of.get(member, "") for member in members) if self._of else ()
        return names if any(names) else ()

    def on(self, node: NodeId) -> list[tuple[ProcessId, str]]:
        """The named processes of a node, by name."""
        return [(ProcessId(node, number), name) for name, number in sorted(self._by_node.get(node, {}).items())]

    def find(self, full_name: str) -> ProcessId | None:
        name, _, host = full_name.partition("@")
        for node, names in self._by_node.items():
            if node.name == host and name in names:
                return ProcessId(node, names[name])
        return None

    def after(self, full_name: str, most: int) -> list[tuple[str, ProcessId]]:
        """The first names behind this one, by node and then by name."""
        name, _, host = full_name.partition("@")
        return list(islice(self._behind(host, name), most))

    def _behind(self, host: str, name: str) -> Iterator[tuple[str, ProcessId]]:
        for node in sorted(self._by_node):
            if node.name >= host:
                for process, one in self.on(node):
                    if node.name > host or one > name:
                        yield f"{one}@{node.name}", process

    def check(self) -> None:
        assert {
            ProcessId(node, number): name for node, names in self._by_node.items() for name, number in names.items()
        } == self._of


# --- groups and table -------------------------------------------------------------------------------------------------

Identify = Callable[[str], GroupId]

GROUP_ID_END: Final = GroupId(1 << 64)
"""Above all ids of groups."""


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
        self.names = Names()
        self._by_name: list[tuple[str, GroupId]] | None = None

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
        if group not in self.groups:
            self.groups[group] = GroupState(group, name)
            if self._by_name is not None:
                insort(self._by_name, (name, group))
        self.groups[group].members[process] = None

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
                if self._by_name is not None:
                    del self._by_name[bisect_left(self._by_name, (group.name, group.id))]

    def after(self, name: str, most: int) -> list[GroupState]:
        """The first groups behind this name. They are sorted when somebody asks, and stay so."""
        if self._by_name is None:
            self._by_name = sorted((group.name, group.id) for group in self.groups.values())
        first = bisect_right(self._by_name, (name, GROUP_ID_END))
        return [self.groups[group] for _, group in self._by_name[first : first + most]]

    def check(self) -> None:
        for key, group in self.groups.items():
            assert key == group.id
            assert not group.is_over
            group.check()
        assert self._by_name is None or len(self._by_name) == len(self.groups)
        self.names.check()


# --- views ------------------------------------------------------------------------------------------------------------


def next_regular(
    group: GroupState, names: Names, view_id: GroupViewId, cause: GroupCause, primary: bool | None, held: bool = False
) -> GroupView | None:
    """The regular view that is due, or None if nothing changed for its members."""
    members = tuple(sorted(group.members))
    in_force = group.in_force
    if in_force is None and not members:
        return None
    joined, left = members, members[:0]
    if in_force is not None:
        assert group.regular is not None
        joined = tuple(member for member in members if group.members[member] != in_force.id)
        left = tuple(member for member in group.regular.members if group.members.get(member) != in_force.id)
        if group.transitional is None and not joined and not left:
            return None
    known = names.of_all(members)
    come = origins(group, members)
    return GroupView(group.id, group.name, view_id, members, joined, left, come, cause, primary, known, held)


def next_transitional(
    group: GroupState,
    nodes: Container[NodeId],
    view_id: GroupViewId,
    cause: GroupCause,
    primary: bool | None,
    held: bool = False,
) -> GroupView | None:
    """The transitional view of the members that remain, or None if no member of the view in force was lost."""
    in_force = group.in_force
    if in_force is None:
        return None
    lost = tuple(member for member in in_force.members if member.node not in nodes)
    if not lost:
        return None
    remaining = tuple(member for member in in_force.members if member.node in nodes)
    come = (Origin(in_force.id, remaining),)
    known = _names_of(remaining, in_force)
    return GroupView(group.id, group.name, view_id, remaining, (), lost, come, cause, primary, known, held)


def _names_of(remaining: tuple[ProcessId, ...], before: GroupView) -> tuple[str, ...]:
    """As they were shown: the view before is the same for all that go on together, and the table may not be."""
    known = dict(zip(before.members, before.names, strict=True)) if before.names else {}
    names = tuple(known.get(member, "") for member in remaining)
    return names if any(names) else ()


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


# --- changes ----------------------------------------------------------------------------------------------------------

CHANGES_MAX: Final = 1024
"""Changes that are kept."""

CHANGED_MEMBERS_MAX: Final = 8192
"""Members who joined or left in the changes that are kept."""

MERGED: Final = "components came together"
MISSED: Final = "more changed than is kept for watchers"


class ChangeLog:
    """What changed lately, for those who watch (sessions/directory.py): bounded, and it never waits for anybody.

    A watcher asks for what came behind the place it knows. If the log no longer has that, the watcher is told that it missed
    something, and lists everything anew. So does everybody when components came together, which may bring any number of groups.
    `at` is the place behind the last change; places only grow. `told_at` is the one that watchers were last told of."""

    def __init__(self) -> None:
        self.at = 0
        self.is_watched = False
        self._kept: deque[GroupChange | NameChange] = deque()
        self._members = 0
        self._merged_at = 0
        self.told_at = 0

    def installed(self, view: GroupView) -> None:
        self._add(GroupChange(view.name, len(view.members), view.joined, view.left))

    def named(self, process: ProcessId, name: str) -> None:
        self._add(NameChange(full_name(name, process), process))

    def nameless(self, process: ProcessId, name: str) -> None:
        self._add(NameChange(full_name(name, process), None))

    def merged(self) -> None:
        """Anything may have changed."""
        self._kept.clear()
        self._members = 0
        self.at += 1
        self._merged_at = self.at

    def _add(self, change: GroupChange | NameChange) -> None:
        self.at += 1
        self._kept.append(change)
        self._members += change.changed
        while len(self._kept) > CHANGES_MAX or self._members > CHANGED_MEMBERS_MAX:
            self._members -= self._kept.popleft().changed

    def since(self, place: int) -> list[GroupChange | NameChange] | str:
        """The changes behind this place, or why everything has to be listed anew."""
        if place < self._merged_at:
            return MERGED
        behind = self.at - place
        if not 0 <= behind <= len(self._kept):
            return MISSED
        return list(self._kept)[len(self._kept) - behind :]


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


# --- local processes --------------------------------------------------------------------------------------------------


class LocalProcesses:
    """The processes of this node, and the groups that each asked to be in, ahead of the order.

    Which of them are connected is kept in `router`.
    """

    def __init__(self, router: Router, identify: Identify) -> None:
        self._router = router
        self._identify = identify
        self._highest_process = -1
        self._wanted: dict[int, set[GroupId]] = {}
        self._names: dict[str, int] = {}

    def is_connected(self, process: int) -> bool:
        return process in self._router.processes

    def connect(self, process: int) -> None:
        """Numbers only grow: a new process is never taken for one that is gone (trap 27)."""
        if not self._highest_process < process < PROCESSES_MAX:
            raise UsageError(f"process {process}: numbers grow, the last was {self._highest_process}, the end is {PROCESSES_MAX}")
        self._highest_process = process
        self._router.processes.add(process)
        self._router.forget()

    def require_free_name(self, name: str) -> None:
        taken = self._names.get(require_process_name(name))
        if taken is not None:
            raise UsageError(f"process {taken} of this node is called {name!r} already: use another name, or end it first")
        if len(self._names) >= NAMED_PROCESSES_MAX:
            raise UsageError(f"{NAMED_PROCESSES_MAX} processes of this node have names, and no more are allowed: connect without")

    def name(self, process: int, name: str) -> NameRequest:
        self.require_free_name(name)
        wanted = self._wanted_by(process)
        if wanted or process in self._names.values():
            raise UsageError(f"process {process} was named or asked to join before: it gets a name first of all, and one only")
        self._names[name] = process
        return NameRequest(process, name)

    def join(self, process: int, name: str) -> tuple[GroupId, JoinRequest]:
        group = self._identify(require_group_name(name))
        wanted = self._wanted_by(process)
        if group in wanted:
            raise UsageError(f"process {process} joined {name!r} already")
        if sum(map(len, self._wanted.values())) >= LOCAL_MEMBERSHIPS_MAX:
            raise UsageError(f"the processes of this node have {LOCAL_MEMBERSHIPS_MAX} memberships, and no more are allowed")
        wanted.add(group)
        return group, JoinRequest(process, name)

    def leave(self, process: int, name: str) -> LeaveRequest:
        group = self._identify(require_group_name(name))
        wanted = self._wanted_by(process)
        if group not in wanted:
            raise UsageError(f"process {process} is not in {name!r}")
        wanted.discard(group)
        return LeaveRequest(process, name)

    def disconnect(self, process: int) -> DisconnectRequest:
        self._wanted_by(process)
        self._wanted.pop(process)
        self._names = {name: owner for name, owner in self._names.items() if owner != process}
        self._router.processes.discard(process)
        self._router.forget()
        return DisconnectRequest(process)

    def no_longer_in(self, process: int, group: GroupId) -> None:
        """The join was refused, or the group gave way to another of the same hash: the process may ask again."""
        self._wanted.get(process, set()).discard(group)

    def _wanted_by(self, process: int) -> set[GroupId]:
        if not self.is_connected(process):
            raise UsageError(f"process {process} is not connected")
        return self._wanted.setdefault(process, set())
