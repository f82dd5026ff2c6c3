"""EVS 7.1 and 7.2.

EVS 7.1: a safe message that anybody delivers is delivered by every member of that configuration that does not fail.

With the F8 reading: the members of the regular configuration if anybody delivered it there, else the union of the
transitional ones in which it was delivered; each must deliver it in the regular configuration or in whatever
transitional one it installs itself.

EVS 7.2: whoever delivers a safe message in a regular configuration knows that all its members installed it.
"""

from __future__ import annotations

from transis.audit.guarantees.history import LaidHistory, Obligation, Ring, Stay
from transis.audit.guarantees.property import Findings, several
from transis.types.ids import NodeId, Service

# --- safe delivered ---------------------------------------------------------------------------------------------------

Deliverers = dict[int, Stay]
"""A safe message and one stay that delivered it."""


def check_safe_delivered(history: LaidHistory, findings: Findings) -> None:
    for ring in history.rings.values():
        regular, transitional = safe_deliveries(history, ring)
        for node in ring.members:
            _obliged(history, ring, node, regular, findings)
        for members, delivered in transitional.items():
            open_only = {code: stay for code, stay in delivered.items() if code not in regular}
            for node in members:
                _obliged(history, ring, node, open_only, findings)


def safe_deliveries(history: LaidHistory, ring: Ring) -> tuple[Deliverers, dict[tuple[NodeId, ...], Deliverers]]:
    """Safe messages delivered in the regular configuration, and in transitional ones by their members."""
    regular: Deliverers = {}
    transitional: dict[tuple[NodeId, ...], Deliverers] = {}
    for stay in ring.stays:
        here = regular
        for number, run in enumerate(stay.runs):
            if number == stay.run_cut and stay.trans is not None:
                here = transitional.setdefault(stay.trans.view.nodes, {})
            if run.service is Service.SAFE:
                for code in history.codes(run.process, run.first, run.count):
                    here.setdefault(code, stay)
    return regular, transitional


def _obliged(history: LaidHistory, ring: Ring, node: NodeId, delivered: Deliverers, findings: Findings) -> None:
    findings.checked += len(delivered)
    stay = ring.by_node.get(node)
    missing = delivered.keys() if stay is None else delivered.keys() - stay.position.keys()
    if not missing:
        return
    obligation = _obligation(history, ring, node, stay)
    if obligation is Obligation.PENDING:
        findings.pending += len(missing)
    if obligation is Obligation.DUE:
        _tell(history, ring, node, stay, sorted(missing), delivered, findings)


def _obligation(history: LaidHistory, ring: Ring, node: NodeId, stay: Stay | None) -> Obligation:
    if stay is not None:
        return stay.obligation(history.closed)
    life = history.by_node.get(node)
    return Obligation.PENDING if life is None else life.never_came(ring.id, history.closed)


def _tell(
    history: LaidHistory,
    ring: Ring,
    node: NodeId,
    stay: Stay | None,
    missing: list[int],
    delivered: Deliverers,
    findings: Findings,
) -> None:
    by = delivered[missing[0]]
    position = by.position[missing[0]]
    witness = [by.event_at(position)]
    if stay is None:
        what = f"never installed {ring.id}"
    elif stay.following is None:
        what = "had not delivered it when the run ended"
    else:
        what = f"went on to {stay.following.ring} without it"
        witness.append((node, stay.following.conf.lseq))
    safe = several(history.messages(missing))
    findings.broken(
        f"{by.node} delivered the safe {safe} in {by.conf_at(position).view.id}, but its member {node} {what}",
        tuple(witness),
        history.messages(missing),
    )


# --- safe installed ---------------------------------------------------------------------------------------------------


def check_safe_installed(history: LaidHistory, findings: Findings) -> None:
    for ring in history.rings.values():
        for stay in ring.stays:
            position = _first_safe(stay)
            if position is not None:
                _installed(history, ring, stay, position, findings)
                break


def _first_safe(stay: Stay) -> int | None:
    """The position of the first safe message that a stay delivered in the regular configuration."""
    regular = zip(stay.starts[: stay.run_cut], stay.runs, strict=False)
    return next((start for start, run in regular if run.service is Service.SAFE), None)


def _installed(history: LaidHistory, ring: Ring, by: Stay, position: int, findings: Findings) -> None:
    message = history.message(by.codes[position])
    findings.checked += len(ring.members)
    for node in ring.members:
        if node in ring.by_node:
            continue
        life = history.by_node.get(node)
        if life is None or life.never_came(ring.id, history.closed) is Obligation.PENDING:
            findings.pending += 1
            continue
        findings.broken(
            f"{by.node} delivered the safe {message} in {ring.id}, but its member {node} never installed {ring.id}",
            (by.event_at(position),),
            (message,),
        )
