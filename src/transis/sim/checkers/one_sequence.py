"""One sequence: who delivers in a regular configuration delivers what everybody does there, position by position (plan A).

It follows from total order without holes, but needs no whole stay: a prohibition, broken at once. So it is what can be said of a
part of a trace, whose beginning is missing, and what digests compare (trace/tape.py).
"""

from __future__ import annotations

from transis.sim.checkers.index import Index, Ring, Stay
from transis.sim.checkers.verdict import Findings
from transis.sim.checkers.words import several

Side = tuple[int, list[tuple[Stay, int]]]
"""A message, and who delivered it, by which event."""


def check_one_sequence(index: Index, findings: Findings) -> None:
    for ring in index.rings.values():
        findings.checked += sum(len(stay.codes) for stay in ring.stays)
        if not _are_prefixes(ring):
            _tell_first_difference(index, ring, findings)


def _are_prefixes(ring: Ring) -> bool:
    """The usual case costs one comparison a stay."""
    longest = max(ring.stays, key=lambda stay: stay.cut)
    return all(
        stay.starts == [run.tpos for run in stay.runs] and stay.codes[: stay.cut] == longest.codes[: stay.cut]
        for stay in ring.stays
    )


def _tell_first_difference(index: Index, ring: Ring, findings: Findings) -> None:
    positions: dict[int, dict[int, list[tuple[Stay, int]]]] = {}
    for stay in ring.stays:
        for run in stay.runs[: stay.run_cut]:
            for ahead, code in enumerate(index.codes(run.process, run.first, run.count)):
                positions.setdefault(run.tpos + ahead, {}).setdefault(code, []).append((stay, run.lseq))
    differing = min((position for position, codes in positions.items() if len(codes) > 1), default=None)
    if differing is None:
        return
    told = sorted(positions[differing].items(), key=lambda side: (-len(side[1]), str(index.message(side[0]))))
    before = next((str(index.message(code)) for code in positions.get(differing - 1, ())), "")
    sides = "; ".join(_position_text(index, side, _is_majority(side, told)) for side in told)
    findings.broken(
        f"at position {differing} of {ring.id} {sides}; "
        + (f"the last that they have in common is {before}" if before else "nothing before it is known"),
        tuple((stay.node, lseq) for _, delivered in told for stay, lseq in delivered),
        tuple(index.message(code) for code, _ in told),
    )


def _is_majority(side: Side, sides: list[Side]) -> bool:
    return 2 * len(side[1]) > sum(len(delivered) for _, delivered in sides)


def _position_text(index: Index, side: Side, is_majority: bool) -> str:
    code, delivered = side
    who = several([stay.node for stay, _ in delivered])
    return f"{'the majority, ' if is_majority else ''}{who} delivered {index.message(code)}"
