"""EVS 4, virtual synchrony: nodes that go together from one configuration to the next delivered the same set in it.

Checked per configuration, the regular and the transitional one apart (traces 6).
"""

from __future__ import annotations

from transis.audit.guarantees.history import LaidHistory, Ring, Stay
from transis.audit.guarantees.property import Findings, messages, named
from transis.types.ids import NodeId, ViewId

Step = tuple[ViewId, ViewId]
"""From one configuration directly to another."""


def check_failure_atomicity(history: LaidHistory, findings: Findings) -> None:
    for ring in history.rings.values():
        for step, stays in _steps(ring).items():
            first = stays[0]
            for stay in stays[1:]:
                if stay.whole and first.whole:
                    findings.checked += 1
                    _compare(history, step, first, stay, findings)
                else:
                    findings.pending += 1


def _steps(ring: Ring) -> dict[Step, list[Stay]]:
    """Who went where: regular to transitional, and from there (or at once) to the next regular one."""
    steps: dict[Step, list[Stay]] = {}
    for stay in ring.stays:
        here = ring.id
        if stay.trans is not None:
            steps.setdefault((here, stay.trans.view.id), []).append(stay)
            here = stay.trans.view.id
        if stay.following is not None:
            steps.setdefault((here, stay.following.ring), []).append(stay)
    return steps


def _compare(history: LaidHistory, step: Step, left: Stay, right: Stay, findings: Findings) -> None:
    here, there = step
    if here.is_regular:
        mine, other = left.all.regular_codes, right.all.regular_codes
    else:
        mine, other = left.all.transitional_codes, right.all.transitional_codes
    if mine == other:
        return
    for stay, extra, lacking in ((left, set(mine) - set(other), right), (right, set(other) - set(mine), left)):
        if extra:
            position = stay.all.position
            first_first = sorted(extra, key=position.__getitem__)
            findings.broken(
                f"{left.node} and {right.node} went together from {here} to {there}, but in {here} "
                f"only {stay.node} delivered {named(history, first_first)}, {lacking.node} did not",
                (stay.all.event_at(position[first_first[0]]), _departure(lacking, here)),
                messages(history, first_first),
            )


def _departure(stay: Stay, here: ViewId) -> tuple[NodeId, int]:
    if here.is_regular and stay.trans is not None:
        return (stay.node, stay.trans.lseq)
    assert stay.following is not None
    return (stay.node, stay.following.conf.lseq)
