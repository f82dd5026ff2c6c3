"""When a cluster is at rest: in every component all live nodes share one view, nothing is owed, and nothing is under way.

The simulator's own idea of rest (sim/liveness.py) is that of a whole network. Tests also want to wait while it is divided.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from transis.sim.life import Life
from transis.sim.world import World
from transis.testing.node import SessionNode
from transis.types.ids import NodeId, ProcessId


def unrest(world: World, components: Iterable[Sequence[str]]) -> str:
    """Why the cluster is not at rest, in words; empty when it is. Who is down or paused is left out."""
    for component in components:
        hosts = [world.hosts[name] for name in component]
        reason = _unrest_among([host.life for host in hosts if host.life is not None and not host.paused])
        if reason:
            return reason
    return ""


def _unrest_among(lives: Sequence[Life]) -> str:
    members = tuple(sorted(life.id for life in lives))
    for life in lives:
        reason = _apart(life, members) or _unfinished(life)
        if reason:
            return f"{life.id.name} {reason}"
    if len({(life.regular, life.position) for life in lives}) > 1:
        return "not every message was delivered at every node: " + ", ".join(f"{one.id.name} has {one.position}" for one in lives)
    return _unrest_of_groups(lives)


def _unrest_of_groups(lives: Sequence[Life]) -> str:
    """The views that members were told of last have exactly those who want to be in the group."""
    crowds = [(life.clients, life) for life in lives if life.clients is not None]
    wanted: dict[str, list[ProcessId]] = {}
    for crowd, _ in crowds:
        for process in crowd.connected():
            for name in sorted(crowd.wanted[process]):
                wanted.setdefault(name, []).append(crowd.id(process))
    for crowd, life in crowds:
        for process in crowd.connected():
            for view in crowd.inside[process].values():
                if list(view.members) != sorted(wanted.get(view.name, [])):
                    return f"{life.id.name} has not told its clients of the last change of {view.name}"
    return ""


def _apart(life: Life, members: tuple[NodeId, ...]) -> str:
    if life.view is None:
        return "has no view yet"
    if life.regular is not None and life.view.nodes == members and life.node.state == "Operational":
        return ""
    return f"is in a view of {_shown(life.view.nodes)}; {_shown(members)} should be together"


def _shown(nodes: Sequence[NodeId]) -> str:
    return " ".join(node.name for node in nodes)


def _unfinished(life: Life) -> str:
    if life.owed:
        return f"has sent {life.taken} messages, of which {life.owed} did not come back yet"
    if isinstance(life.node, SessionNode) and not life.node.is_idle:
        return "has something to do for its sessions"
    return life.clients.unrest() if life.clients is not None else ""
