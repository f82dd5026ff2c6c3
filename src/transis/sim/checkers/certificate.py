"""The certificate of one order (traces plan E): a key that grows along every edge of the graph of events.

Give a delivered message the key (ring, place), a regular configuration (ring, 0), a transitional one its ring's last
regular place, and a SEND the key of what its node had seen. If every node sees keys strictly grow, through configuration
changes, and everything has one key everywhere, then the key is a topological numbering of the graph with all
deliveries of a message merged: no cycle of any length exists (EVS 1.1, 2.3, 2.4, 6.1, 6.2). This takes linear time and
almost no Python per message; only where it fails is a cycle searched for. Causal messages that are not in the order have a
certificate of their own (`causal_certificate.py`), which numbers them between the ordered ones.
"""

from __future__ import annotations

from itertools import islice, pairwise
from operator import lt

from transis.sim.checkers.causal_certificate import causal_order_certified
from transis.sim.checkers.index import PLACE_SHIFT, Index, Life, Ring, Stay
from transis.types.ids import ViewId


def certified(index: Index) -> bool:
    """Does the key prove that there is one order? Computed once per index."""
    if index.certified is None:
        lives = all(_rings_grow(life) and not life.homeless for life in index.lives)
        orders = lives and _one_place_per_transitional(index) and all(map(_one_order, index.rings.values()))
        index.certified = orders and (not index.causal_apart or causal_order_certified(index))
    return index.certified


def strictly_increasing(numbers: list[int]) -> bool:
    return all(map(lt, numbers, islice(numbers, 1, None)))


def sent_places(ring: Ring) -> dict[int, int]:
    """The place that each ordered message got when it was sent in this ring; of two, the first."""
    places: dict[int, int] = {}
    for stay in ring.stays:
        for origin in reversed(stay.ordered_origins):
            codes = stay.sent_codes[origin.first_rank : origin.first_rank + origin.sent.count]
            place = (origin.sent.place.seq << PLACE_SHIFT) + origin.sent.place.index
            places.update(zip(codes, range(place, place + origin.sent.count), strict=True))
    return places


def _rings_grow(life: Life) -> bool:
    return all((a.ring.seq, a.ring.rep) < (b.ring.seq, b.ring.rep) for a, b in pairwise(life.stays))


def _one_place_per_transitional(index: Index) -> bool:
    key: dict[ViewId, tuple[ViewId, int]] = {}
    stays = [(stay, stay.trans) for ring in index.rings.values() for stay in ring.stays if stay.trans is not None]
    for stay, trans in stays:
        last = stay.places[stay.cut - 1] if stay.cut else -1
        if key.setdefault(trans.view.id, (stay.ring, last)) != (stay.ring, last):
            return False
    return sum(1 for life in index.lives for conf in life.confs if not conf.view.id.is_regular) == len(stays)


def _one_order(ring: Ring) -> bool:
    places = sent_places(ring)
    return all(
        strictly_increasing(stay.places)
        and list(map(places.get, stay.codes)) == stay.places
        and all(_sent_after_what_it_saw(stay, places))
        for stay in ring.stays
    )


def _sent_after_what_it_saw(stay: Stay, places: dict[int, int]) -> list[bool]:
    """A message's place is above everything its sender had delivered when it sent it."""
    return [
        not origin.before or stay.places[origin.before - 1] < places[stay.sent_codes[origin.first_rank]]
        for origin in stay.ordered_origins
    ]
