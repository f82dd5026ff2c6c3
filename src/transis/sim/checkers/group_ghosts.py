"""No ghosts: members live on nodes of the view's configuration, are there by their own node's word, and at rest are all there.

A view stands in a configuration that is in force at the node, or in the regular one before it: an exchange may end when somebody
is lost already. At rest the members of a group are exactly the processes that were told so last and are not gone.
"""

from __future__ import annotations

from transis.sim.checkers.clients import Change, Client, Crowd, tells_who_is_there
from transis.sim.checkers.index import Life
from transis.sim.checkers.verdict import Findings
from transis.sim.checkers.words import several
from transis.trace.events import ClientLeft, ClientLife, GroupConf
from transis.types.ids import NodeId, ProcessId
from transis.types.views import GroupId


def check_group_ghosts(crowd: Crowd, findings: Findings) -> None:
    connected = {life.node: _ever_connected(life) for life in crowd.lives}
    for change in crowd.changes:
        if change.configuration is not None:
            findings.checked += len(change.view.members)
            _on_nodes_of_the_configuration(change, findings)
            _by_their_nodes_word(change, connected, findings)
    if crowd.closed:
        _at_rest(crowd, findings)


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


def _at_rest(crowd: Crowd, findings: Findings) -> None:
    living = [life for life in crowd.lives if not life.ended]
    if any(life.gapped for life in living):
        findings.pending += 1
        return
    if not all(map(tells_who_is_there, living)):
        return
    lives = {life.node: life for life in crowd.lives}
    last = {client.id: _last(client) for client in crowd.clients if _is_there(lives[client.node], client)}
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


def _is_there(life: Life, client: Client) -> bool:
    gone = any(isinstance(event, ClientLife) and event[2:] == (client.id.number, False) for event in life.events)
    return not gone and not life.ended


def _last(client: Client) -> dict[GroupId, GroupConf]:
    """The view that the process has in force in each of its groups."""
    found: dict[GroupId, GroupConf] = {}
    for step in client.steps:
        if isinstance(step, GroupConf):
            found[step.view.group] = step
        elif isinstance(step, ClientLeft) and not step.refused:
            found.pop(step.group, None)
    return found
