"""Mutants of what client processes were handed: messages missed, repeated, late or misdirected. See `mutants.py`.

They leave alone what the node itself did, so that only the checkers of groups can see them.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import NamedTuple

from tests.guarantees.mutants_of_messages import strike
from tests.guarantees.surgery import Draft, Kit
from transis.audit.guarantees.clients import ClientHistory
from transis.audit.guarantees.group_order import Stretch, stretches
from transis.trace.events import ClientDelivery, ClientLeft, ClientLife, Conf, Delivery, Event, GroupConf, HandedRuns, Sent
from transis.types.ids import NodeId, ProcessId, Service
from transis.types.views import AT_CONFIGURATION, GroupId, GroupViewId

HANDING = Kit()
FENCES = Kit()
"""Of histories in which causal messages are not in the total order."""


class Handing(NamedTuple):
    """One ordered run that a process of a living node was handed in one event."""

    node: NodeId
    event: ClientDelivery
    handed: HandedRuns
    process: int
    lseq: int


@HANDING.breaks("group_members_only", may=("group_virtual_synchrony",))
def missed_message(draft: Draft, rng: Random) -> bool:
    """A process does not get what was for it. If others went the same way between two views, they see it too."""
    return strike(rng, _handings(draft), lambda handing: _take_back(draft, handing))


@HANDING.breaks("group_members_only", "group_virtual_synchrony")
def missed_message_among_others(draft: Draft, rng: Random) -> bool:
    """The same, where somebody went the same way between two views of one of the groups."""
    company = _in_company(draft)
    targets = [handing for handing in _handings(draft) if _mark(draft, handing) in company]
    return strike(rng, targets, lambda handing: _take_back(draft, handing))


@HANDING.breaks("group_members_only")
def handed_to_an_outsider(draft: Draft, rng: Random) -> bool:
    """A connected process gets what was for others."""
    targets = [(handing, outsider) for handing in _handings(draft) for outsider in _outsiders(draft, handing)]

    def act(target: tuple[Handing, int]) -> None:
        handing, outsider = target
        more = HandedRuns(handing.handed.groups, (outsider,), (handing.lseq,))
        draft.exchange(handing.node, handing.event, handing.event._replace(handed=(*handing.event.handed, more)))

    return strike(rng, targets, act)


@HANDING.breaks("group_members_only")
def handed_through_a_wrong_group(draft: Draft, rng: Random) -> bool:
    """A message for a group comes as if it were for the process by its private name."""
    targets = [handing for handing in _handings(draft) if len(handing.handed.groups) > 1]

    def act(handing: Handing) -> None:
        _take_back(draft, handing, HandedRuns(handing.handed.groups[1:], (handing.process,), (handing.lseq,)))

    company = _in_company(draft)
    return strike(rng, [handing for handing in targets if _mark(draft, handing) not in company], act)


@HANDING.breaks("group_members_only", "group_no_duplicates", may=("group_order", "group_virtual_synchrony"))
def message_twice(draft: Draft, rng: Random) -> bool:
    """A process gets a message again, at once. Behind others that came with it, it is also out of order."""

    def act(handing: Handing) -> None:
        again = HandedRuns(handing.handed.groups, (handing.process,), (handing.lseq,))
        draft.put_after(handing.node, handing.event, ClientDelivery(0, handing.event.time_us, (again,)))

    return strike(rng, _handings(draft), act)


@HANDING.breaks("group_members_only", "group_order")
def handed_late(draft: Draft, rng: Random) -> bool:
    """A process gets the first of several ordered runs behind the last."""
    targets = [
        handing
        for handing in _handings(draft)
        if any(other.lseq > handing.lseq for other in handings_of(draft, handing.node, handing.event, handing.process))
    ]

    company = _in_company(draft)
    alone = [handing for handing in targets if _mark(draft, handing) not in company]
    return strike(rng, alone, lambda handing: _hand_late(draft, handing))


@HANDING.breaks("group_members_only", "group_order", "group_virtual_synchrony")
def handed_late_among_others(draft: Draft, rng: Random) -> bool:
    """The same, where others went the same way between two views of a group of both runs: they got the same in another order."""
    together = [set(stretch.codes) for stretch in _shared_stretches(draft)]

    def is_seen(handing: Handing) -> bool:
        later = [other for other in handings_of(draft, *handing[:2], handing.process) if other.lseq > handing.lseq]
        codes = {_mark(draft, other)[1] for other in later}
        return any(_mark(draft, handing)[1] in stretch and codes & stretch for stretch in together)

    return strike(rng, [handing for handing in _handings(draft) if is_seen(handing)], lambda handing: _hand_late(draft, handing))


def _handings(draft: Draft) -> list[Handing]:
    return [
        handing
        for life in draft.alive
        for event in draft.traces[life.node]
        if isinstance(event, ClientDelivery)
        for handing in handings_of(draft, life.node, event)
    ]


def handings_of(draft: Draft, node: NodeId, event: ClientDelivery, only: int | None = None) -> Iterator[Handing]:
    for handed in event.handed:
        for process in handed.processes:
            if only in (None, process):
                yield from (Handing(node, event, handed, process, lseq) for lseq in handed.runs if _is_ordered(draft, node, lseq))


def _is_ordered(draft: Draft, node: NodeId, lseq: int) -> bool:
    run = draft.traces[node][lseq - 1]
    assert isinstance(run, Delivery)
    return run.service is not Service.BASIC


def _take_back(draft: Draft, handing: Handing, instead: HandedRuns | None = None) -> None:
    """The process does not get the run in this event, or gets it differently."""
    kept: list[HandedRuns] = []
    for handed in handing.event.handed:
        if handed is handing.handed:
            others = tuple(process for process in handed.processes if process != handing.process)
            rest = tuple(lseq for lseq in handed.runs if lseq != handing.lseq)
            parts = (handed._replace(processes=others), handed._replace(processes=(handing.process,), runs=rest))
            kept += [part for part in parts if part.processes and part.runs]
        else:
            kept.append(handed)
    kept += [instead] if instead is not None else []
    if kept or handing.event.waited:
        draft.exchange(handing.node, handing.event, handing.event._replace(handed=tuple(kept)))
    else:
        draft.cut(handing.node, handing.event)


def _hand_late(draft: Draft, handing: Handing) -> None:
    """The process gets the run behind everything else of the event."""
    late = HandedRuns(handing.handed.groups, (handing.process,), (handing.lseq,))
    draft.put_after(handing.node, handing.event, ClientDelivery(0, handing.event.time_us, (late,)))
    _take_back(draft, handing)


def _in_company(draft: Draft) -> set[tuple[ProcessId, int]]:
    """Which messages, by process and code, came between two views between which somebody else went too."""
    return {(stretch.client.id, code) for stretch in _shared_stretches(draft) for code in stretch.codes}


def _shared_stretches(draft: Draft) -> list[Stretch]:
    together: dict[tuple[GroupId, GroupViewId, GroupViewId], list[Stretch]] = {}
    for client in ClientHistory(draft.index).clients:
        for stretch in stretches(client):
            step = (stretch.group, stretch.start.view.id, stretch.end.view.id)
            together.setdefault(step, []).append(stretch)
    return [stretch for company in together.values() if len(company) > 1 for stretch in company]


def _mark(draft: Draft, handing: Handing) -> tuple[ProcessId, int]:
    run = draft.traces[handing.node][handing.lseq - 1]
    assert isinstance(run, Delivery)
    return (ProcessId(handing.node, handing.process), draft.index.codes(run.process, run.first, 1)[0])


def _outsiders(draft: Draft, handing: Handing) -> list[int]:
    """Processes that are connected where the event stands, and get nothing in it."""
    connected: set[int] = set()
    for event in draft.traces[handing.node][: handing.event.lseq]:
        if isinstance(event, ClientLife):
            connected = connected | {event.process} if event.connected else connected - {event.process}
    return sorted(connected.difference(*(handed.processes for handed in handing.event.handed)))


# Causal messages and joins.


class Beside(NamedTuple):
    """A causal message right before or behind a view for a join or leave, with all that one node says of it."""

    node: NodeId
    message: list[Event]
    view: GroupConf


@FENCES.breaks("group_virtual_synchrony")
def causal_behind_a_join(draft: Draft, rng: Random) -> bool:
    """At one node a causal message that came right before a join or leave comes behind it."""

    def act(target: Beside) -> None:
        _cut_all(draft, target)
        draft.put_after(target.node, target.view, *target.message)

    return strike(rng, [target for target in _causal_beside_views(draft, -1) if _shows(draft, target)], act)


@FENCES.breaks("group_virtual_synchrony")
def causal_before_a_join(draft: Draft, rng: Random) -> bool:
    """At one node a causal message that came right behind a join or leave comes before it."""

    def act(target: Beside) -> None:
        _cut_all(draft, target)
        draft.put_before(target.node, target.view, *target.message)

    return strike(rng, [target for target in _causal_beside_views(draft, 1) if _shows(draft, target)], act)


def _cut_all(draft: Draft, target: Beside) -> None:
    for event in target.message:
        draft.cut(target.node, event)


def _causal_beside_views(draft: Draft, step: int) -> Iterator[Beside]:
    """Before (-1) or behind (1) views that make no difference to processes of the node itself."""
    for life in draft.alive:
        events = draft.traces[life.node]
        for place, view in enumerate(events):
            if isinstance(view, GroupConf) and view.view.id.place != AT_CONFIGURATION:
                changed = (*view.view.joined, *view.view.left)
                message = _causal_at(events, place, step)
                if message and all(process.node != life.node for process in changed):
                    yield Beside(life.node, message, view)


def _causal_at(events: list[Event], place: int, step: int) -> list[Event]:
    """The pieces of a causal run that stands next, and the event that hands it over; nothing if something else comes first."""
    found: list[Event] = []
    at = place + step
    while 0 <= at < len(events) and not isinstance(events[at], GroupConf | Conf | ClientLeft | ClientLife | Sent):
        event = events[at]
        if isinstance(event, Delivery) and event.service is not Service.BASIC:
            if event.service is not Service.CAUSAL or _run_of(found) not in (0, event.lseq):
                break
            found.append(event)
        elif isinstance(event, ClientDelivery):
            if any(isinstance(other, ClientDelivery) for other in found):
                break
            found.append(event)
        at += step
    message = found[::step]
    handing = message[-1] if message else None
    if not isinstance(handing, ClientDelivery) or handing.waited:
        return []
    return message if {lseq for one in handing.handed for lseq in one.runs} == {_run_of(message)} else []


def _run_of(found: list[Event]) -> int:
    return next((event.lseq for event in found if isinstance(event, Delivery)), 0)


def _shows(draft: Draft, target: Beside) -> bool:
    """Did processes of this node and of another go the same way into this view, or out of it, both with the message?"""
    runs = [event for event in target.message if isinstance(event, Delivery)]
    codes = {code for run in runs for code in draft.index.codes(run.process, run.first, run.count)}
    nodes: dict[tuple[GroupViewId, GroupViewId], set[NodeId]] = {}
    for stretch in _shared_stretches(draft):
        way = (stretch.start.view.id, stretch.end.view.id)
        if stretch.group == target.view.view.group and target.view.view.id in way and codes <= stretch.apart:
            nodes.setdefault(way, set()).add(stretch.client.node)
    return any({target.node} < company for company in nodes.values())
