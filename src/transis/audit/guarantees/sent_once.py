"""What becomes of the messages that a node accepts: EVS 1.4, sent once; and every submit accounted for."""

from __future__ import annotations

from typing import Final

from transis.audit.guarantees.history import LaidHistory, Life, Origin
from transis.audit.guarantees.property import Findings, Property, Reads, breaks, kept, several
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
        witness = ((node, first.sent.lseq), (node, again.sent.lseq))
        findings.violation("twice", witness, (message,), node=node, message=message)


def _in_regular(life: Life, origin: Origin, findings: Findings) -> None:
    stay, sent = origin.stay, origin.sent
    if stay is None:
        findings.violation("outside", ((life.node, sent.lseq),), node=life.node)
    elif stay.trans is not None and stay.trans.lseq < sent.lseq:
        witness = ((life.node, stay.trans.lseq), (life.node, sent.lseq))
        findings.violation("transitional", witness, node=life.node, view=stay.trans.view.id)


SQL_SENT_ONCE: Final = """
    select 'outside' as kind, e.run, e.ring, n.node_name as node, array(e.node) as nodes, array(array(e.node, e.lseq)) as witness
    from {sends} e join {node_names} n on e.node = n.node
    where e.stay_no = 0
    ;
    select 'transitional' as kind, e.run, e.ring, s.node_name as node, s.trans_name as view,
           array(e.node) as nodes, array(s.trans) as views, array(array(e.node, s.trans_lseq), array(e.node, e.lseq)) as witness
    from {sends} e join {stays} s on e.node = s.node and e.stay_no = s.stay_no
    where e.phase = 1
    ;
    with sent as (
        select *, first(lseq) over same as first_lseq from {unaccounted} where kind = 'sends'
        window same as (partition by node, process, counter order by lseq)
    )
    select 'twice' as kind, e.run, n.node_name as node, concat(p.process_name, ':', e.counter) as message,
           array(e.node) as nodes, array(array(e.process, e.counter)) as messages,
           array(array(e.node, e.first_lseq), array(e.node, e.lseq)) as witness, e.counter as position
    from sent e join {node_names} n on e.node = n.node join {process_names} p on e.process = p.process
    where e.lseq <> e.first_lseq
"""

SENT_ONCE: Final = Property(
    name="sent_once_1_4",
    meaning="a message is sent once, in one view",
    paper="EVS94, Specification 1.4, first half",
    predicate="A message is sent at most once, by one process, in a regular configuration. That one process sends it is part of "
    "its id.",
    broken={
        "outside": "{node} sent messages before it installed any configuration",
        "transitional": "{node} sent messages while the transitional configuration {view} was in force",
        "twice": "{node} sent {message} twice",
    },
    reads=Reads.VIEWS,
    check=check_sent_once,
    sql=SQL_SENT_ONCE,
    counts="select run, ring, count as checked from {sends}",
    examples=(
        kept("a: R4{a} s1 d1"),
        breaks("a: R4{a} s1 o1 d1", "a/1 sent a/1#0:1 twice"),
        breaks("a: R4{a} s1 d1 T6{a} R8{a} o1", "a/1 sent a/1#0:1 twice"),
        breaks("a: R4{a} T6{a} s1 d1 R8{a}", "a/1 sent messages while the transitional configuration T6@a/1 was in force"),
        breaks("a: s1 R4{a}", "a/1 sent messages before it installed any configuration"),
    ),
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
        f"{life.node} neither sent nor refused {several(history.messages(ordered))}, which it had accepted",
        ((life.node, submitted[ordered[0]]),),
        history.messages(ordered),
    )
