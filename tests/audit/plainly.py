"""What the measures say, computed plainly from a history: by walking through the events of each node, in the time they have."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from transis.trace.events import Conf, Delivery, End, Fault, History, NodeTrace, NoteEvent, Refuse, Sent, Submit
from transis.trace.reader import read_address
from transis.types.ids import NodeId, ViewId
from transis.types.views import View

SEPARATES = ("crash", "cut", "leave", "partition", "pause")

Message = tuple[object, ...]


class Flow(NamedTuple):
    node: NodeId
    sender: NodeId
    group: int | None
    service: int
    size_up_to: int
    bin_us: int


def size_class(size: float) -> int:
    return next((limit for limit in (64 * 4**power for power in range(8)) if size <= limit), 64 * 4**8)


def flows(history: History, width_us: int) -> dict[Flow, tuple[int, int]]:
    """Messages and bytes that were delivered."""
    messages: Counter[Flow] = Counter()
    sizes: Counter[Flow] = Counter()
    for node, event in delivered(history):
        groups = read_address(event.address).groups if event.address else ()
        for group in groups or (None,):
            size, bin_us = size_class(event.size / event.count), event.time_us // width_us * width_us
            flow = Flow(node, event.process.node, group, event.service.value, size, bin_us)
            messages[flow] += event.count
            sizes[flow] += event.size
    return {flow: (count, sizes[flow]) for flow, count in messages.items()}


def delivered(history: History) -> Iterator[tuple[NodeId, Delivery]]:
    for trace in history.nodes:
        for event in trace.events:
            if isinstance(event, Delivery):
                yield trace.node, event


@dataclass
class Visits:
    """A node's token and queue over its whole life."""

    count: int = 0
    rotations: list[int] = field(default_factory=list)
    backlog_max: int = 0
    notes: Counter[str] = field(default_factory=Counter)
    retransmitted: int = 0


def visits(trace: NodeTrace) -> Visits:
    found = Visits()
    changes: Counter[int] = Counter()
    sent: set[int] = set()
    for event in trace.events:
        match event:
            case Submit(time_us=time_us, count=count):
                changes[time_us] += count
            case Sent(time_us=time_us, count=count):
                changes[time_us] -= count
                sent.add(time_us)
            case Refuse(time_us=time_us, count=count):
                changes[time_us] -= count
            case NoteEvent(what=what, detail=detail):
                found.notes[what] += 1
                found.retransmitted += int(dict(detail)["count"]) if what == "retransmitted" else 0
            case _:
                pass
    backlog, last, owed = 0, None, False
    for time_us in sorted(changes):
        backlog += changes[time_us]
        found.backlog_max = max(found.backlog_max, backlog)
        if time_us in sent:
            found.count += 1
            if last is not None and owed:
                found.rotations.append(time_us - last)
            last, owed = time_us, backlog > 0
    return found


# -- incidents -------------------------------------------------------------------------------------------------------


@dataclass
class Stay:
    node: NodeId
    view: View
    conf_us: int
    before: Stay | None = None
    trans_us: int | None = None
    left_us: int | None = None
    ordered_us: list[int] = field(default_factory=list)
    late: dict[Message, int] = field(default_factory=dict)
    messages: set[Message] = field(default_factory=set)
    faults: list[tuple[int, str]] = field(default_factory=list)
    end: tuple[int, str] | None = None
    """The last event that counts as a sign of life, if this is the last stay."""


