"""The announcement round after a merge: every daemon says which of *its own* processes are in which group, and nothing else.

1. No daemon speaks for another, so no two statements about one process can contradict each other. What is announced is
   authoritative, and no list of departed processes is needed (trap 27).
2. A round belongs to one regular configuration: an announcement of another one is stale and counted, however late it comes
   (trap 26).
3. The round is complete when all parts of all members have been delivered. They come in one order, so it is complete at one
   place, the same for everybody.
4. What comes meanwhile waits for the end, within limits that all daemons count alike (`HeldBack`; trap 40).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from transis.groups.messages import (
    PART_GROUPS_MAX,
    PART_NAMES_MAX,
    AnnouncedGroup,
    Announcement,
    JoinRequest,
    NameRequest,
    ProcessNames,
    Request,
    encode_control,
)
from transis.groups.table import GroupState, Identify, Names, Table, consensus
from transis.types.errors import Rejection
from transis.types.ids import NodeId, Place, ProcessId, ViewId
from transis.types.outputs import Delivered
from transis.types.views import Cause, GroupCause, GroupId, GroupView, GroupViewId, View

# --- exchange ---------------------------------------------------------------------------------------------------------


class ExchangeAbandoned(NamedTuple):
    """A process whose group lost its place to another name of the same hash when two components came together."""

    process: ProcessId
    group: GroupId
    name: str


class ExchangeDone(NamedTuple):
    """Members as announced, with no views in force yet, and how many members each of their previous views had."""

    table: Table
    sizes: dict[GroupId, dict[GroupViewId, int]]
    dismissed: list[ExchangeAbandoned]


class Exchange:
    """One round.

    Each part is processed when it comes, so that the last one leaves little to do, as the token does not move meanwhile. `_named`
    has the groups announced so far, by hash and then by name, as only one name of a hash can stay.
    """

    def __init__(self, view: View, identify: Identify) -> None:
        self.view = view.id
        self._identify = identify
        self._missing = set(view.nodes)
        self._parts: dict[NodeId, dict[int, int]] = {node: {} for node in view.nodes}
        self._named: dict[GroupId, dict[str, GroupState]] = {}
        self._sizes: dict[GroupId, dict[GroupViewId, int]] = {}
        self._names = Names()

    @property
    def is_complete(self) -> bool:
        return not self._missing

    def feed(self, node: NodeId, part: Announcement) -> Rejection | None:
        """Take a part of what a member announces; if it is not accepted, return why."""
        if part.configuration != self.view:
            return Rejection("stale", "an announcement of another configuration")
        parts = self._parts[node]
        if part.part in parts:
            return Rejection("part", f"part {part.part} twice")
        if any(total != part.parts for total in parts.values()):
            return Rejection("part", "parts that differ in how many there are")
        parts[part.part] = part.parts
        if len(parts) == part.parts:
            self._missing.discard(node)
        self._work_in(node, part)
        return None

    def hear_names(self, node: NodeId, said: ProcessNames) -> Rejection | None:
        """Take names of a member's processes, which it says before its last part; if any is not accepted, return why."""
        if said.configuration != self.view:
            return Rejection("stale", "names of another configuration")
        given = [self._names.give(ProcessId(node, number), name) for number, name in said.names]
        return None if all(given) else Rejection("name", "a process or a name twice")

    def _work_in(self, node: NodeId, part: Announcement) -> None:
        configurations = part.configurations()
        for entry in part.groups:
            group_id = self._identify(entry.name)
            named = self._named.setdefault(group_id, {})
            group = named.get(entry.name)
            if group is None:
                group = named[entry.name] = GroupState(group_id, entry.name)
            for number in entry.came:
                group.members[ProcessId(node, number)] = None
            if entry.stayed:
                view = GroupViewId(configurations[entry.view], Place(entry.seq, entry.index))
                group.members.update((ProcessId(node, number), view) for number in entry.stayed)
                self._sizes.setdefault(group_id, {})[view] = entry.size

    def merge(self) -> ExchangeDone:
        """The table of the configuration, made from what all members announced; of two names with one hash the lower stays."""
        assert self.is_complete
        merged = ExchangeDone(Table(), self._sizes, [])
        merged.table.names = self._names
        for group_id, named in sorted(self._named.items()):
            merged.table.groups[group_id] = named.pop(min(named))
            for name, group in sorted(named.items()):
                merged.dismissed.extend(ExchangeAbandoned(process, group_id, name) for process in sorted(group.members))
        return merged


