"""No creation: what is delivered was sent by the node that its id names.

Pending while the sender's trace is missing, open or has a gap (traces 5): the SEND may still turn up there.
"""

from __future__ import annotations

from transis.sim.checkers.index import Index, Life, Line
from transis.sim.checkers.verdict import Findings


def check_no_creation(index: Index, findings: Findings) -> None:
    for ring in index.rings.values():
        for stay in ring.stays:
            findings.checked += len(stay.all.codes)
            if index.origins.keys() >= set(stay.all.codes):
                continue
            for position, code in enumerate(stay.all.codes):
                if code not in index.origins:
                    _unsent(index, stay.all, position, findings)


def _unsent(index: Index, line: Line, position: int, findings: Findings) -> None:
    message = index.message(line.codes[position])
    if may_still_be_sent(index, index.by_node.get(message.process.node)):
        findings.pending += 1
        return
    conf = line.conf_at(position).view.id
    findings.broken(
        f"{line.node} delivered {message} in {conf}, but {message.process.node} never sent it",
        (line.event_at(position),),
        (message,),
    )


def may_still_be_sent(index: Index, sender: Life | None) -> bool:
    """Is the sender's trace too incomplete to say that it did not send?"""
    if sender is None:
        return not index.closed
    if sender.gapped or sender.ended == "unknown":
        return True
    return not (index.closed or sender.ended)
