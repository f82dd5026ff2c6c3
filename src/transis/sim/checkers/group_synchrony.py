"""Virtual synchrony per group: who goes from one view of a group to the next got the same ordered messages of it in between."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from transis.sim.checkers.clients import Client, Crowd, Got
from transis.sim.checkers.index import Index
from transis.sim.checkers.verdict import Findings
from transis.sim.checkers.words import messages, named
from transis.trace.events import ClientLeft, Gap, GroupConf
from transis.types.views import GroupId, GroupViewId


class Stretch(NamedTuple):
    """What a process got of a group between two of its views."""

    client: Client
    group: GroupId
    start: GroupConf
    end: GroupConf
    codes: list[int]


def check_group_synchrony(crowd: Crowd, findings: Findings) -> None:
    first: dict[tuple[GroupId, GroupViewId, GroupViewId], Stretch] = {}
    for client in crowd.clients:
        for stretch in stretches(client):
            step = (stretch.group, stretch.start.view.id, stretch.end.view.id)
            known = first.setdefault(step, stretch)
            if known is not stretch:
                findings.checked += 1
                if known.codes != stretch.codes:
                    _tell(crowd.index, known, stretch, findings)


def stretches(client: Client) -> Iterator[Stretch]:
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


def _tell(index: Index, left: Stretch, right: Stretch, findings: Findings) -> None:
    apart = sorted(set(left.codes) ^ set(right.codes)) or [code for code in left.codes if code in right.codes]
    only = left if apart[0] in left.codes else right
    other = right if only is left else left
    start, end = left.start.view, left.end.view
    findings.broken(
        f"{left.client.id} and {right.client.id} went together from {start.id} to {end.id} of {start.name}, but in between "
        f"{only.client.id} got {named(index, apart)} and {other.client.id} did not, or not in this order",
        ((only.client.node, only.end.lseq), (other.client.node, other.end.lseq)),
        messages(index, apart),
    )
