"""One view per change; differences told truly.

One view per change: groups that something happened to are told once, the others see nothing.

1. A configuration that loses daemons gives a transitional view to each group that lost members here, at once, and to no other.
2. A join, leave or disconnection gives one regular view, which tells of that process and nobody else. Several that came in one
   datagram give one view together.
3. A regular configuration gives at most one regular view to a group, and none if nothing changed for it.

What a group view says has changed is what has: `joined`, `left` and `merged_from` against the views that were in force.

1. A transitional view is the view in force without those whose node is lost; nobody joins in it.
2. A regular view: who does not come from the view in force here has joined; who was in the last regular view and does not come
   from the view in force has left, so that who went away and came back is in both.
3. `merged_from` is true: a process comes from the view that it has in force, a newcomer from none.
"""

from __future__ import annotations

from collections.abc import Iterator

from transis.audit.guarantees.clients import Change, ClientHistory, ClientStream, tells_who_is_there
from transis.audit.guarantees.history import Life
from transis.audit.guarantees.property import Findings, several
from transis.trace.events import ClientDelivery, ClientLeft, ClientLife, Conf, Delivery, End, Event, Gap, GroupConf
from transis.types.ids import ProcessId, ViewId
from transis.types.views import GroupId, GroupView, GroupViewId, Origin, View

# --- group changes ----------------------------------------------------------------------------------------------------


def check_group_changes(history: ClientHistory, findings: Findings) -> None:
    told: dict[tuple[Life, GroupId, ViewId], Change] = {}
    for change in history.changes:
        findings.checked += 1
        if change.view.id.configuration.is_regular:
            _regular(change, told, findings)
        else:
            _transitional(change, findings)
    for life in history.lives:
        if tells_who_is_there(life):
            _Losses(life, findings, history.closed).read()


def _regular(change: Change, told: dict[tuple[Life, GroupId, ViewId], Change], findings: Findings) -> None:
    view, before = change.view, change.before
    if view.cause.process is not None:
        _one_process(change, findings)
        return
    if view.cause.configuration is None:
        _several_processes(change, findings)
        return
    if change.own is not None and view.cause.configuration != change.own.cause:
        _tell(change, f"its cause is {view.cause}, but that of its configuration is {change.own.cause}", findings)
    if before is not None and before.id.configuration.is_regular and not view.joined and not view.left:
        _tell(change, f"nothing changed since {before.id}", findings)
    known = told.setdefault((change.life, view.group, view.id.configuration), change)
    if known is not change:
        _tell(change, f"its configuration had given {known.view.id} already", findings)


def _one_process(change: Change, findings: Findings) -> None:
    """Told at its place of a settled regular configuration, so that no other change can wait to be told."""
    view = change.view
    process = (view.cause.process,)
    expected = (process, ()) if view.cause.what == "join" else ((), process)
    if (view.joined, view.left) != expected:
        _tell(change, f"for the {view.cause} it tells that {several(view.joined)} joined and {several(view.left)} left", findings)
    _after_a_regular(change, findings)


def _several_processes(change: Change, findings: Findings) -> None:
    if not change.view.joined and not change.view.left:
        _tell(change, "it tells of nobody", findings)
    _after_a_regular(change, findings)


def _after_a_regular(change: Change, findings: Findings) -> None:
    if change.before is not None and not change.before.id.configuration.is_regular:
        _tell(change, f"it follows the transitional {change.before.id}, which only a configuration ends", findings)


def _transitional(change: Change, findings: Findings) -> None:
    if change.own is None or change.before is None:
        return
    if change.view.cause.configuration != change.own.cause:
        _tell(change, f"its cause is {change.view.cause}, but that of its configuration is {change.own.cause}", findings)
    if not _lost(change.before, change.own):
        _tell(change, f"nobody of {change.before.id} was lost", findings)


def _tell(change: Change, wrong: str, findings: Findings) -> None:
    findings.broken(f"{change.life.node}: {change.view.id} of {change.view.name}: {wrong}", (change.witness,))


def _lost(view: GroupView, configuration: View) -> bool:
    nodes = frozenset(configuration.nodes)
    return any(member.node not in nodes for member in view.members)


class _Losses:
    """Transitional configurations of one life, and the groups that must hear of each before the order goes on there. Meanwhile
    processes may go, and applications submit: a node with many groups tells them in slices."""

    def __init__(self, life: Life, findings: Findings, closed: bool) -> None:
        self._life = life
        self._findings = findings
        self._closed = closed
        self._in_force: dict[GroupId, GroupView] = {}
        self._inside: dict[GroupId, set[int]] = {}
        self._due: dict[GroupId, GroupView] = {}
        self._configuration: Conf | None = None

    def read(self) -> None:
        for event in self._life.events:
            match event:
                case End():
                    return  # It died, or stopped, before it could tell.
                case GroupConf():
                    self._group_conf(event)
                case Conf():
                    self._judge()
                    self._conf(event)
                case Delivery() | ClientDelivery():
                    self._judge()
                case _:
                    self._other(event)
        if self._closed:
            self._judge()

    def _group_conf(self, event: GroupConf) -> None:
        group = event.view.group
        self._due.pop(group, None)
        self._in_force[group] = event.view
        self._inside[group] = set(event.processes)

    def _conf(self, event: Conf) -> None:
        view = event.view
        if not view.id.is_regular:
            self._configuration = event
            lost = {group: known for group, known in self._in_force.items() if _lost(known, view)}
            self._due = {group: known for group, known in lost.items() if self._inside.get(group)}
            self._findings.checked += len(self._due)

    def _other(self, event: Event) -> None:
        match event:
            case ClientLeft(process=process, group=group, refused=False):
                self._inside.get(group, set()).discard(process)
            case ClientLife(process=process):
                for processes in self._inside.values():
                    processes.discard(process)
            case Gap():
                self._inside.clear()
                self._due.clear()
            case _:
                pass

    def _judge(self) -> None:
        due = [view for group, view in self._due.items() if self._inside.get(group)]
        for view in due:
            assert self._configuration is not None
            self._findings.broken(
                f"{self._life.node}: {self._configuration.view.id} lost members of {view.id} of {view.name}, "
                "but gave the group no transitional view",
                ((self._life.node, self._configuration.lseq),),
            )
        self._due = {}


# --- group differences ------------------------------------------------------------------------------------------------


def check_group_differences(history: ClientHistory, findings: Findings) -> None:
    for change in history.changes:
        findings.checked += 1
        for wrong in _wrong(change):
            view = change.view
            findings.broken(f"{change.life.node}: {view.id} of {view.name}: {wrong}", (change.witness,))
    for client in history.clients:
        _come_from_what_they_had(client, findings)


def _come_from_what_they_had(client: ClientStream, findings: Findings) -> None:
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
