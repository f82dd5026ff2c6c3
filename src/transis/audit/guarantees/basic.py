"""Basic messages promise three things: they were sent, they are addressed to you, and they come at most once (design 4)."""

from __future__ import annotations

from transis.audit.guarantees.creation import may_still_be_sent
from transis.audit.guarantees.history import Index, Life
from transis.audit.guarantees.property import Findings
from transis.trace.events import Delivery


def check_basic(index: Index, findings: Findings) -> None:
    for life in index.lives:
        seen: dict[int, int] = {}
        for run in life.basics:
            findings.checked += run.count
            for code in index.codes(run.process, run.first, run.count):
                _once(index, life, run, code, seen, findings)
                if code not in index.origins:
                    _unsent(index, life, run, code, findings)


def _once(index: Index, life: Life, run: Delivery, code: int, seen: dict[int, int], findings: Findings) -> None:
    if seen.setdefault(code, run.lseq) != run.lseq:
        message = index.message(code)
        witness = ((life.node, seen[code]), (life.node, run.lseq))
        findings.broken(f"{life.node} delivered the basic {message} twice", witness, (message,))


def _unsent(index: Index, life: Life, run: Delivery, code: int, findings: Findings) -> None:
    if may_still_be_sent(index, index.life_of(code)):
        findings.pending += 1
        return
    message = index.message(code)
    findings.broken(
        f"{life.node} delivered the basic {message}, but {message.process.node} never sent it",
        ((life.node, run.lseq),),
        (message,),
    )
