"""When a group view is due, and what is in it. Pure functions of a group and of what happened to it.

A view compares with the view in force at this daemon. Who does not come from that view has joined, and who was in the last
regular view and does not come from the view in force has left, whoever it is now: so a member that went away and came back
between two views is in both, and a client that waits for the regular view misses nobody.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from hashlib import blake2b

from transis.groups.state import Group
from transis.types.ids import NodeId, ProcessId
from transis.types.views import GroupCause, GroupView, GroupViewId, Origin


def next_regular(group: Group, view_id: GroupViewId, cause: GroupCause, primary: bool | None) -> GroupView | None:
    """The regular view that is due, or None if members have nothing to be told."""
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
    group: Group, nodes: Container[NodeId], view_id: GroupViewId, cause: GroupCause, primary: bool | None
) -> GroupView | None:
    """The transitional view of those who come along, or None if nobody of the view in force was lost."""
    in_force = group.in_force
    if in_force is None:
        return None
    lost = tuple(member for member in in_force.members if member.node not in nodes)
    if not lost:
        return None
    remaining = tuple(member for member in in_force.members if member.node in nodes)
    return GroupView(group.id, group.name, view_id, remaining, (), lost, (Origin(in_force.id, remaining),), cause, primary)


def fingerprint(view: GroupViewId) -> int:
    """A number that stands for a view id, the same at every daemon; below 2^62, as an index of a place must be."""
    (kind, seq, rep), place = view
    text = f"{int(kind)} {seq} {rep.name} {rep.incarnation} {rep.boot} {place.seq} {place.index}"
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big") >> 2


def origins(group: Group, members: tuple[ProcessId, ...]) -> tuple[Origin, ...]:
    """Which previous views came together, each with the members that come from it; newcomers come from none."""
    together: dict[GroupViewId, list[ProcessId]] = {}
    for member in members:
        origin = group.members[member]
        if origin is not None:
            together.setdefault(origin, []).append(member)
    return tuple(Origin(view, tuple(coming)) for view, coming in sorted(together.items()))


def consensus(group: Group, sizes: Mapping[GroupViewId, int]) -> GroupViewId | None:
    """The one regular view that all members come from, if nobody of it is missing: then nothing changed for them.

    `sizes` has how many members each previous view had; members themselves know only which view they come from.
    """
    found = set(group.members.values())
    view = next(iter(sorted(view for view in found if view is not None)), None)
    if view is None or len(found) > 1 or not view.configuration.is_regular:
        return None
    return view if sizes.get(view) == len(group.members) else None
