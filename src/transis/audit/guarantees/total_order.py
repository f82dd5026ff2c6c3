"""EVS 1.1, 2.3, 2.4, 6.1, 6.2: no cycle.

EVS 6.1 and 6.2: one total order over all deliveries and configuration changes of all nodes, of the whole history.

The graph merges all deliveries of an ordered message and all installations of a configuration; causal messages that are not
in the order stand in it at each node apart, for the order extends what precedes what. A cycle of any length is a
violation, pairs are not enough (TOCS95, footnote to the total order). See `certificate.py` for the usual, linear way.

EVS 1.1, 1.2, 2.3, 2.4: events are partially ordered, and a configuration change is one moment for all its members.

The graph merges the installations of a configuration but not deliveries. The certificates of the orders prove this
too; where they fail, the larger graph decides.
"""

from __future__ import annotations

from transis.audit.guarantees.certificates import EventGraph, Vertex, certified, graph_of, joined
from transis.audit.guarantees.history import LaidHistory, Life
from transis.audit.guarantees.property import Findings
from transis.trace.events import Conf, Delivery, Event, Sent
from transis.types.ids import MessageId, ProcessId, Service

# --- total order ------------------------------------------------------------------------------------------------------


def check_total_order(history: LaidHistory, findings: Findings) -> None:
    findings.checked += sum(len(stay.codes) for life in history.lives for stay in life.stays)
    findings.checked += sum(len(life.confs) for life in history.lives)
    if not certified(history):
        tell_cycle(history, build(history, merged=True), "cannot be put into one total order", findings)


def build(history: LaidHistory, merged: bool) -> EventGraph:
    """The graph of protocols 2.2, with deliveries of one message merged (6.1) or apart (1.1)."""
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


def tell_cycle(history: LaidHistory, graph: EventGraph, what: str, findings: Findings) -> None:
    steps = joined(graph.shortest_cycle())
    if not steps:
        return
    told, witness, messages = [], [], []
    for source, target, life in steps:
        if not isinstance(life, Life):
            told.append(f"{_words(history, source)} before {_words(history, target)} anywhere")
        else:
            told.append(f"{life.node} {_words(history, source)} before it {_words(history, target)}")
            witness += [(life.node, graph.lseq[life, source]), (life.node, graph.lseq[life, target])]
        messages += [history.message(vertex[1]) for vertex in (source, target) if vertex[0] != "install"]
    ids: tuple[MessageId, ...] = tuple(dict.fromkeys(messages))
    findings.broken(f"these {what}: {'; '.join(told)}", tuple(dict.fromkeys(witness)), ids)


def _words(history: LaidHistory, vertex: Vertex) -> str:
    if vertex[0] == "install":
        return f"installed {vertex[1]}"
    return f"{'sent' if vertex[0] == 'send' else 'delivered'} {history.message(vertex[1])}"


# --- partial order ----------------------------------------------------------------------------------------------------


def check_partial_order(history: LaidHistory, findings: Findings) -> None:
    findings.checked += sum(len(stay.all.codes) + len(stay.origins) for life in history.lives for stay in life.stays)
    findings.checked += sum(len(life.confs) for life in history.lives)
    if not certified(history):
        tell_cycle(history, build(history, merged=False), "precede each other in a circle", findings)
