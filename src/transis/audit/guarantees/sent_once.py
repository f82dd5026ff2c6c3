"""EVS 1.4 sent once; every submit accounted.

EVS 1.4, first half: every message is sent once, by one process, in a regular configuration.

That one process sends it is part of its id; the second half, delivered at most once, is `no_duplicates.py`.

Every SUBMIT is sent or refused, exactly once, and nothing else is: nobody's message is lost in a queue.

Counters are dense from 1 in every process. For a node that ended the rest is void: it took its queue with it.
"""

from __future__ import annotations

from transis.audit.guarantees.history import LaidHistory, Life, Origin
from transis.audit.guarantees.property import Findings, messages, named
from transis.types.ids import ProcessId

# --- sent once --------------------------------------------------------------------------------------------------------


def check_sent_once(history: LaidHistory, findings: Findings) -> None:
    for life in history.lives:
        findings.checked += sum(origin.sent.count for origin in life.origins)
        for origin in life.origins:
            _in_regular(life, origin, findings)
    for code, again in history.sent_again:
        message = history.message(code)
        node = message.process.node
        first = history.origins[code]
        findings.broken(f"{node} sent {message} twice", ((node, first.sent.lseq), (node, again.sent.lseq)), (message,))


def _in_regular(life: Life, origin: Origin, findings: Findings) -> None:
    stay, sent = origin.stay, origin.sent
    if stay is None:
        findings.broken(f"{life.node} sent messages before it installed any configuration", ((life.node, sent.lseq),))
    elif stay.trans is not None and stay.trans.lseq < sent.lseq:
        findings.broken(
            f"{life.node} sent messages while the transitional configuration {stay.trans.view.id} was in force",
            ((life.node, stay.trans.lseq), (life.node, sent.lseq)),
        )


# --- submits ----------------------------------------------------------------------------------------------------------


def check_submits(history: LaidHistory, findings: Findings) -> None:
    for life in history.lives:
        submitted = _submitted(history, life, findings)
        refused = _refused(history, life, findings)
        sent = {
            code
            for origin in life.origins
            for code in history.codes(ProcessId(life.node, origin.sent.process), origin.sent.first, origin.sent.count)
        }
        findings.checked += len(submitted)
        _never(history, life, sent & refused.keys(), "both sent and refused", findings)
        if not life.gapped:
            _never(history, life, sent - submitted.keys(), "sent but never submitted", findings)
            _never(history, life, refused.keys() - submitted.keys(), "refused but never submitted", findings)
        _unaccounted(history, life, submitted.keys() - sent - refused.keys(), submitted, findings)


def _submitted(history: LaidHistory, life: Life, findings: Findings) -> dict[int, int]:
    """Codes of submitted messages with the event of each; says where counters were not dense."""
    found: dict[int, int] = {}
    following: dict[int, int] = {}
    for event in life.submits:
        expected = following.get(event.process, 1)
        process = ProcessId(life.node, event.process)
        if event.first != expected and not life.gapped:
            findings.broken(f"{process} was given counter {event.first} where {expected} was next", ((life.node, event.lseq),))
        following[event.process] = event.first + event.count
        found.update(dict.fromkeys(history.codes(process, event.first, event.count), event.lseq))
    return found


def _refused(history: LaidHistory, life: Life, findings: Findings) -> dict[int, int]:
    found: dict[int, int] = {}
    for event in life.refusals:
        for code in history.codes(ProcessId(life.node, event.process), event.first, event.count):
            if found.setdefault(code, event.lseq) != event.lseq:
                message = history.message(code)
                witness = ((life.node, found[code]), (life.node, event.lseq))
                findings.broken(f"{life.node} refused {message} twice", witness, (message,))
    return found


def _never(history: LaidHistory, life: Life, codes: set[int], what: str, findings: Findings) -> None:
    for code in sorted(codes):
        origin = history.origins.get(code)
        witness = () if origin is None else ((life.node, origin.sent.lseq),)
        findings.broken(f"{history.message(code)} was {what}", witness, (history.message(code),))


def _unaccounted(history: LaidHistory, life: Life, codes: set[int], submitted: dict[int, int], findings: Findings) -> None:
    if not codes or life.ended in ("failed", "stopped"):
        return
    if life.gapped or life.ended or not history.closed:
        findings.pending += len(codes)
        return
    ordered = sorted(codes)
    findings.broken(
        f"{life.node} neither sent nor refused {named(history, ordered)}, which it had accepted",
        ((life.node, submitted[ordered[0]]),),
        messages(history, ordered),
    )
