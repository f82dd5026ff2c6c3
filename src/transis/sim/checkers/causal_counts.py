"""EVS 5 where causal messages are not in the total order (Lansis): by counting, as every node counts alike (plan F).

Of each sender of a ring, count its messages that a node has delivered there. Whoever delivers m must then have, of everybody, at
least as many as the sender of m had when it sent m, and of the sender as many as it had sent. If no count falls short, then
the first message of a sender that anybody delivers is its first, the second its second, and so on: messages that are
delivered in this order at all nodes are told by their number, so that equal counts are equal sets. A violation of EVS 5 is
therefore a count that falls short somewhere, and the other way round.

Only what a sender delivered since it last sent is counted for a message: the rest was asked of the one before, which must be
there. Messages count where they were first sent, and once; there is no exemption for senders outside a transitional
configuration.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from transis.sim.checkers.index import Index, Ring, Stay
from transis.sim.checkers.verdict import Findings

Needs = dict[int, int]
"""How many messages of other stays of a ring, by the number of the stay."""


class Arrival(NamedTuple):
    """A message at a node, for the first time there: where it stands, whose it is, and how many its sender had sent before."""

    position: int
    code: int
    sender: int
    rank: int


class Senders:
    """Whose message of a ring a code is, and the how-manieth of its sender, from 0."""

    def __init__(self, index: Index, ring: Ring) -> None:
        self.ring = ring
        self.known: dict[int, tuple[int, int]] = {}
        for number, stay in enumerate(ring.stays):
            first_here = [code for code in dict.fromkeys(stay.sent_codes) if index.origins[code].stay is stay]
            self.known.update((code, (number, rank)) for rank, code in enumerate(first_here))

    def arrivals(self, stay: Stay) -> Iterator[Arrival]:
        first = stay.all.position
        for position, code in enumerate(stay.all.codes):
            if code in self.known and first[code] == position:
                yield Arrival(position, code, *self.known[code])


def check_counts(index: Index, ring: Ring, findings: Findings) -> None:
    senders = Senders(index, ring)
    needs: dict[int, Needs] = {}
    for number, stay in enumerate(ring.stays):
        needs.update(_needs(index, senders, number, stay))
    for stay in ring.stays:
        if stay.whole:
            _compare(index, senders, stay, needs, findings)
        else:
            findings.pending += 1


def _needs(index: Index, senders: Senders, number: int, stay: Stay) -> Iterator[tuple[int, Needs]]:
    """What each message of a stay asks for: of whom its sender had delivered something new, and how much in all."""
    counts = [0] * len(senders.ring.stays)
    arrivals = (arrival for arrival in senders.arrivals(stay) if arrival.sender != number)
    coming = next(arrivals, None)
    for code in filter(senders.known.__contains__, dict.fromkeys(stay.sent_codes)):
        grown: Needs = {}
        while coming is not None and coming.position < index.origins[code].all_before:
            counts[coming.sender] += 1
            grown[coming.sender] = counts[coming.sender]
            coming = next(arrivals, None)
        yield code, grown


def _compare(index: Index, senders: Senders, stay: Stay, needs: dict[int, Needs], findings: Findings) -> None:
    counts = [0] * len(senders.ring.stays)
    for arrival in senders.arrivals(stay):
        if counts[arrival.sender] < arrival.rank:
            _tell(index, senders.ring, stay, arrival, f"sent {arrival.rank} messages of its own", findings)
        for number, need in needs[arrival.code].items():
            if counts[number] < need:
                seen = f"delivered {need} messages of {senders.ring.stays[number].node}"
                _tell(index, senders.ring, stay, arrival, seen, findings)
        counts[arrival.sender] += 1


def _tell(index: Index, ring: Ring, stay: Stay, arrival: Arrival, what: str, findings: Findings) -> None:
    message = index.message(arrival.code)
    sender = message.process.node
    findings.broken(
        f"{sender} had {what} in {ring.id} before it sent {message}, but {stay.node} had delivered fewer of them when it "
        f"delivered {message} in {stay.all.conf_at(arrival.position).view.id}",
        ((sender, index.origins[arrival.code].sent.lseq), stay.all.event_at(arrival.position)),
        (message,),
    )