def stays(trace: NodeTrace) -> list[Stay]:
    found: list[Stay] = []
    signs = [event.time_us for event in trace.events if isinstance(event, Conf | Delivery)]
    ended = next(((event.time_us, f"{trace.node} {event.how}") for event in trace.events if isinstance(event, End)), None)
    for event in trace.events:
        now = found[-1] if found else None
        match event:
            case Conf(time_us=time_us, view=view) if view.id.is_regular:
                found.append(Stay(trace.node, view, time_us, now))
            case Conf(time_us=time_us) if now is not None and now.trans_us is None:
                now.trans_us = time_us
            case Delivery() if now is not None:
                _deliver(now, event)
            case Fault(time_us=time_us, what=what) if now is not None and what.split()[0] in SEPARATES:
                now.faults.append((time_us, what))
            case NoteEvent(time_us=time_us, what="state", detail=detail) if now is not None:
                if dict(detail)["from"] == "Operational" and now.left_us is None:
                    now.left_us = time_us
            case _:
                pass
    if found:
        found[-1].end = ended or (max(signs), f"the last event of {trace.node}")
    return found


def _deliver(stay: Stay, event: Delivery) -> None:
    message = (event.process, event.first)
    stay.messages.add(message)
    if event.tpos >= 0 and stay.trans_us is None:
        stay.ordered_us.append(event.time_us)
    elif event.tpos >= 0:
        stay.late[message] = event.count


@dataclass(frozen=True)
class Incident:
    old_names: list[str]
    cause: str
    members: list[str]
    lost: list[str]
    joined: list[str]
    began_us: int
    installed_us: int
    detection: tuple[int, str] | None
    blackouts: dict[str, int]
    tail_messages: int


def incidents(history: History) -> dict[ViewId, Incident]:
    rings: dict[ViewId, list[Stay]] = defaultdict(list)
    for trace in history.nodes:
        for stay in stays(trace):
            rings[stay.view.id].append(stay)
    moved = {view: [stay for stay in ring if stay.before is not None] for view, ring in rings.items()}
    return {view: _incident(group, rings) for view, group in moved.items() if group}


def _incident(moved: list[Stay], rings: dict[ViewId, list[Stay]]) -> Incident:
    olds = {stay.before.view.id: stay.before.view for stay in moved if stay.before is not None}
    members = set(moved[0].view.nodes)
    largest = max(olds.values(), key=lambda view: (len(view.members), str(view.id)))
    lost = {node for view in olds.values() for node in view.nodes} - members
    pasts = [stay.before for stay in moved if stay.before is not None]
    began = min(_first(past.left_us, past.trans_us, stay.conf_us) for stay, past in zip(moved, pasts, strict=True))
    trans = min(_first(past.trans_us, stay.conf_us) for stay, past in zip(moved, pasts, strict=True))
    company = [stay for view in olds for stay in rings[view]]
    dark = {
        str(stay.node): min(stay.ordered_us) - max(past.ordered_us)
        for stay, past in zip(moved, pasts, strict=True)
        if stay.ordered_us and past.ordered_us
    }
    return Incident(
        old_names=sorted(map(str, olds)),
        cause=min(str(stay.view.cause) for stay in moved),
        members=sorted(map(str, members)),
        lost=sorted(map(str, lost)),
        joined=sorted(map(str, members - set(largest.nodes))),
        began_us=began,
        installed_us=max(stay.conf_us for stay in moved),
        detection=_detection(company, lost, began, trans) if lost else None,
        blackouts=dark,
        tail_messages=_tail(pasts, rings),
    )


def _first(*times: int | None) -> int:
    return next(time_us for time_us in times if time_us is not None)


def _detection(company: list[Stay], lost: set[NodeId], began: int, trans: int) -> tuple[int, str] | None:
    deaths = [stay.end for stay in company if stay.end is not None and stay.node in lost and stay.end[0] <= trans]
    blows = [fault for stay in company for fault in stay.faults if fault[0] <= began]
    if deaths:
        return trans - min(deaths)[0], min(deaths)[1]
    return (trans - max(blows)[0], max(blows)[1]) if blows else None


def _tail(pasts: list[Stay], rings: dict[ViewId, list[Stay]]) -> int:
    late = {(past.view.id, message): count for past in pasts for message, count in past.late.items()}
    required = {past.view.id: len(past.view.members) for past in pasts}
    return sum(
        count
        for (view, message), count in late.items()
        if len({stay.node for stay in rings[view] if message in stay.messages}) < required[view]
    )
