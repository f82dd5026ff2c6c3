"""Events in words, for witnesses: what a node did, at which time, so that a violation can be followed by reading."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from transis.drawing.times import clock
from transis.sim.checkers.verdict import Violation, Witness
from transis.sim.cluster import show_message, show_node, show_view, show_view_id
from transis.trace.events import (
    CheckpointEvent,
    ClientDelivery,
    ClientLeft,
    ClientLife,
    Conf,
    Delivery,
    End,
    Event,
    Fault,
    Gap,
    GroupConf,
    History,
    NoteEvent,
    OfClients,
    Prefix,
    Refuse,
    Sent,
    Submit,
)
from transis.types.ids import MessageId, NodeId, ProcessId


def witness_lines(history: History, violations: Sequence[Violation]) -> Iterator[str]:
    """For the first violation of each property: the sentence, then the events that show it."""
    events = {trace.node: {event.lseq: event for event in trace.events} for trace in history.nodes}
    told: set[str] = set()
    for violation in violations:
        if violation.property not in told:
            told.add(violation.property)
            yield f"{violation.property}: {violation.explanation}"
            yield from (f"    {line}" for line in _events(events, violation.witness))


def _events(events: dict[NodeId, dict[int, Event]], witness: Witness) -> Iterator[str]:
    for node, lseq in witness:
        event = events.get(node, {}).get(lseq)
        if event is not None:
            yield f"{show_node(node)}, event {lseq} at {clock(event.time_us)}: {event_words(node, event)}"


def event_words(node: NodeId, event: Event) -> str:
    match event:
        case Submit() as submit:
            return f"accepted {_run(ProcessId(node, submit.process), submit.first, submit.count)}"
        case Refuse() as refuse:
            return f"refused {_run(ProcessId(node, refuse.process), refuse.first, refuse.count)}: {refuse.why}"
        case Sent() as sent:
            run = _run(ProcessId(node, sent.process), sent.first, sent.count)
            return f"sent {run} ({sent.service.name.lower()}) in {show_view_id(sent.conf)} at place {sent.place.seq}"
        case Delivery() as delivery:
            run = _run(delivery.process, delivery.first, delivery.count)
            where = f"in {show_view_id(delivery.conf)} at place {delivery.place.seq} of {show_view_id(delivery.regular)}"
            return f"delivered {run} ({delivery.service.name.lower()}) {where}"
        case Conf(view=view):
            return f"installed {show_view(view)}: {view.cause}"
        case End(how=how):
            return f"ended: {how}"
        case Fault(what=what):
            return f"suffered: {what}"
        case NoteEvent(what=what):
            return f"noted: {what}"
        case Gap(first_lseq=first, last_lseq=last):
            return f"dropped its events {first} to {last}"
        case Prefix(conf=conf, count=count):
            return f"told the digests of the first {count} messages of {show_view_id(conf)}"
        case _:
            return _client_words(node, event)


def _client_words(node: NodeId, event: OfClients) -> str:
    match event:
        case GroupConf(view=view, processes=processes):
            members = ", ".join(f"{show_node(member.node)}#{member.number}" for member in view.members)
            return f"showed {view.id} of {view.name} {{{members}}} to {_numbers(processes)}: {view.cause}"
        case ClientDelivery(handed=handed, waited=waited):
            runs = [f"events {', '.join(map(str, one.runs))} to {_numbers(one.processes)}" for one in handed]
            late = [f"{_run(one.sender, one.first, one.count)} to {_numbers(one.processes)}" for one in waited]
            return f"handed over {'; '.join(runs + late)}"
        case ClientLeft(process=process, name=name, why=why, refused=refused):
            return f"told #{process} that {'it may not join' if refused else 'it is out of'} {name}: {why}"
        case ClientLife(process=process, connected=connected):
            return f"#{process} {'connected' if connected else 'is gone'}"
        case CheckpointEvent(process=process, name=name, count=count, digest=digest):
            return f"heard that #{process} is in state {digest.hex()} behind {count} messages of {name}"


def _numbers(processes: Sequence[int]) -> str:
    return " ".join(f"#{process}" for process in processes)


def _run(process: ProcessId, first: int, count: int) -> str:
    start = show_message(MessageId(process, first))
    return start if count == 1 else f"{start} to {show_message(MessageId(process, first + count - 1))}"
