"""One order: what a process is told, views and messages of all its groups, follows the places of one total order.

Places are those of the node's deliveries, which `places` and `total_order_6_1` hold against each other; so it is enough that
no stream ever goes backwards. A transitional view has no place of its own: it stands where its configuration does.
"""

from __future__ import annotations

from transis.sim.checkers.clients import Client, Crowd, Got
from transis.sim.checkers.verdict import Findings
from transis.trace.events import GroupConf
from transis.types.ids import NodeId

Key = tuple[int, NodeId, int, int]
"""A ring, and a place in it."""


def check_group_order(crowd: Crowd, findings: Findings) -> None:
    for client in crowd.clients:
        _forward(client, findings)


def _forward(client: Client, findings: Findings) -> None:
    last: tuple[Key, int, bool] | None = None
    for step in client.steps:
        if isinstance(step, Got) and step.is_ordered:
            first, end, is_view = _key(step), _key(step, step.run.count - 1 if step.run is not None else 0), False
            what, lseq = f"messages of place {first[2]}.{first[3]} of ring {first[0]}", step.lseq
        elif isinstance(step, GroupConf) and step.view.id.configuration.is_regular:
            first = end = _view_key(step)
            what, lseq, is_view = f"{step.view.id} of {step.view.name}", step.lseq, True
        else:
            continue
        findings.checked += 1
        if last is not None and not (last[0] < first or (is_view and last[2] and last[0] == first)):
            findings.broken(
                f"{client.id} got {what} behind something of a later place", ((client.node, last[1]), (client.node, lseq))
            )
        last = (end, lseq, is_view)


def _key(got: Got, offset: int = 0) -> Key:
    run = got.run
    assert run is not None
    return (run.regular.seq, run.regular.rep, run.place.seq, run.place.index + offset)


def _view_key(event: GroupConf) -> Key:
    configuration, place = event.view.id
    return (configuration.seq, configuration.rep, place.seq, place.index)
