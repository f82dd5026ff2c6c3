"""One order of all events, with no cycle of any length: EVS 1.1, 1.2, 2.3 and 2.4, 6.1 and 6.2.

In 6.1 and 6.2 the deliveries of a message are one event, in the others they are several.
"""

from __future__ import annotations

from typing import Final

from transis.audit.guarantees.certificates import EventGraph, Vertex, certified, graph_of, joined
from transis.audit.guarantees.history import LaidHistory, Life
from transis.audit.guarantees.property import MODES, ORDERED, RELIABLE, Findings, Property, Reads, breaks, kept
from transis.trace.events import Conf, Delivery, Event, Sent
from transis.types.ids import MessageId, ProcessId, Service


def check_total_order(history: LaidHistory, findings: Findings) -> None:
    findings.checked += sum(len(stay.codes) for life in history.lives for stay in life.stays)
    findings.checked += sum(len(life.confs) for life in history.lives)
    if not certified(history):
        _tell_cycle(history, build(history, merged=True), findings)


def check_partial_order(history: LaidHistory, findings: Findings) -> None:
    findings.checked += sum(len(stay.all.codes) + len(stay.origins) for life in history.lives for stay in life.stays)
    findings.checked += sum(len(life.confs) for life in history.lives)
    if not certified(history):
        _tell_cycle(history, build(history, merged=False), findings)


def build(history: LaidHistory, merged: bool) -> EventGraph:
    """The graph of events, with deliveries of one ordered message merged (6.1) or apart (1.1)."""
    lives = (
        (life, [(vertex, event.lseq) for event in life.events for vertex in _vertices(history, life, event, merged)])
        for life in history.lives
    )
    return graph_of(lives, history.origins)


def _vertices(history: LaidHistory, life: Life, event: Event, merged: bool) -> list[Vertex]:
    match event:
        case Conf(view=view):
            return [("install", view.id)]
        case Delivery() if event.service is not Service.BASIC:
            codes = history.codes(event.process, event.first, event.count)
            one_for_all = merged and event.service in history.ordered
            return [("deliver", code) if one_for_all else ("deliver", code, life.node) for code in codes]
        case Sent() if event.service is not Service.BASIC:
            return [("send", code) for code in history.codes(ProcessId(life.node, event.process), event.first, event.count)]
        case _:
            return []


def _tell_cycle(history: LaidHistory, graph: EventGraph, findings: Findings) -> None:
    steps = joined(graph.shortest_cycle())
    if not steps:
        return
    sentences, witness, messages = [], [], []
    for source, target, life in steps:
        if not isinstance(life, Life):
            sentences.append(f"{_words(history, source)} before {_words(history, target)} anywhere")
        else:
            sentences.append(f"{life.node} {_words(history, source)} before it {_words(history, target)}")
            witness += [(life.node, graph.lseq[life, source]), (life.node, graph.lseq[life, target])]
        messages += [history.message(vertex[1]) for vertex in (source, target) if vertex[0] != "install"]
    ids: tuple[MessageId, ...] = tuple(dict.fromkeys(messages))
    findings.violation("circle", tuple(dict.fromkeys(witness)), ids, steps="; ".join(sentences))


def _words(history: LaidHistory, vertex: Vertex) -> str:
    if vertex[0] == "install":
        return f"installed {vertex[1]}"
    return f"{'sent' if vertex[0] == 'send' else 'delivered'} {history.message(vertex[1])}"


CONFS: Final = "\n;\nselect run, 1 as checked from {confs}"

PARTIAL_ORDER: Final = Property(
    name="partial_order_1_1",
    meaning="what happened before stays before, everywhere",
    paper="EVS94, Specifications 1.1, 1.2, 2.3, 2.4",
    predicate="Events are partially ordered: by what each node did before what, by sending before delivering, and with the "
    "installation of a configuration as one moment for all its members. No event precedes itself.",
    broken={"circle": "these steps form a cycle: {steps}"},
    reads=Reads.ORDER,
    check=check_partial_order,
    sql="select run, steps, nodes, views, messages, witness from {cycles} where not merged",
    counts=RELIABLE + CONFS + "\n;\nselect run, ring, count as checked from {sends} where stay_no > 0",
    examples=(
        kept("a: R4{a,b} s1 d1 / b: R4{a,b} d1 s2 d2"),
        breaks(
            "a: u1 d1 R4{a} o1",
            "these steps form a cycle: a/1 delivered a/1#0:1 before it sent a/1#0:1; "
            "sent a/1#0:1 before delivered a/1#0:1 anywhere",
        ),
        breaks(
            "a: R4{a,b} T6{a,b} R8{a,b} s1 / b: R4{a,b} d1 T6{a,b} R8{a,b}",
            "these steps form a cycle: a/1 installed T6@a/1 before it sent a/1#0:1; "
            "sent a/1#0:1 before delivered a/1#0:1 anywhere; b/1 delivered a/1#0:1 before it installed T6@a/1",
        ),
    ),
)

TOTAL_ORDER: Final = Property(
    name="total_order_6_1",
    meaning="any two nodes deliver in the same order",
    paper="EVS94, Specifications 6.1, 6.2",
    predicate="There is one total order of all deliveries and all configuration changes of all nodes, of the whole history and "
    "across partitions, in which the deliveries of a message are one event, and the installations of a configuration are one. "
    "A cycle of any length breaks it. Causal messages that an engine keeps out of its order stand in it at each node apart.",
    broken={"circle": "these cannot be put into one total order: {steps}"},
    promised_in=frozenset(MODES) - {"toto"},
    reads=Reads.ORDER,
    check=check_total_order,
    sql="select run, steps, nodes, views, messages, witness from {cycles} where merged",
    counts=ORDERED + CONFS,
    examples=(
        kept("a: R4{a,b} s1 d1 d2 / b: R4{a,b} s2 d1 d2"),
        breaks(
            "a: R4{a,b} s1 s2 d1 d2 / b: R4{a,b} d2 d1",
            "these cannot be put into one total order: a/1 delivered a/1#0:1 before it delivered a/1#0:2; "
            "b/1 delivered a/1#0:2 before it delivered a/1#0:1",
        ),
        breaks(
            "a: R4{a,b} s1 d1 T6{a,b} R8{a,b} / b: R4{a,b} T6{a,b} R8{a,b} d1",
            "these cannot be put into one total order: a/1 delivered a/1#0:1 before it installed R8@a/1; "
            "b/1 installed R8@a/1 before it delivered a/1#0:1",
        ),
        kept("a: R4{a,b} s1~ d1 d2 / b: R4{a,b} s2~ d2 d1", engine="lansis"),
    ),
)
