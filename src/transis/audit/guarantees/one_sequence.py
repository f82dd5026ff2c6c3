"""One sequence, true places, EVS 6.3 no holes.

One sequence: who delivers in a regular configuration delivers what everybody does there, position by position (plan A).

It follows from total order without holes, but needs no whole stay: a prohibition, broken at once. So it is what can be said of a
part of a trace, whose beginning is missing, and what digests compare (trace/tape.py).

Places are true: one place per message at every node, one message per place, and delivery follows places.

A place is the engine's own claim about its order (traces 2), which other tools sort by; this holds it against what happened.

EVS 6.3: no unexplained holes. Between two nodes of a ring, whoever delivers the later message delivers the earlier.

If p delivers m before m', and q delivers m' in c' (regular, or transitional), then q delivers m before m', unless m's
sender is no member of c'. In a regular configuration every sender is a member: no holes at all there. In a
transitional one messages of those who are gone may be missing. Different transitional successors of one regular
configuration are held against each other too (F8).
"""

from __future__ import annotations

from transis.audit.guarantees.certificates import sent_places, strictly_increasing
from transis.audit.guarantees.history import PLACE_SHIFT, LaidHistory, Ring, Stay
from transis.audit.guarantees.property import Findings, several

# --- one sequence -----------------------------------------------------------------------------------------------------

Side = tuple[int, list[tuple[Stay, int]]]
"""A message, and who delivered it, by which event."""


def check_one_sequence(history: LaidHistory, findings: Findings) -> None:
    for ring in history.rings.values():
        findings.checked += sum(len(stay.codes) for stay in ring.stays)
        if not _are_prefixes(ring):
            _tell_first_difference(history, ring, findings)


def _are_prefixes(ring: Ring) -> bool:
    """The usual case costs one comparison a stay."""
    longest = max(ring.stays, key=lambda stay: stay.cut)
    return all(
        stay.starts == [run.tpos for run in stay.runs] and stay.codes[: stay.cut] == longest.codes[: stay.cut]
        for stay in ring.stays
    )


def _tell_first_difference(history: LaidHistory, ring: Ring, findings: Findings) -> None:
    positions: dict[int, dict[int, list[tuple[Stay, int]]]] = {}
    for stay in ring.stays:
        for run in stay.runs[: stay.run_cut]:
            for ahead, code in enumerate(history.codes(run.process, run.first, run.count)):
                positions.setdefault(run.tpos + ahead, {}).setdefault(code, []).append((stay, run.lseq))
    differing = min((position for position, codes in positions.items() if len(codes) > 1), default=None)
    if differing is None:
        return
    told = sorted(positions[differing].items(), key=lambda side: (-len(side[1]), str(history.message(side[0]))))
    before = next((str(history.message(code)) for code in positions.get(differing - 1, ())), "")
    sides = "; ".join(_position_text(history, side, _is_majority(side, told)) for side in told)
    findings.broken(
        f"at position {differing} of {ring.id} {sides}; "
        + (f"the last that they have in common is {before}" if before else "nothing before it is known"),
        tuple((stay.node, lseq) for _, delivered in told for stay, lseq in delivered),
        tuple(history.message(code) for code, _ in told),
    )


def _is_majority(side: Side, sides: list[Side]) -> bool:
    return 2 * len(side[1]) > sum(len(delivered) for _, delivered in sides)


def _position_text(history: LaidHistory, side: Side, is_majority: bool) -> str:
    code, delivered = side
    who = several([stay.node for stay, _ in delivered])
    return f"{'the majority, ' if is_majority else ''}{who} delivered {history.message(code)}"


# --- places -----------------------------------------------------------------------------------------------------------


def check_places(history: LaidHistory, findings: Findings) -> None:
    for ring in history.rings.values():
        places = sent_places(ring)
        holder: dict[int, int] = {place: code for code, place in places.items()}
        for stay in ring.stays:
            findings.checked += len(stay.codes)
            if list(map(places.get, stay.codes)) != stay.places:
                _claims(history, ring, stay, places, holder, findings)
            if not strictly_increasing(stay.places):
                _descents(history, stay, findings)


