"""One order, no duplicates, virtual synchrony per group.

One order: what a process is told, views and messages of all its groups, follows the places of one total order.

Places are those of the node's deliveries, which `places` and `total_order_6_1` hold against each other; so it is enough that
no stream ever goes backwards. A transitional view has no place of its own: it stands where its configuration does.

No duplicates: a process gets a message once, however many of its groups it is for, and a group view once.

Virtual synchrony per group: who goes from one view of a group to the next got the same ordered messages of it in between.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from transis.audit.guarantees.clients import ClientHistory, ClientStream, Got
from transis.audit.guarantees.history import LaidHistory
from transis.audit.guarantees.property import Findings, several
from transis.trace.events import ClientLeft, Gap, GroupConf
from transis.types.ids import NodeId
from transis.types.views import GroupId, GroupViewId

# --- group order ------------------------------------------------------------------------------------------------------

Key = tuple[int, NodeId, int, int]
"""A ring, and a place in it."""


def check_group_order(history: ClientHistory, findings: Findings) -> None:
    for client in history.clients:
        _forward(client, findings)


def _forward(client: ClientStream, findings: Findings) -> None:
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


# --- group duplicates -------------------------------------------------------------------------------------------------


def check_group_duplicates(history: ClientHistory, findings: Findings) -> None:
    for client in history.clients:
        codes: dict[int, int] = {}
        views: dict[tuple[GroupId, GroupViewId], int] = {}
        for step in client.steps:
            if isinstance(step, Got):
                findings.checked += len(step.codes)
                _messages(history, client, step, codes, findings)
            elif isinstance(step, GroupConf):
                findings.checked += 1
                key = (step.view.group, step.view.id)
                if views.setdefault(key, step.lseq) != step.lseq:
                    findings.broken(
                        f"{client.id} was shown {step.view.id} of {step.view.name} twice",
                        ((client.node, views[key]), (client.node, step.lseq)),
                    )


def _messages(history: ClientHistory, client: ClientStream, got: Got, codes: dict[int, int], findings: Findings) -> None:
    for code in got.codes:
        if code in codes:
            message = history.laid.message(code)
            findings.broken(f"{client.id} got {message} twice", ((client.node, codes[code]), (client.node, got.lseq)), (message,))
        codes[code] = got.lseq


# --- group synchrony --------------------------------------------------------------------------------------------------


class Stretch(NamedTuple):
    """What a process got of a group between two of its views."""

    client: ClientStream
    group: GroupId
    start: GroupConf
    end: GroupConf
    codes: list[int]


def check_group_synchrony(history: ClientHistory, findings: Findings) -> None:
    first: dict[tuple[GroupId, GroupViewId, GroupViewId], Stretch] = {}
    for client in history.clients:
        for stretch in stretches(client):
            step = (stretch.group, stretch.start.view.id, stretch.end.view.id)
            known = first.setdefault(step, stretch)
            if known is not stretch:
                findings.checked += 1
                if known.codes != stretch.codes:
                    _tell(history.laid, known, stretch, findings)


def stretches(client: ClientStream) -> Iterator[Stretch]:
    under_way: dict[GroupId, tuple[GroupConf, list[int]]] = {}
    for step in client.steps:
        match step:
            case GroupConf(view=view):
                if view.group in under_way:
                    start, codes = under_way[view.group]
                    yield Stretch(client, view.group, start, step, codes)
                under_way[view.group] = (step, [])
            case Got():
                for group in step.groups if step.is_ordered else ():
                    if group in under_way:
                        under_way[group][1].extend(step.codes)
            case ClientLeft(group=group, refused=False):
                under_way.pop(group, None)
            case Gap():
                under_way.clear()


def _tell(history: LaidHistory, left: Stretch, right: Stretch, findings: Findings) -> None:
    apart = sorted(set(left.codes) ^ set(right.codes)) or [code for code in left.codes if code in right.codes]
    only = left if apart[0] in left.codes else right
    other = right if only is left else left
    start, end = left.start.view, left.end.view
    findings.broken(
        f"{left.client.id} and {right.client.id} went together from {start.id} to {end.id} of {start.name}, but in between "
        f"{only.client.id} got {several(history.messages(apart))} and {other.client.id} did not, or not in this order",
        ((only.client.node, only.end.lseq), (other.client.node, other.end.lseq)),
        history.messages(apart),
    )
