"""The announcement round after a merge: every daemon says who of *its own* processes is in which group, and nothing else.

No daemon speaks for another, so no two accounts of one process can contradict each other (traps 27: what is announced is
authoritative, and nobody's list of the departed is asked for). A round belongs to one regular configuration: an announcement
of another one is stale and counted, however late it comes (traps 26). The round is complete when all parts of all members were
delivered; as they come in one order, it is complete at one place, the same for everybody.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from transis.groups.encoding import PART_GROUPS_MAX, AnnouncedGroup, Announcement, encode_control
from transis.groups.state import Group, Identify, Table
from transis.groups.views import consensus
from transis.model.groups import GroupCause, GroupId, GroupView, GroupViewId
from transis.model.ids import NodeId, ProcessId, ViewId
from transis.model.view import Cause, View
from transis.wire.rejection import Rejection


class Dismissed(NamedTuple):
    """A process whose group lost its place to another name of the same hash when two components came together."""

    process: ProcessId
    group: GroupId
    name: str


class Merged(NamedTuple):
    """Members as announced, with no views in force yet; and how many members each of their previous views had."""

    table: Table
    sizes: dict[GroupId, dict[GroupViewId, int]]
    dismissed: list[Dismissed]


class _Claim(NamedTuple):
    """What one daemon announced of one group."""

    node: NodeId
    view: GroupViewId | None
    entry: AnnouncedGroup


class Exchange:
    """One round. `announced[node]` has the parts of that node which were delivered, by number."""

    def __init__(self, view: View) -> None:
        self.view = view.id
        self._announced: dict[NodeId, dict[int, Announcement]] = {node: {} for node in view.nodes}
        self._missing = set(view.nodes)

    @property
    def is_complete(self) -> bool:
        return not self._missing

    def feed(self, node: NodeId, part: Announcement) -> Rejection | None:
        """Take a part of what a member announces; why it was not taken otherwise."""
        if part.configuration != self.view:
            return Rejection("stale", "an announcement of another configuration")
        parts = self._announced[node]
        if part.part in parts:
            return Rejection("part", f"part {part.part} twice")
        if any(other.parts != part.parts for other in parts.values()):
            return Rejection("part", "parts that differ in how many there are")
        parts[part.part] = part
        if len(parts) == part.parts:
            self._missing.discard(node)
        return None

    def merge(self, identify: Identify) -> Merged:
        """The table of the configuration, from what all members announced."""
        assert self.is_complete
        merged = Merged(Table(), {}, [])
        for group, named in sorted(self._claims(identify).items()):
            name = min(named)
            claims = named.pop(name)
            merged.table.groups[group] = _adopted(Group(group, name), claims)
            merged.sizes[group] = {view: entry.size for _, view, entry in claims if view is not None}
            merged.dismissed.extend(_dismissed(group, named))
        return merged

    def _claims(self, identify: Identify) -> dict[GroupId, dict[str, list[_Claim]]]:
        claims: dict[GroupId, dict[str, list[_Claim]]] = {}
        for node, parts in sorted(self._announced.items()):
            for _, part in sorted(parts.items()):
                for entry in part.groups:
                    named = claims.setdefault(identify(entry.name), {})
                    named.setdefault(entry.name, []).append(_Claim(node, part.view_of(entry), entry))
        return claims


def _adopted(group: Group, claims: list[_Claim]) -> Group:
    for node, view, entry in claims:
        group.members.update((ProcessId(node, number), view) for number in entry.stayed)
        group.members.update((ProcessId(node, number), None) for number in entry.came)
    return group


def choose_in_force(merged: Merged, mine: Table, cause: Cause) -> None:
    """What members have in force: the view that they all come from, or else what was in force here.

    It is chosen when requests that waited were replayed, so that every daemon answers alike whether anything changed for a group.
    """
    for group in merged.table.in_order():
        known = mine.groups.get(group.id)
        common = consensus(group, merged.sizes.get(group.id, {}))
        if known is not None and known.name == group.name and common in (None, _id_in_force(known)):
            group.regular, group.transitional = known.regular, known.transitional
        elif common is not None:
            members = tuple(sorted(group.members))
            group.regular = GroupView(group.id, group.name, common, members, (), (), (), GroupCause("configuration", None, cause))


def _id_in_force(group: Group) -> GroupViewId | None:
    return None if group.in_force is None else group.in_force.id


def _dismissed(group: GroupId, named: dict[str, list[_Claim]]) -> Iterator[Dismissed]:
    for name, claims in sorted(named.items()):
        for node, _, entry in claims:
            for number in sorted(entry.stayed + entry.came):
                yield Dismissed(ProcessId(node, number), group, name)


def announce(table: Table, me: NodeId, view: ViewId) -> list[bytes]:
    """My own processes' memberships as encoded parts; at least one, so that everybody knows that I have said all."""
    mine = [(group, _numbers(group, me)) for group in table.in_order()]
    present = [(group, numbers) for group, numbers in mine if numbers]
    shares = [present[first : first + PART_GROUPS_MAX] for first in range(0, len(present), PART_GROUPS_MAX)] or [[]]
    return [encode_control(_part(share, number, len(shares), view)) for number, share in enumerate(shares)]


def _numbers(group: Group, me: NodeId) -> list[tuple[int, bool]]:
    """Each of my processes in the group, and whether it comes from the view in force here."""
    in_force = _id_in_force(group)
    found = [
        (member.number, origin is not None and origin == in_force)
        for member, origin in group.members.items()
        if member.node == me
    ]
    return sorted(found)


def _part(share: list[tuple[Group, list[tuple[int, bool]]]], part: int, parts: int, view: ViewId) -> Announcement:
    ranks: dict[ViewId, int] = {}
    entries = [_entry(group, numbers, ranks) for group, numbers in share]
    views = tuple((not view_id.is_regular, view_id.seq, view_id.rep) for view_id in ranks)
    return Announcement(view.seq, view.rep, part, parts, views, tuple(entries))


def _entry(group: Group, numbers: list[tuple[int, bool]], ranks: dict[ViewId, int]) -> AnnouncedGroup:
    stayed = tuple(number for number, stays in numbers if stays)
    came = tuple(number for number, stays in numbers if not stays)
    in_force = group.in_force
    if in_force is None or not stayed:
        return AnnouncedGroup(group.name, -1, 0, 0, 0, (), came)
    rank = ranks.setdefault(in_force.id.configuration, len(ranks))
    seq, index = in_force.id.place
    return AnnouncedGroup(group.name, rank, seq, index, len(in_force.members), stayed, came)
