"""EVS 3: a node delivers its own messages, basic ones apart, in the view it sent them in or the transitional one after it."""

from __future__ import annotations

from transis.audit.guarantees.history import Duty, Index, Stay
from transis.audit.guarantees.property import Findings, messages, named


def check_self_delivery(index: Index, findings: Findings) -> None:
    for life in index.lives:
        for stay in life.stays:
            findings.checked += len(stay.sent_codes)
            missing = set(stay.sent_codes).difference(stay.all.codes)
            if missing:
                _missing(index, stay, sorted(missing), findings)


def _missing(index: Index, stay: Stay, missing: list[int], findings: Findings) -> None:
    duty = stay.duty(index.closed)
    if duty is Duty.PENDING:
        findings.pending += len(missing)
    if duty is not Duty.DUE:
        return
    witness = [(stay.node, index.origins[missing[0]].sent.lseq)]
    if stay.following is not None:
        witness.append((stay.node, stay.following.conf.lseq))
    left = "the run ended" if stay.following is None else f"it installed {stay.following.ring}"
    findings.broken(
        f"{stay.node} sent {named(index, missing)} in {stay.ring} and had not delivered it when {left}",
        tuple(witness),
        messages(index, missing),
    )