def _claims(
    history: LaidHistory, ring: Ring, stay: Stay, places: dict[int, int], holder: dict[int, int], findings: Findings
) -> None:
    for position, (code, place) in enumerate(zip(stay.codes, stay.places, strict=True)):
        message = history.message(code)
        if places.setdefault(code, place) != place:
            findings.broken(
                f"{stay.node} delivered {message} at place {_place_words(place)} of {ring.id}, "
                f"elsewhere it has {_place_words(places[code])}",
                (stay.event_at(position),),
                (message,),
            )
        elif holder.setdefault(place, code) != code:
            other = history.message(holder[place])
            findings.broken(
                f"{stay.node} delivered {message} at place {_place_words(place)} of {ring.id}, which belongs to {other}",
                (stay.event_at(position),),
                (message, other),
            )


def _descents(history: LaidHistory, stay: Stay, findings: Findings) -> None:
    for position in range(1, len(stay.places)):
        if stay.places[position - 1] > stay.places[position]:
            before, after = history.message(stay.codes[position - 1]), history.message(stay.codes[position])
            findings.broken(
                f"{stay.node} delivered {before} at place {_place_words(stay.places[position - 1])} before {after} "
                f"at place {_place_words(stay.places[position])} of {stay.ring}",
                (stay.event_at(position - 1), stay.event_at(position)),
                (before, after),
            )


def _place_words(place: int) -> str:
    return f"{place >> PLACE_SHIFT}.{place & ((1 << PLACE_SHIFT) - 1)}"


# --- no holes ---------------------------------------------------------------------------------------------------------

NOWHERE = 1 << 62
"""A position that no message has: nothing delivered after."""


def check_no_holes(history: LaidHistory, findings: Findings) -> None:
    for ring in history.rings.values():
        findings.checked += sum(len(stay.codes) for stay in ring.stays)
        findings.pending += sum(1 for stay in ring.stays if not stay.whole)
        _compare_forks(history, ring, findings)


def _compare_forks(history: LaidHistory, ring: Ring, findings: Findings) -> None:
    """Two prefixes of one sequence have no holes; every other pair is compared, equal sequences once."""
    forks = _distinct([stay for stay in ring.forks if stay.whole])
    others = _distinct([stay for stay in ring.stays if stay.whole and stay.agreed == len(stay.codes)])
    for fork in forks:
        for other in others:
            _holes(history, fork, other, findings)
            _holes(history, other, fork, findings)
        for twin in forks:
            if twin is not fork:
                _holes(history, fork, twin, findings)


def _distinct(stays: list[Stay]) -> list[Stay]:
    found: dict[tuple[object, ...], Stay] = {}
    for stay in stays:
        trans = None if stay.trans is None else stay.trans.view.id
        found.setdefault((stay.agreed, stay.cut, trans, *stay.codes[stay.agreed :]), stay)
    return list(found.values())


def _holes(history: LaidHistory, reference: Stay, stay: Stay, findings: Findings) -> None:
    """Walk the reference's tail backwards, knowing the earliest place at which `stay` has anything that follows."""
    members = () if stay.trans is None else stay.trans.view.nodes
    first_regular = first_any = NOWHERE
    for code in reversed(reference.codes[min(reference.agreed, stay.agreed) :]):
        position = stay.position.get(code, NOWHERE)
        bound = first_any if history.sender(code).node in members else first_regular
        if position > bound:
            _tell(history, reference, stay, code, bound, findings)
        if position < stay.cut:
            first_regular = min(first_regular, position)
        first_any = min(first_any, position)


def _tell(history: LaidHistory, reference: Stay, stay: Stay, code: int, bound: int, findings: Findings) -> None:
    if bound == NOWHERE:
        return
    missing, later = history.message(code), history.message(stay.codes[bound])
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
