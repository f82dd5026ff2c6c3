"""Client processes in a worked example: they connect to a node, enter groups and send to them, and show what they got.

A cluster has processes if it is given `clients=1`. Each node has one: `connect p` makes it, and once the node had a turn it can
enter groups and send. A process is shown by the name of its node, its messages as `p#1.1`, `p#1.2` and so on.
"""

from __future__ import annotations

from transis.audit.guarantees.clients import ClientHistory, Got, Step
from transis.audit.guarantees.history import LaidHistory
from transis.sim.cluster import SimulatedCluster, grouped, show_message, show_node
from transis.sim.faults import SEND_SIZE
from transis.sim.host import Host
from transis.sim.life import FIRST, ActionKind, ClientAction, Submission
from transis.trace.events import ClientLeft, GroupConf
from transis.types.ids import MessageId, Service
from transis.types.views import Address, GroupView, group_id
from transis.wire.items import encode_address


def connect(cluster: SimulatedCluster, words: list[str]) -> str:
    """connect p q r"""
    for name in words:
        cluster.world.hosts[name].submit(ClientAction(ActionKind.CONNECT))
    return ""


def enter(cluster: SimulatedCluster, words: list[str]) -> str:
    """enter p G H"""
    host = _with_process(cluster, words[0])
    for group in words[1:]:
        host.submit(ClientAction(ActionKind.TOGGLE, FIRST, group))
    return ""


def tell(cluster: SimulatedCluster, words: list[str]) -> str:
    """tell p H causal, tell p G,H agreed"""
    name, groups, service = words
    address = Address(tuple(map(group_id, groups.split(","))))
    submission = Submission(Service[service.upper()], (SEND_SIZE,), FIRST, encode_address(address))
    _with_process(cluster, name).submit(submission)
    return ""


def _with_process(cluster: SimulatedCluster, name: str) -> Host:
    host = cluster.world.hosts[name]
    if host.life is None or host.life.clients is None or FIRST not in host.life.clients.wanted:
        raise ValueError(f"{name} has no process: give the cluster clients=1, `connect {name}`, and let time pass")
    return host


def streams(cluster: SimulatedCluster) -> str:
    """What each process got since the last call: views of its groups, messages, and the ends of its memberships."""
    lines = []
    for client in ClientHistory(LaidHistory(cluster.history())).clients:
        new = client.steps[cluster.shown_steps.get(client.id, 0) :]
        cluster.shown_steps[client.id] = len(client.steps)
        if new:
            lines.append((show_node(client.node), " ".join(map(_show_step, new))))
    return grouped(lines)


def _show_step(step: Step) -> str:
    match step:
        case GroupConf():
            return _show_group_view(step.view)
        case Got(run=run) if run is not None:
            return " ".join(show_message(MessageId(run.process, run.first + i)) for i in range(run.count))
        case ClientLeft():
            return f"out of {step.name}"
        case _:
            return "something unknown"


def _show_group_view(view: GroupView) -> str:
    """`G{p,q}`, or `G-transitional{p,q}`."""
    kind = "" if view.id.configuration.is_regular else "-transitional"
    return f"{view.name}{kind}{{{','.join(show_node(member.node) for member in view.members)}}}"
