"""EVS 5.

EVS 5: if sending m precedes sending m' in one configuration, whoever delivers m' delivered m before it.

Direct causes suffice: what the sender had sent itself in this configuration, and what it had delivered there. Causes of
causes follow, because whoever delivers m' must have delivered the direct ones, and so their own before them. There is no
exemption for senders outside a transitional configuration (traces plan C). Here causal messages share the total order; where
they do not, see `causal_counts.py`.

EVS 5 where causal messages are not in the total order (Lansis): by counting, as every node counts alike (plan F).

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
from typing import Final, NamedTuple

from transis.audit.guarantees.history import LaidHistory, Origin, Ring, Stay
from transis.audit.guarantees.property import Findings, Witness

# --- causal counts ----------------------------------------------------------------------------------------------------

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

    def __init__(self, history: LaidHistory, ring: Ring) -> None:
        self.ring = ring
        self.known: dict[int, tuple[int, int]] = {}
        for number, stay in enumerate(ring.stays):
            first_here = [code for code in dict.fromkeys(stay.sent_codes) if history.origins[code].stay is stay]
            self.known.update((code, (number, rank)) for rank, code in enumerate(first_here))

    def arrivals(self, stay: Stay) -> Iterator[Arrival]:
        first = stay.all.position
        for position, code in enumerate(stay.all.codes):
            if code in self.known and first[code] == position:
                yield Arrival(position, code, *self.known[code])


def check_counts(history: LaidHistory, ring: Ring, findings: Findings) -> None:
    senders = Senders(history, ring)
    needs: dict[int, Needs] = {}
    for number, stay in enumerate(ring.stays):
        needs.update(_needs(history, senders, number, stay))
    for stay in ring.stays:
        if stay.whole:
            _compare(history, senders, stay, needs, findings)
        else:
            findings.pending += 1


def _needs(history: LaidHistory, senders: Senders, number: int, stay: Stay) -> Iterator[tuple[int, Needs]]:
    """What each message of a stay asks for: of whom its sender had delivered something new, and how much in all."""
    counts = [0] * len(senders.ring.stays)
    arrivals = (arrival for arrival in senders.arrivals(stay) if arrival.sender != number)
    coming = next(arrivals, None)
    for code in filter(senders.known.__contains__, dict.fromkeys(stay.sent_codes)):
        grown: Needs = {}
        while coming is not None and coming.position < history.origins[code].all_before:
            counts[coming.sender] += 1
            grown[coming.sender] = counts[coming.sender]
            coming = next(arrivals, None)
        yield code, grown


def _compare(history: LaidHistory, senders: Senders, stay: Stay, needs: dict[int, Needs], findings: Findings) -> None:
    counts = [0] * len(senders.ring.stays)
    for arrival in senders.arrivals(stay):
        if counts[arrival.sender] < arrival.rank:
            _tell(history, senders.ring, stay, arrival, f"sent {arrival.rank} messages of its own", findings)
        for number, need in needs[arrival.code].items():
            if counts[number] < need:
                seen = f"delivered {need} messages of {senders.ring.stays[number].node}"
                _tell(history, senders.ring, stay, arrival, seen, findings)
        counts[arrival.sender] += 1


def _tell(history: LaidHistory, ring: Ring, stay: Stay, arrival: Arrival, what: str, findings: Findings) -> None:
    message = history.message(arrival.code)
    sender = message.process.node
    findings.broken(
        f"{sender} had {what} in {ring.id} before it sent {message}, but {stay.node} had delivered fewer of them when it "
        f"delivered {message} in {stay.all.conf_at(arrival.position).view.id}",
        ((sender, history.origins[arrival.code].sent.lseq), stay.all.event_at(arrival.position)),
        (message,),
    )


# --- causal -----------------------------------------------------------------------------------------------------------

NEVER: Final = 1 << 62
"""The position of what was not delivered."""


def check_causal(history: LaidHistory, findings: Findings) -> None:
    for ring in history.rings.values():
        findings.checked += sum(len(stay.all.codes) for stay in ring.stays)
        if ring.is_mixed:
            check_counts(history, ring, findings)
        else:
            _check_order(history, ring, findings)


def _check_order(history: LaidHistory, ring: Ring, findings: Findings) -> None:
    """A prefix of the canon is right wherever the canon is."""
    for stay in [ring.canon, *(fork for fork in ring.forks if fork is not ring.canon)]:
        if stay.whole:
            _follows_causes(history, ring, stay, findings)
        else:
            findings.pending += 1


def _follows_causes(history: LaidHistory, ring: Ring, stay: Stay, findings: Findings) -> None:
    expected: dict[Stay, int] = {}
    for position, code in enumerate(stay.codes):
        origin = history.origins.get(code)
        if origin is None or origin.stay is None or origin.stay.ring != ring.id:
            continue  # Created, or sent elsewhere: other checkers say so.
        sender = origin.stay
        rank = origin.first_rank + code // history.stride - origin.sent.first
        if rank > expected.get(sender, 0):
            _own_earlier(history, stay, position, sender.sent_codes[expected.get(sender, 0) : rank], findings)
        expected[sender] = max(rank + 1, expected.get(sender, 0))
        if origin.before > min(position, stay.agreed, sender.agreed):
            _seen_before(history, stay, position, origin, findings)


def _own_earlier(history: LaidHistory, stay: Stay, position: int, causes: list[int], findings: Findings) -> None:
    for cause in causes:
        if stay.position.get(cause, position) >= position:
            _tell_behind(history, stay, position, cause, "had sent", (), findings)


def _seen_before(history: LaidHistory, stay: Stay, position: int, origin: Origin, findings: Findings) -> None:
    """The slow way, for sequences that fork: each message the sender had delivered must be here, before. Of those that are not,
    the one that came last here is told; one that never came is later than any."""
    sender = origin.stay
    assert sender is not None
    causes = enumerate(sender.codes[: origin.before])
    late = [(stay.position.get(cause, NEVER), -there) for there, cause in causes if cause != stay.codes[position]]
    here, back = max(late, default=(-1, 0))
    if here >= position:
        _tell_behind(history, stay, position, sender.codes[-back], "had delivered", (sender.event_at(-back),), findings)


def _tell_behind(
    history: LaidHistory, stay: Stay, position: int, cause: int, how: str, seen: Witness, findings: Findings
) -> None:
    effect = stay.codes[position]
    origin = history.origins[effect]
    message, before = history.message(effect), history.message(cause)
    here = stay.position.get(cause)
    late = "never delivered" if here is None else "delivered only later"
    witness: Witness = (*seen, (message.process.node, origin.sent.lseq), stay.event_at(position))
    findings.broken(
        f"{message.process.node} {how} {before} before it sent {message}, but {stay.node} {late} {before} "
        f"when it delivered {message} in {stay.conf_at(position).view.id}",
        witness if here is None else (*witness, stay.event_at(here)),
        (before, message),
    )
