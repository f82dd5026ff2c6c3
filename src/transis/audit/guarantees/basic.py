"""Basic messages promise three things: they were sent, they are addressed to you, and they come at most once (design 4)."""

from __future__ import annotations

from transis.audit.guarantees.creation import may_still_be_sent
from transis.audit.guarantees.history import LaidHistory, Life
from transis.audit.guarantees.property import Findings
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
        findings.broken(f"{life.node} delivered the basic {message} twice", witness, (message,))


def _unsent(history: LaidHistory, life: Life, run: Delivery, code: int, findings: Findings) -> None:
    if may_still_be_sent(history, history.life_of(code)):
        findings.pending += 1
        return
    message = history.message(code)
    findings.broken(
        f"{life.node} delivered the basic {message}, but {message.process.node} never sent it",
        ((life.node, run.lseq),),
        (message,),
    )
