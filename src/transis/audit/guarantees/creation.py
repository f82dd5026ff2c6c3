"""No creation; EVS 1.3 delivered where sent.

No creation: what is delivered was sent by the node that its id names.

Pending while the sender's trace is missing, open or has a gap (traces 5): the SEND may still turn up there.

EVS 1.3: a message is delivered only in the configuration it was sent in, or the transitional one after it.

That the SEND also precedes the delivery is part of the partial order (`partial_order.py`).
"""

from __future__ import annotations

from transis.audit.guarantees.history import Deliveries, LaidHistory, Life, Ring
from transis.audit.guarantees.property import Findings, Witness

# --- no creation ------------------------------------------------------------------------------------------------------


def check_no_creation(history: LaidHistory, findings: Findings) -> None:
    for ring in history.rings.values():
        for stay in ring.stays:
            findings.checked += len(stay.all.codes)
            if history.origins.keys() >= set(stay.all.codes):
                continue
            for position, code in enumerate(stay.all.codes):
                if code not in history.origins:
                    _unsent(history, stay.all, position, findings)


def _unsent(history: LaidHistory, delivered: Deliveries, position: int, findings: Findings) -> None:
    message = history.message(delivered.codes[position])
    if may_still_be_sent(history, history.by_node.get(message.process.node)):
        findings.pending += 1
        return
    conf = delivered.conf_at(position).view.id
    findings.broken(
        f"{delivered.node} delivered {message} in {conf}, but {message.process.node} never sent it",
        (delivered.event_at(position),),
        (message,),
    )


def may_still_be_sent(history: LaidHistory, sender: Life | None) -> bool:
    """Is the sender's trace too incomplete to say that it did not send?"""
    if sender is None:
        return not history.closed
    if sender.gapped or sender.ended == "unknown":
        return True
    return not (history.closed or sender.ended)


# --- delivered where sent ---------------------------------------------------------------------------------------------


def check_delivered_where_sent(history: LaidHistory, findings: Findings) -> None:
    for ring in history.rings.values():
        sent_here: set[int] = set()
        sent_here.update(*(stay.sent_codes for stay in ring.stays))
        for stay in ring.stays:
            findings.checked += len(stay.all.codes)
            if not sent_here.issuperset(stay.all.codes):
                _strangers(history, ring, stay.all, sent_here, findings)
    for life in history.lives:
        for event in life.homeless:
            findings.checked += event.count
            findings.broken(f"{life.node} delivered messages before any configuration", ((life.node, event.lseq),))


def _strangers(history: LaidHistory, ring: Ring, delivered: Deliveries, sent_here: set[int], findings: Findings) -> None:
    for position, code in enumerate(delivered.codes):
        if code in sent_here:
            continue
        message, origin = history.message(code), history.origins.get(code)
        if origin is None and may_still_be_sent(history, history.life_of(code)):
            findings.pending += 1
            continue
        elsewhere = "no configuration at all"
        witness: Witness = ()
        if origin is not None:
            elsewhere = elsewhere if origin.stay is None else str(origin.stay.ring)
            witness = ((message.process.node, origin.sent.lseq),)
        findings.broken(
            f"{delivered.node} delivered {message} in {delivered.conf_at(position).view.id} of ring {ring.id}, "
            f"but it was sent in {elsewhere}",
            (*witness, delivered.event_at(position)),
            (message,),
        )