def choose_in_force(merged: ExchangeDone, mine: Table, cause: Cause) -> None:
    """Set the view that each group has in force: the one that all its members come from, or else the one in force here.

    This is done after waiting requests were replayed, so that all daemons agree on whether anything changed for a group.
    """
    for group in merged.table.in_order():
        known = mine.groups.get(group.id)
        common = consensus(group, merged.sizes.get(group.id, {}))
        if known is not None and known.name == group.name and common in (None, _id_in_force(known)):
            group.regular, group.transitional = known.regular, known.transitional
        elif common is not None:
            members = tuple(sorted(group.members))
            group.regular = GroupView(group.id, group.name, common, members, (), (), (), GroupCause("configuration", None, cause))


def _id_in_force(group: GroupState) -> GroupViewId | None:
    return None if group.in_force is None else group.in_force.id


def announce(table: Table, me: NodeId, view: ViewId) -> list[bytes]:
    """My own processes' memberships as encoded parts; at least one, so that everybody knows that there are no more."""
    mine = [(group, _numbers(group, me)) for group in table.in_order()]
    present = [(group, numbers) for group, numbers in mine if numbers]
    shares = [present[first : first + PART_GROUPS_MAX] for first in range(0, len(present), PART_GROUPS_MAX)] or [[]]
    return [encode_control(_part(share, number, len(shares), view)) for number, share in enumerate(shares)]


def announce_names(names: Names, me: NodeId, view: ViewId) -> list[bytes]:
    """My own processes' names as encoded messages; none without names."""
    mine = [(process.number, name) for process, name in names.on(me)]
    shares = [tuple(mine[first : first + PART_NAMES_MAX]) for first in range(0, len(mine), PART_NAMES_MAX)]
    return [encode_control(ProcessNames(view.seq, view.rep, share)) for share in shares]


def _numbers(group: GroupState, me: NodeId) -> list[tuple[int, bool]]:
    """Each of my processes in the group, and whether it comes from the view in force here."""
    in_force = _id_in_force(group)
    found = [
        (member.number, origin is not None and origin == in_force)
        for member, origin in group.members.items()
        if member.node == me
    ]
    return sorted(found)


def _part(share: list[tuple[GroupState, list[tuple[int, bool]]]], part: int, parts: int, view: ViewId) -> Announcement:
    ranks: dict[ViewId, int] = {}
    entries = [_entry(group, numbers, ranks) for group, numbers in share]
    views = tuple((not view_id.is_regular, view_id.seq, view_id.rep) for view_id in ranks)
    return Announcement(view.seq, view.rep, part, parts, views, tuple(entries))


def _entry(group: GroupState, numbers: list[tuple[int, bool]], ranks: dict[ViewId, int]) -> AnnouncedGroup:
    stayed = tuple(number for number, stays in numbers if stays)
    came = tuple(number for number, stays in numbers if not stays)
    in_force = group.in_force
    if in_force is None or not stayed:
        return AnnouncedGroup(group.name, -1, 0, 0, 0, (), came)
    rank = ranks.setdefault(in_force.id.configuration, len(ranks))
    seq, index = in_force.id.place
    return AnnouncedGroup(group.name, rank, seq, index, len(in_force.members), stayed, came)


# --- waiting ----------------------------------------------------------------------------------------------------------

WAITING_BYTES_MAX: Final = 1 << 20
"""Bytes of basic messages that may wait for the end of an exchange in any case; a large window lets more wait (node/node.py)."""

WAITING_JOINS_MAX: Final = 65_536
"""Joins and names that may wait for the end of an exchange. More are refused, by all daemons alike: all count the same ones."""


class WaitingRequest(NamedTuple):
    process: ProcessId
    request: Request


class HeldBack:
    """What waits for the end of an exchange: requests, in order, and basic messages, which may precede their sender's views."""

    def __init__(self, most_bytes: int = WAITING_BYTES_MAX) -> None:
        self._most_bytes = most_bytes
        self._requests: list[WaitingRequest] = []
        self._joins = 0
        self._basics: list[Delivered] = []
        self._bytes = 0

    def __bool__(self) -> bool:
        return bool(self._requests or self._basics)

    def keep(self, process: ProcessId, request: Request) -> bool:
        """Keep a request; False for a join or a name that is one too many."""
        if isinstance(request, JoinRequest | NameRequest):
            if self._joins >= WAITING_JOINS_MAX:
                return False
            self._joins += 1
        self._requests.append(WaitingRequest(process, request))
        return True

    def keep_basic(self, run: Delivered) -> bool:
        """Keep copies of basic messages, so that the burst they came in can be freed; False if they are beyond the limit."""
        size = sum(map(len, run.payloads))
        if self._bytes + size > self._most_bytes:
            return False
        self._bytes += size
        self._basics.append(run._replace(payloads=[bytes(payload) for payload in run.payloads]))
        return True

    def take_requests(self) -> list[WaitingRequest]:
        requests, self._requests, self._joins = self._requests, [], 0
        return requests

    def take_basics(self) -> list[Delivered]:
        basics, self._basics, self._bytes = self._basics, [], 0
        return basics
