"""EVS 7.2: whoever delivers a safe message in a regular configuration knows that all its members installed it."""

from __future__ import annotations

from transis.sim.checkers.index import Duty, Index, Ring
from transis.sim.checkers.safe_delivered import Deliverers, safe_deliveries
from transis.sim.checkers.verdict import Findings


def check(index: Index, findings: Findings) -> None:
    for ring in index.rings.values():
        delivered, _ = safe_deliveries(index, ring)
        if delivered:
            _installed(index, ring, delivered, findings)


def _installed(index: Index, ring: Ring, delivered: Deliverers, findings: Findings) -> None:
    came = {stay.node for stay in ring.stays}
    code, by = next(iter(delivered.items()))
    findings.checked += len(ring.members)
    for node in ring.members:
        if node in came:
            continue
        life = index.by_node.get(node)
        if life is None or life.never_came(ring.id, index.closed) is Duty.PENDING:
            findings.pending += 1
            continue
        findings.broken(
            f"{by.node} delivered the safe {index.message(code)} in {ring.id}, but its member {node} never installed {ring.id}",
            (by.event_at(by.position[code]),),
            (index.message(code),),
        )
