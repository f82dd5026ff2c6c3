"""EVS 6.3: no unexplained holes. Between two nodes of a ring, whoever delivers the later message delivers the earlier.

If p delivers m before m', and q delivers m' in c' (regular, or transitional), then q delivers m before m', unless m's
sender is no member of c'. In a regular configuration every sender is a member: no holes at all there. In a
transitional one messages of those who are gone may be missing. Different transitional successors of one regular
configuration are held against each other too (F8).
"""

from __future__ import annotations

from transis.sim.checkers.index import Index, Ring, Stay
from transis.sim.checkers.verdict import Findings

NOWHERE = 1 << 62
"""A position that no message has: nothing delivered after."""


def check_no_holes(index: Index, findings: Findings) -> None:
    for ring in index.rings.values():
        findings.checked += sum(len(stay.codes) for stay in ring.stays)
        findings.pending += sum(1 for stay in ring.stays if not stay.whole)
        _compare_forks(index, ring, findings)


def _compare_forks(index: Index, ring: Ring, findings: Findings) -> None:
    """Two prefixes of one sequence have no holes; every other pair is compared, equal sequences once."""
    forks = _distinct([stay for stay in ring.forks if stay.whole])
    others = _distinct([stay for stay in ring.stays if stay.whole and stay.agreed == len(stay.codes)])
    for fork in forks:
        for other in others:
            _holes(index, fork, other, findings)
            _holes(index, other, fork, findings)
        for twin in forks:
            if twin is not fork:
                _holes(index, fork, twin, findings)


def _distinct(stays: list[Stay]) -> list[Stay]:
    found: dict[tuple[object, ...], Stay] = {}
    for stay in stays:
        trans = None if stay.trans is None else stay.trans.view.id
        found.setdefault((stay.agreed, stay.cut, trans, *stay.codes[stay.agreed :]), stay)
    return list(found.values())


def _holes(index: Index, reference: Stay, stay: Stay, findings: Findings) -> None:
    """Walk the reference's tail backwards, knowing the earliest place at which `stay` has anything that follows."""
    members = () if stay.trans is None else stay.trans.view.nodes
    first_regular = first_any = NOWHERE
    for code in reversed(reference.codes[min(reference.agreed, stay.agreed) :]):
        position = stay.position.get(code, NOWHERE)
        bound = first_any if index.sender(code).node in members else first_regular
        if position > bound:
            _tell(index, reference, stay, code, bound, findings)
        if position < stay.cut:
            first_regular = min(first_regular, position)
        first_any = min(first_any, position)


def _tell(index: Index, reference: Stay, stay: Stay, code: int, bound: int, findings: Findings) -> None:
    if bound == NOWHERE:
        return
    missing, later = index.message(code), index.message(stay.codes[bound])
    here = stay.position.get(code)
    how = "not at all" if here is None else "only after it"
    witness = (
        reference.event_at(reference.position[code]),
        reference.event_at(reference.position[stay.codes[bound]]),
        stay.event_at(bound),
    )
    findings.broken(
        f"{reference.node} delivered {missing} before {later}; {stay.node} delivered {later} in "
        f"{stay.conf_at(bound).view.id}, but {missing} {how}",
        witness if here is None else (*witness, stay.event_at(here)),
        (missing, later),
    )
