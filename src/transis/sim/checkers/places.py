"""Places are true: one place per message at every node, one message per place, and delivery follows places.

A place is the engine's own claim about its order (traces 2), which other tools sort by; this holds it against what happened.
"""

from __future__ import annotations

from transis.sim.checkers.certificate import sent_places, strictly_increasing
from transis.sim.checkers.index import PLACE_SHIFT, Index, Ring, Stay
from transis.sim.checkers.verdict import Findings


def check_places(index: Index, findings: Findings) -> None:
    for ring in index.rings.values():
        places = sent_places(ring)
        holder: dict[int, int] = {place: code for code, place in places.items()}
        for stay in ring.stays:
            findings.checked += len(stay.codes)
            if list(map(places.get, stay.codes)) != stay.places:
                _claims(index, ring, stay, places, holder, findings)
            if not strictly_increasing(stay.places):
                _descents(index, stay, findings)


def _claims(index: Index, ring: Ring, stay: Stay, places: dict[int, int], holder: dict[int, int], findings: Findings) -> None:
    for position, (code, place) in enumerate(zip(stay.codes, stay.places, strict=True)):
        message = index.message(code)
        if places.setdefault(code, place) != place:
            findings.broken(
                f"{stay.node} delivered {message} at place {_place_words(place)} of {ring.id}, "
                f"elsewhere it has {_place_words(places[code])}",
                (stay.event_at(position),),
                (message,),
            )
        elif holder.setdefault(place, code) != code:
            other = index.message(holder[place])
            findings.broken(
                f"{stay.node} delivered {message} at place {_place_words(place)} of {ring.id}, which belongs to {other}",
                (stay.event_at(position),),
                (message, other),
            )


def _descents(index: Index, stay: Stay, findings: Findings) -> None:
    for position in range(1, len(stay.places)):
        if stay.places[position - 1] > stay.places[position]:
            before, after = index.message(stay.codes[position - 1]), index.message(stay.codes[position])
            findings.broken(
                f"{stay.node} delivered {before} at place {_place_words(stay.places[position - 1])} before {after} "
                f"at place {_place_words(stay.places[position])} of {stay.ring}",
                (stay.event_at(position - 1), stay.event_at(position)),
                (before, after),
            )


def _place_words(place: int) -> str:
    return f"{place >> PLACE_SHIFT}.{place & ((1 << PLACE_SHIFT) - 1)}"
