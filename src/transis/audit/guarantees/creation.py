"""No creation; EVS 1.3 delivered where sent.

No creation: what is delivered was sent by the node that its id names.

Pending while the sender's trace is missing, open or has a gap (traces 5): the SEND may still turn up there.

EVS 1.3: a message is delivered only in the configuration it was sent in, or the transitional one after it.

That the SEND also precedes the delivery is part of the partial order (`partial_order.py`).
"""

from __future__ import annotations

from transis.audit.guarantees.history import Index, Life, Line, Ring
from transis.audit.guarantees.property import Findings, Witness

# --- no creation ------------------------------------------------------------------------------------------------------


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


# --- delivered where sent ---------------------------------------------------------------------------------------------


def check_delivered_where_sent(index: Index, findings: Findings) -> None:
    for ring in index.rings.values():
        sent_here: set[int] = set()
        sent_here.update(*(stay.sent_codes for stay in ring.stays))
        for stay in ring.stays:
            findings.checked += len(stay.all.codes)
            if not sent_here.issuperset(stay.all.codes):
                _strangers(index, ring, stay.all, sent_here, findings)
    for life in index.lives:
        for event in life.homeless:
            findings.checked += event.count
            findings.broken(f"{life.node} delivered messages before any configuration", ((life.node, event.lseq),))


def _strangers(index: Index, ring: Ring, line: Line, sent_here: set[int], findings: Findings) -> None:
    for position, code in enumerate(line.codes):
        if code in sent_here:
            continue
        message, origin = index.message(code), index.origins.get(code)
        if origin is None and may_still_be_sent(index, index.life_of(code)):
            findings.pending += 1
            continue
        elsewhere = "no configuration at all"
        witness: Witness = ()
        if origin is not None:
            elsewhere = elsewhere if origin.stay is None else str(origin.stay.ring)
            witness = ((message.process.node, origin.sent.lseq),)
        findings.broken(
            f"{line.node} delivered {message} in {line.conf_at(position).view.id} of ring {ring.id}, "
            f"but it was sent in {elsewhere}",
            (*witness, line.event_at(position)),
            (message,),
        )
