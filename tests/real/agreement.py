"""What all clients together must have seen, judged by their own notes alone: nothing here looks at a trace.

1. There is one order of all ordered messages and views that every stream follows, whatever groups it is of.
2. Views of one id are equal. 3. Who goes together from one view to the next got the same ordered messages in between.
4. Nobody got a message twice, a sender's messages in another order, or one that is not whole; this holds for causal ones, too.
5. Who has a receipt that says delivered, and was a member, got the message itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import Any

from tests.real.notes import Heard, Notes
from transis.client import View
from transis.trace.events import is_ordered
from transis.types.ids import MessageId, ProcessId, Service
from transis.types.views import GroupViewId

Step = tuple[str, Any]


def disagreements(clients: Sequence[Notes], engine: str = "totem") -> list[str]:
    """Which messages are ordered is a matter of the engine: causal ones are on the ring only."""
    found = list(_about_order(clients, engine)) + list(_about_views(clients)) + list(_about_synchrony(clients, engine))
    return found + [complaint for one in clients for complaint in _about_itself(one)]


def _ordered(entry: Heard | View, engine: str) -> bool:
    return not isinstance(entry, Heard) or is_ordered(entry.service, engine)


def _step(entry: Heard | View) -> Step:
    if isinstance(entry, Heard):
        return ("message", entry.id)
    return ("view", (entry.name, entry.id))


def _about_order(clients: Sequence[Notes], engine: str) -> Iterator[str]:
    order: TopologicalSorter[Step] = TopologicalSorter()
    for one in clients:
        steps = [_step(entry) for entry in one.heard if _ordered(entry, engine)]
        for before, after in pairwise(steps):
            order.add(after, before)
    try:
        order.prepare()
    except CycleError as error:
        yield f"no order fits all streams: {error.args[1][:6]}"


def _about_views(clients: Sequence[Notes]) -> Iterator[str]:
    known: dict[tuple[str, GroupViewId], tuple[str, object]] = {}
    for one in clients:
        for view in one.heard:
            if isinstance(view, Heard):
                continue
            content = (view.members, view.merged_from, view.cause, view.primary)
            first, same = known.setdefault((view.name, view.id), (one.label, content))
            if same != content:
                yield f"{first} and {one.label} differ in view {view.id} of {view.name}: {same} and {content}"


def _about_synchrony(clients: Sequence[Notes], engine: str) -> Iterator[str]:
    known: dict[tuple[str, GroupViewId, GroupViewId], tuple[str, list[MessageId]]] = {}
    for one in clients:
        for name in one.names:
            for before, between, after in _stays(one, name, engine):
                first, same = known.setdefault((name, before, after), (one.label, between))
                if same != between:
                    differing = sorted(set(same).symmetric_difference(between))[:5]
                    yield f"{first} and {one.label} went from {before} to {after} of {name} and differ in {differing}"


def _stays(one: Notes, name: str, engine: str) -> Iterator[tuple[GroupViewId, list[MessageId], GroupViewId]]:
    """The messages of a group between two views of it."""
    view: View | None = None
    between: list[MessageId] = []
    for entry in one.heard:
        if isinstance(entry, Heard):
            if name in entry.groups and _ordered(entry, engine):
                between.append(entry.id)
        elif entry.name == name:
            if view is not None:
                yield view.id, between, entry.id
            view, between = entry, []


def _about_itself(one: Notes) -> Iterator[str]:
    heard = [entry for entry in one.heard if isinstance(entry, Heard)]
    ids = [entry.id for entry in heard]
    if len(set(ids)) < len(ids):
        yield f"{one.label} got a message twice"
    last: dict[ProcessId, int] = {}
    for entry in heard:
        if entry.service is not Service.BASIC:
            if entry.id.counter <= last.get(entry.id.process, 0):
                yield f"{one.label} got {entry.id} after {last[entry.id.process]}"
            last[entry.id.process] = entry.id.counter
    if one.spoilt:
        yield f"{one.label} got messages that are not whole: {one.spoilt[:5]}"
    if not one.promised <= set(ids):
        yield f"{one.label} was told that {sorted(one.promised - set(ids))[:5]} were delivered, and did not get them"
