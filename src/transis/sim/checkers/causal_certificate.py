"""The certificate of causal messages that are not in the total order (Lansis): a key that grows along every edge they add.

An event's key is (ring, frontier, phase, time). The frontier is the place of the last ordered message that its node had
delivered; the phase is 1 behind the transitional configuration; the time is the Lamport timestamp of what is sent, and for a
delivery the larger of the message's and the latest at its node, a little later. Ordered deliveries and configurations come
first at their frontier, so that they keep the key that `certificate.py` gives them at all nodes. Along a node the key never
falls if whoever sends has a timestamp above all causal messages it delivered; from a SEND to a delivery it grows if the
receiver's frontier is not behind the sender's. Then no cycle of any length exists. Where it fails, the graph decides.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from transis.sim.checkers.index import Index, Origin, Ring, Stay
from transis.trace.events import Delivery


def causal_order_certified(index: Index) -> bool:
    return all(_numbered(index, ring, stay) for ring in index.rings.values() for stay in ring.stays)


def _numbered(index: Index, ring: Ring, stay: Stay) -> bool:
    """Times are doubled, so that a delivery fits between a SEND and the next timestamp."""
    latest = 0
    for event, frontier in _events(index, stay):
        if isinstance(event, Origin):
            if 2 * event.sent.timestamp < latest or _sent_late(stay, event):
                return False
            latest = 2 * event.sent.timestamp
        else:
            if not all(_follows(ring, event, frontier, origin) for origin in _origins(index, event)):
                return False
            latest = max(latest, 2 * event.timestamp + 1)
    return True


def _events(index: Index, stay: Stay) -> Iterator[tuple[Origin | Delivery, int]]:
    """SENDs and causal deliveries of a stay in local order, each with its frontier."""
    origins = iter(stay.origins)
    coming = next(origins, None)
    ordered = 0
    for start, run in zip(stay.all.starts, stay.all.runs, strict=True):
        while coming is not None and coming.all_before <= start:
            yield coming, _place_before(stay, ordered)
            coming = next(origins, None)
        if run.service in index.ordered:
            ordered += run.count
        else:
            yield run, _place_before(stay, ordered)
    while coming is not None:
        yield coming, _place_before(stay, ordered)
        coming = next(origins, None)


def _place_before(stay: Stay, ordered: int) -> int:
    return stay.places[ordered - 1] if ordered else -1


def _sent_late(stay: Stay, origin: Origin) -> bool:
    """A SEND in the transitional configuration would need a phase of its own; there must be none."""
    return stay.trans is not None and stay.trans.lseq < origin.sent.lseq


def _origins(index: Index, run: Delivery) -> list[Origin | None]:
    """Where the messages of a run were sent, each place once."""
    codes = index.codes(run.process, run.first, run.count)
    return [origin for origin, _ in groupby(map(index.origins.get, codes))]


def _follows(ring: Ring, run: Delivery, frontier: int, origin: Origin | None) -> bool:
    if origin is None or origin.stay is None or origin.stay.ring != ring.id:
        return False
    return run.timestamp == origin.sent.timestamp and _place_before(origin.stay, origin.before) <= frontier
