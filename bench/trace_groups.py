"""Groups of a generated trace: which processes are in them, and the views that a change gives to those who go through it.

Members of a group are where their nodes are; besides, in every ring one of them leaves a group and joins it again.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import Final, NamedTuple

from bench.trace_plan import Plan, Ring, Step
from transis.types.ids import NodeId, Place, ProcessId
from transis.types.views import (
    AT_CONFIGURATION,
    Address,
    GroupCause,
    GroupId,
    GroupView,
    GroupViewId,
    Origin,
    View,
    group_id,
    is_primary,
)
from transis.wire.items import encode_address

CLIENTS: Final = (1, 2)
"""Processes of every node that are in groups."""

NAMES: Final = {group_id(name): name for name in ("orders", "alerts")}
GROUPS: Final = tuple(sorted(NAMES))
ORDERS, ALERTS = group_id("orders"), group_id("alerts")

ADDRESSES: Final = tuple(encode_address(Address(groups)) for size in (1, 2) for groups in combinations(GROUPS, size))
"""One group, the other, or both."""


class Known(NamedTuple):
    """Views of a group in a ring: the one in force, and the last regular one."""

    in_force: GroupView
    regular: GroupView


Views = dict[GroupId, Known]


def members_of(group: GroupId, nodes: tuple[NodeId, ...]) -> tuple[ProcessId, ...]:
    """All first clients are in `orders`; in `alerts` are both clients of every third node: many changes leave it alone."""
    every, numbers = (1, CLIENTS[:1]) if group == ORDERS else (3, CLIENTS)
    return tuple(ProcessId(node, number) for node in nodes if int(node.name[1:]) % every == 0 for number in numbers)


class GroupPlan:
    """Walks through the rings of a plan and says which group views stand where."""

    def __init__(self, plan: Plan) -> None:
        self._quorum = frozenset(plan.names)
        self._of_ring: dict[Ring, Views] = {}
        self._coming: dict[Ring, list[tuple[tuple[NodeId, ...], Views]]] = {ring: [] for ring in plan.rings}

    def start(self, ring: Ring) -> dict[NodeId, list[GroupView]]:
        """The regular views that each member of the ring is given when it is installed."""
        coming = self._coming.pop(ring)
        known = {node for nodes, _ in coming for node in nodes}
        coming += [((node,), {}) for node in ring.nodes if node not in known]
        given: dict[NodeId, list[GroupView]] = {node: [] for node in ring.nodes}
        self._of_ring[ring] = {}
        for group in GROUPS:
            for nodes, view in self._entered(group, ring, coming):
                for node in nodes:
                    given[node].append(view)
        return given

    def leave(self, ring: Ring, step: Step) -> list[GroupView]:
        """The transitional views of those who take this step."""
        lost = [
            (known.in_force, view)
            for known in self._of_ring[ring].values()
            if (view := self._transitional(known.in_force, step.view)) is not None
        ]
        views = {group: known for group, known in self._of_ring[ring].items() if members_of(group, step.view.nodes)}
        views |= {view.group: Known(view, before) for before, view in lost}
        self._coming[step.following].append((step.view.nodes, views))
        return [view for _, view in lost]

    def toggle(self, ring: Ring, place: Place) -> GroupView | None:
        """The first member leaves `alerts`, or comes back to it if it is out; None where nobody is in it."""
        known = self._of_ring[ring].get(ALERTS)
        if known is None:
            return None
        before, everybody = known.in_force, members_of(ALERTS, ring.nodes)
        if before.members == everybody:
            return self._changed(ring, before, place, everybody[1:], "leave", left=everybody[:1])
        return self._changed(ring, before, place, everybody, "join", joined=everybody[:1])

    def _changed(
        self,
        ring: Ring,
        before: GroupView,
        place: Place,
        members: tuple[ProcessId, ...],
        what: str,
        joined: tuple[ProcessId, ...] = (),
        left: tuple[ProcessId, ...] = (),
    ) -> GroupView:
        stayed = tuple(member for member in before.members if member in members)
        view = before._replace(
            id=GroupViewId(ring.view.id, place),
            members=members,
            joined=joined,
            left=left,
            merged_from=(Origin(before.id, stayed),),
            cause=GroupCause(what, (*joined, *left)[0]),
            primary=is_primary(self._quorum, ring.nodes),
        )
        self._of_ring[ring][before.group] = Known(view, view)
        return view

    def _transitional(self, before: GroupView, view: View) -> GroupView | None:
        """None if the group lost nobody, or nobody of it comes along."""
        members = tuple(member for member in before.members if member.node in view.nodes)
        if members in ((), before.members):
            return None
        return before._replace(
            id=GroupViewId(view.id, AT_CONFIGURATION),
            members=members,
            joined=(),
            left=tuple(member for member in before.members if member not in members),
            merged_from=(Origin(before.id, members),),
            cause=GroupCause("configuration", None, view.cause),
            primary=is_primary(self._quorum, view.nodes),
        )

    def _entered(
        self, group: GroupId, ring: Ring, coming: list[tuple[tuple[NodeId, ...], Views]]
    ) -> list[tuple[tuple[NodeId, ...], GroupView]]:
        """The new view as each component is told it; nothing if all were in one view that goes on as it was."""
        members = members_of(group, ring.nodes)
        if not members:
            return []
        origins = {member: view.id for nodes, views in coming for member, view in _had(group, nodes, views).items()}
        before = {view.id: view for _, views in coming if (view := _in_force(group, views)) is not None}
        for view in before.values():
            if view.members == members and view.id.configuration.is_regular and set(origins.values()) == {view.id}:
                self._of_ring[ring][group] = Known(view, view)
                return []
        ids = sorted(set(origins.values()))
        merged = tuple(Origin(id_, tuple(one for one in members if origins.get(one) == id_)) for id_ in ids)
        cause = GroupCause("configuration", None, ring.view.cause)
        primary = is_primary(self._quorum, ring.nodes)
        place = GroupViewId(ring.view.id, AT_CONFIGURATION)
        view = GroupView(group, NAMES[group], place, members, (), (), merged, cause, primary)
        self._of_ring[ring][group] = Known(view, view)
        return [(nodes, _as_told(view, origins, views.get(group))) for nodes, views in coming]


def _in_force(group: GroupId, views: Views) -> GroupView | None:
    return views[group].in_force if group in views else None


def _had(group: GroupId, nodes: tuple[NodeId, ...], views: Views) -> dict[ProcessId, GroupView]:
    """Members of the group on these nodes, with the view that they had in force."""
    view = _in_force(group, views)
    return {} if view is None else {member: view for member in view.members if member.node in nodes}


def _as_told(view: GroupView, origins: Mapping[ProcessId, GroupViewId], known: Known | None) -> GroupView:
    """Who joined and who left, against what a component had in force."""
    if known is None:
        return view._replace(joined=view.members)
    joined = tuple(member for member in view.members if origins.get(member) != known.in_force.id)
    left = tuple(member for member in known.regular.members if origins.get(member) != known.in_force.id)
    return view._replace(joined=joined, left=left)
