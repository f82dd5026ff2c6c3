"""EVS 3: a node delivers its own messages, basic ones apart, in the view it sent them in or the transitional one after it."""

from __future__ import annotations

from transis.audit.guarantees.history import LaidHistory, Obligation, Stay
from transis.audit.guarantees.property import Findings, messages, named


def check_self_delivery(history: LaidHistory, findings: Findings) -> None:
    for life in history.lives:
        for stay in life.stays:
            findings.checked += len(stay.sent_codes)
            missing = set(stay.sent_codes).difference(stay.all.codes)
            if missing:
                _missing(history, stay, sorted(missing), findings)


def _missing(history: LaidHistory, stay: Stay, missing: list[int], findings: Findings) -> None:
    obligation = stay.obligation(history.closed)
    if obligation is Obligation.PENDING:
        findings.pending += len(missing)
    if obligation is not Obligation.DUE:
        return
    witness = [(stay.node, history.origins[missing[0]].sent.lseq)]
    if stay.following is not None:
        witness.append((stay.node, stay.following.conf.lseq))
    left = "the run ended" if stay.following is None else f"it installed {stay.following.ring}"
    findings.broken(
        f"{stay.node} sent {named(history, missing)} in {stay.ring} and had not delivered it when {left}",
        tuple(witness),
        messages(history, missing),
    )
