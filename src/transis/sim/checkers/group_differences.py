"""What a group view says has changed is what has: `joined`, `left` and `merged_from` against the views that were in force.

1. A transitional view is the view in force without those whose node is lost; nobody joins in it.
2. A regular view: who does not come from the view in force here has joined; who was in the last regular view and does not come
   from the view in force has left, so that who went away and came back is in both.
3. `merged_from` is true: a process comes from the view that it has in force, a newcomer from none.
"""

from __future__ import annotations

from collections.abc import Iterator

from transis.sim.checkers.clients import Change, Client, Crowd
from transis.sim.checkers.verdict import Findings
from transis.sim.checkers.words import several
from transis.trace.events import ClientLeft, Gap, GroupConf
from transis.types.ids import ProcessId
from transis.types.views import GroupId, GroupView, GroupViewId, Origin


def check_group_differences(crowd: Crowd, findings: Findings) -> None:
    for change in crowd.changes:
        findings.checked += 1
        for wrong in _wrong(change):
            view = change.view
            findings.broken(f"{change.life.node}: {view.id} of {view.name}: {wrong}", (change.witness,))
    for client in crowd.clients:
        _come_from_what_they_had(client, findings)


def _come_from_what_they_had(client: Client, findings: Findings) -> None:
    in_force: dict[GroupId, GroupViewId] = {}
    for step in client.steps:
        match step:
            case GroupConf(view=view):
                findings.checked += 1
                _origin_is_true(client.id, step, in_force.get(view.group), findings)
                in_force[view.group] = view.id
            case ClientLeft(group=group, refused=False):
                in_force.pop(group, None)
            case Gap():
                findings.pending += 1
                return
            case _:
                pass


def _wrong(change: Change) -> Iterator[str]:
    view = change.view
    yield from _unlike_itself(view)
    if change.before is None:
        if not view.id.configuration.is_regular and not change.blind:
            yield "a transitional view before any other"
    elif view.id.configuration.is_regular:
        yield from _wrong_regular(view, change.before, change.regular)
    else:
        yield from _wrong_transitional(change, change.before)


def _unlike_itself(view: GroupView) -> Iterator[str]:
    origins = [member for origin in view.merged_from for member in origin.members]
    for what, found in (("members", view.members), ("joined", view.joined), ("left", view.left)):
        if list(found) != sorted(set(found)):
            yield f"{what} is not sorted, or names somebody twice"
    if not set(view.joined) <= set(view.members):
        yield f"{several(sorted(set(view.joined) - set(view.members)))} joined and is no member"
    if len(set(origins)) < len(origins) or not set(origins) <= set(view.members):
        yield "a member comes from two views, or who is no member from one"
    if [origin.view for origin in view.merged_from] != sorted({origin.view for origin in view.merged_from}):
        yield "merged_from is not sorted, or names a view twice"


def _origins(view: GroupView) -> dict[ProcessId, GroupViewId]:
    return {member: origin.view for origin in view.merged_from for member in origin.members}


def _wrong_regular(view: GroupView, before: GroupView, regular: GroupView | None) -> Iterator[str]:
    origins = _origins(view)
    joined = [member for member in view.members if origins.get(member) != before.id]
    if list(view.joined) != joined:
        yield f"{several(view.joined)} joined, it says, but those who do not come from {before.id} are {several(joined)}"
    if regular is None:
        return
    left = [member for member in regular.members if origins.get(member) != before.id]
    if list(view.left) != left:
        yield f"{several(view.left)} left, it says, but {several(left)} of {regular.id} do not come from {before.id}"


def _wrong_transitional(change: Change, before: GroupView) -> Iterator[str]:
    view = change.view
    if change.own is None:
        return
    nodes = frozenset(change.own.nodes)
    stay = tuple(member for member in before.members if member.node in nodes)
    if view.members != stay:
        yield f"its members are {several(view.members)}, but of {before.id} {several(stay)} come along"
    if view.joined or set(view.left) != set(before.members) - set(view.members):
        yield "somebody joins in it, or those who left are not those who are missing"
    if view.merged_from != (Origin(before.id, view.members),):
        yield f"its members do not all come from {before.id}"


def _origin_is_true(process: ProcessId, event: GroupConf, in_force: GroupViewId | None, findings: Findings) -> None:
    view = event.view
    origin = _origins(view).get(process)
    came_back = process in view.joined and process in view.left
    if origin == in_force or (origin is None and came_back):
        return
    findings.broken(
        f"{process} had {in_force or 'no view'} of {view.name} in force, but by {view.id} it comes from {origin or 'none'}",
        ((process.node, event.lseq),),
    )
