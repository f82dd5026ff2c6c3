"""EVS 7.2: whoever delivers a safe message in a regular configuration knows that all its members installed it."""

from __future__ import annotations

from transis.sim.checkers.index import Duty, Index, Ring, Stay
from transis.sim.checkers.verdict import Findings
from transis.types.ids import Service


def check_safe_installed(index: Index, findings: Findings) -> None:
    for ring in index.rings.values():
        for stay in ring.stays:
            position = _first_safe(stay)
            if position is not None:
                _installed(index, ring, stay, position, findings)
                break


def _first_safe(stay: Stay) -> int | None:
    """The position of the first safe message that a stay delivered in the regular configuration."""
    regular = zip(stay.starts[: stay.run_cut], stay.runs, strict=False)
    return next((start for start, run in regular if run.service is Service.SAFE), None)


def _installed(index: Index, ring: Ring, by: Stay, position: int, findings: Findings) -> None:
    message = index.message(by.codes[position])
    findings.checked += len(ring.members)
    for node in ring.members:
        if node in ring.by_node:
            continue
        life = index.by_node.get(node)
        if life is None or life.never_came(ring.id, index.closed) is Duty.PENDING:
            findings.pending += 1
            continue
        findings.broken(
            f"{by.node} delivered the safe {message} in {ring.id}, but its member {node} never installed {ring.id}",
            (by.event_at(position),),
            (message,),
        )
