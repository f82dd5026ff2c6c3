"""Every SUBMIT is sent or refused, exactly once, and nothing else is: nobody's message is lost in a queue.

Counters are dense from 1 in every process. For a node that ended the rest is void: it took its queue with it.
"""

from __future__ import annotations

from transis.sim.checkers.index import Index, Life
from transis.sim.checkers.verdict import Findings
from transis.sim.checkers.words import messages, named
from transis.types.ids import ProcessId


def check_submits(index: Index, findings: Findings) -> None:
    for life in index.lives:
        submitted = _submitted(index, life, findings)
        refused = _refused(index, life, findings)
        sent = {
            code
            for origin in life.origins
            for code in index.codes(ProcessId(life.node, origin.sent.process), origin.sent.first, origin.sent.count)
        }
        findings.checked += len(submitted)
        _never(index, life, sent & refused.keys(), "both sent and refused", findings)
        if not life.gapped:
            _never(index, life, sent - submitted.keys(), "sent but never submitted", findings)
            _never(index, life, refused.keys() - submitted.keys(), "refused but never submitted", findings)
        _unaccounted(index, life, submitted.keys() - sent - refused.keys(), submitted, findings)


def _submitted(index: Index, life: Life, findings: Findings) -> dict[int, int]:
    """Codes of submitted messages with the event of each; says where counters were not dense."""
    found: dict[int, int] = {}
    following: dict[int, int] = {}
    for event in life.submits:
        expected = following.get(event.process, 1)
        process = ProcessId(life.node, event.process)
        if event.first != expected and not life.gapped:
            findings.broken(f"{process} was given counter {event.first} where {expected} was next", ((life.node, event.lseq),))
        following[event.process] = event.first + event.count
        found.update(dict.fromkeys(index.codes(process, event.first, event.count), event.lseq))
    return found


def _refused(index: Index, life: Life, findings: Findings) -> dict[int, int]:
    found: dict[int, int] = {}
    for event in life.refusals:
        for code in index.codes(ProcessId(life.node, event.process), event.first, event.count):
            if found.setdefault(code, event.lseq) != event.lseq:
                message = index.message(code)
                witness = ((life.node, found[code]), (life.node, event.lseq))
                findings.broken(f"{life.node} refused {message} twice", witness, (message,))
    return found


def _never(index: Index, life: Life, codes: set[int], what: str, findings: Findings) -> None:
    for code in sorted(codes):
        origin = index.origins.get(code)
        witness = () if origin is None else ((life.node, origin.sent.lseq),)
        findings.broken(f"{index.message(code)} was {what}", witness, (index.message(code),))


def _unaccounted(index: Index, life: Life, codes: set[int], submitted: dict[int, int], findings: Findings) -> None:
    if not codes or life.ended in ("failed", "stopped"):
        return
    if life.gapped or life.ended or not index.closed:
        findings.pending += len(codes)
        return
    ordered = sorted(codes)
    findings.broken(
        f"{life.node} neither sent nor refused {named(index, ordered)}, which it had accepted",
        ((life.node, submitted[ordered[0]]),),
        messages(index, ordered),
    )
