"""Basic messages, which promise least."""

from __future__ import annotations

from typing import Final

from transis.audit.guarantees.creation import may_still_be_sent
from transis.audit.guarantees.history import LaidHistory, Life
from transis.audit.guarantees.property import Findings, Property, Reads, breaks, kept, left_open
from transis.trace.events import Delivery


def check_basic(history: LaidHistory, findings: Findings) -> None:
    for life in history.lives:
        seen: dict[int, int] = {}
        for run in life.basics:
            findings.checked += run.count
            for code in history.codes(run.process, run.first, run.count):
                _once(history, life, run, code, seen, findings)
                if code not in history.origins:
                    _unsent(history, life, run, code, findings)


def _once(history: LaidHistory, life: Life, run: Delivery, code: int, seen: dict[int, int], findings: Findings) -> None:
    if seen.setdefault(code, run.lseq) != run.lseq:
        message = history.message(code)
        witness = ((life.node, seen[code]), (life.node, run.lseq))
        findings.violation("twice", witness, (message,), node=life.node, message=message)


def _unsent(history: LaidHistory, life: Life, run: Delivery, code: int, findings: Findings) -> None:
    if may_still_be_sent(history, history.life_of(code)):
        findings.pending += 1
        return
    message = history.message(code)
    witness = ((life.node, run.lseq),)
    findings.violation("from nowhere", witness, (message,), node=life.node, message=message, sender=message.process.node)


BASIC: Final = Property(
    name="basic",
    meaning="basic messages: sent, and at most once",
    predicate="A basic message that a node delivers was sent by the node that its id names, and the node delivers it at most "
    "once. The only other promise is that it is addressed to its receiver.",
    broken={
        "twice": "{node} delivered the basic {message} twice",
        "from nowhere": "{node} delivered the basic {message}, but {sender} never sent it",
    },
    reads=Reads.VIEWS,
    check=check_basic,
    sql="""
        select 'twice' as kind, b.run, n.node_name as node, concat(p.process_name, ':', b.counter) as message,
               array(b.node) as nodes, array(array(b.process, b.counter)) as messages,
               array(array(b.node, b.first_lseq), array(b.node, b.lseq)) as witness, b.counter as position
        from {basics_repeated} b join {node_names} n on b.node = n.node join {process_names} p on b.process = p.process
        ;
        select 'from nowhere' as kind, b.run, n.node_name as node, concat(p.process_name, ':', b.counter) as message,
               s.sender_name as sender, array(b.node, s.sender) as nodes, array(array(b.process, b.counter)) as messages,
               array(array(b.node, b.lseq)) as witness, b.counter as position
        from {basics_from_nowhere} b join {node_names} n on b.node = n.node join {process_names} p on b.process = p.process
        join {senders} s on p.node = s.sender
    """,
    counts="""
        select run, count as checked, 0 as pending from {deliveries} where service = 0
        union all
        select run, 0, delivered * (stop - start) from {basics_unsent} where may_still_be_sent
    """,
    examples=(
        kept("a: R4{a,b} s1? s2? s3? d2 d3 d1 / b: R4{a,b} d3"),
        breaks("a: R4{a} s1? d1 d1", "a/1 delivered the basic a/1#0:1 twice"),
        breaks("a: R4{a} s1? d1 T6{a} R8{a} d1", "a/1 delivered the basic a/1#0:1 twice"),
        breaks("a: R4{a} u1? d1", "a/1 delivered the basic a/1#0:1, but a/1 never sent it"),
        left_open("a: R4{a} u1? d1"),
        left_open("a: R4{a,b} d1 / b: u1? R4{a,b} g", closed=True),
    ),
)
