"""EVS 1.4, first half: every message is sent once, by one process, in a regular configuration.

That one process sends it is part of its id; the second half, delivered at most once, is `no_duplicates.py`.
"""

from __future__ import annotations

from transis.sim.checkers.index import Index, Life, Origin
from transis.sim.checkers.verdict import Findings


def check_sent_once(index: Index, findings: Findings) -> None:
    for life in index.lives:
        findings.checked += sum(origin.sent.count for origin in life.origins)
        for origin in life.origins:
            _in_regular(life, origin, findings)
    for code, again in index.sent_again:
        message = index.message(code)
        node = message.process.node
        first = index.origins[code]
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
