"""Group agreement, primary, no ghosts.

Agreement: a group view's id has the same members, origins, cause and flag wherever it is installed.

What joined and left is not part of it: both are told from the view that a node had before.

A primary component is one: two configurations whose group views say `primary` share a name, and all views of one agree.

A majority of the configured names cannot be in two places, so if two primary configurations had no name in common, there were two
majorities. Without a configured set no view says anything, and nothing is checked.

No ghosts: members live on nodes of the view's configuration, are there by their own node's word, and at rest are all there.

A view stands in a configuration that is in force at the node, or in the regular one before it: an exchange may end when somebody
is lost already. At rest the members of a group are exactly the processes that were told so last and are not gone.
"""

from __future__ import annotations

from itertools import combinations

from transis.audit.guarantees.clients import Change, ClientHistory, ClientStream, tells_who_is_there
from transis.audit.guarantees.history import Life
from transis.audit.guarantees.property import Findings, several
from transis.trace.events import ClientLeft, ClientLife, GroupConf
from transis.types.ids import NodeId, ProcessId, ViewId
from transis.types.views import GroupId, GroupView, GroupViewId

# --- group agreement --------------------------------------------------------------------------------------------------


def check_group_agreement(history: ClientHistory, findings: Findings) -> None:
    first: dict[tuple[GroupId, GroupViewId], Change] = {}
    for change in history.changes:
        findings.checked += 1
        view = change.view
        known = first.setdefault((view.group, view.id), change)
        difference = _difference(known.view, view)
        if difference:
            findings.broken(
                f"{known.life.node} and {change.life.node} have {view.id} of {view.name} with different {difference}",
                (known.witness, change.witness),
            )


def _difference(left: GroupView, right: GroupView) -> str:
    if left is right:
        return ""
    if left.members != right.members:
        return f"members: {several(left.members)} against {several(right.members)}"
    if left.merged_from != right.merged_from:
        return "origins of members"
    if left.cause != right.cause:
        return f"causes: {left.cause} against {right.cause}"
    if left.name != right.name:
        return f"names: {left.name} against {right.name}"
    return f"flags: primary {left.primary} against {right.primary}" if left.primary != right.primary else ""


# --- group primary ----------------------------------------------------------------------------------------------------


def check_group_primary(history: ClientHistory, findings: Findings) -> None:
    first: dict[ViewId, Change] = {}
    for change in history.changes:
        if change.view.primary is None or change.own is None:
            continue
        findings.checked += 1
        known = first.setdefault(change.view.id.configuration, change)
        if known.view.primary != change.view.primary:
            findings.broken(
                f"{known.view.id} of {known.view.name} says primary {known.view.primary}, and {change.view.id} of "
                f"{change.view.name} says {change.view.primary}, in one configuration",
                (known.witness, change.witness),
            )
    primaries = [change for _, change in sorted(first.items()) if change.view.primary]
    for left, right in combinations(primaries, 2):
        if _names(left).isdisjoint(_names(right)):
            findings.broken(
                f"{left.view.id.configuration} and {right.view.id.configuration} both call themselves primary and share no name",
                (left.witness, right.witness),
            )


def _names(change: Change) -> frozenset[str]:
    assert change.own is not None
    return frozenset(node.name for node in change.own.nodes)


# --- group ghosts -----------------------------------------------------------------------------------------------------


def check_group_ghosts(history: ClientHistory, findings: Findings) -> None:
    connected = {life.node: _ever_connected(life) for life in history.lives}
    for change in history.changes:
        if change.configuration is not None:
            findings.checked += len(change.view.members)
            _on_nodes_of_the_configuration(change, findings)
            _by_their_nodes_word(change, connected, findings)
    if history.closed:
        _at_rest(history, findings)


def _ever_connected(life: Life) -> frozenset[int] | None:
    """None if the trace does not tell, or may have dropped it."""
    found = frozenset(event.process for event in life.events if isinstance(event, ClientLife) and event.connected)
    return None if life.gapped or not found else found


def _on_nodes_of_the_configuration(change: Change, findings: Findings) -> None:
    view = change.view
    if change.own is None and change.adrift:
        findings.pending += 1
        return
    if change.own is None:
        findings.broken(f"{change.life.node} installed {view.id} of {view.name} in another configuration", (change.witness,))
        return
    nodes = frozenset(change.own.nodes)
    ghosts = [member for member in view.members if member.node not in nodes]
    if ghosts:
        findings.broken(
            f"{change.life.node} installed {view.id} of {view.name} with {several(ghosts)}, on no node of the configuration",
            (change.witness,),
        )


def _by_their_nodes_word(change: Change, connected: dict[NodeId, frozenset[int] | None], findings: Findings) -> None:
    for node, number in change.view.members:
        known = connected.get(node)
        if known is not None and number not in known:
            findings.broken(
                f"{change.view.id} of {change.view.name} has {node}#{number}, which never was a process of {node}",
                (change.witness,),
            )


def _at_rest(history: ClientHistory, findings: Findings) -> None:
    living = [life for life in history.lives if not life.ended]
    if any(life.gapped for life in living):
        findings.pending += 1
        return
    if not all(map(tells_who_is_there, living)):
        return
    lives = {life.node: life for life in history.lives}
    last = {client.id: _last(client) for client in history.clients if _is_there(lives[client.node], client)}
    members: dict[GroupId, list[ProcessId]] = {}
    for process, views in last.items():
        for group in views:
            members.setdefault(group, []).append(process)
    for process, views in last.items():
        for group, event in views.items():
            findings.checked += 1
            if list(event.view.members) != members[group]:
                findings.broken(
                    f"at rest {process} is in {event.view.id} of {event.view.name} with {several(event.view.members)}, "
                    f"but those who are in the group are {several(members[group])}",
                    ((process.node, event.lseq),),
                )


def _is_there(life: Life, client: ClientStream) -> bool:
    gone = any(isinstance(event, ClientLife) and event[2:] == (client.id.number, False) for event in life.events)
    return not gone and not life.ended


def _last(client: ClientStream) -> dict[GroupId, GroupConf]:
    """The view that the process has in force in each of its groups."""
    found: dict[GroupId, GroupConf] = {}
    for step in client.steps:
        if isinstance(step, GroupConf):
            found[step.view.group] = step
        elif isinstance(step, ClientLeft) and not step.refused:
            found.pop(step.group, None)
    return found
