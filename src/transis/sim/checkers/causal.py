"""EVS 5: if sending m precedes sending m' in one configuration, whoever delivers m' delivered m before it.

Direct causes suffice: what the sender had sent itself in this configuration, and what it had delivered there. Causes of
causes follow, because whoever delivers m' must have delivered the direct ones, and so their own before them. There is no
exemption for senders outside a transitional configuration (traces plan C). Here causal messages share the total order; where
they do not, see `causal_counts.py`.
"""

from __future__ import annotations

from typing import Final

from transis.sim.checkers.causal_counts import check_counts
from transis.sim.checkers.index import Index, Origin, Ring, Stay
from transis.sim.checkers.verdict import Findings, Witness

NEVER: Final = 1 << 62
"""The position of what was not delivered."""


def check_causal(index: Index, findings: Findings) -> None:
    for ring in index.rings.values():
        findings.checked += sum(len(stay.all.codes) for stay in ring.stays)
        if ring.is_mixed:
            check_counts(index, ring, findings)
        else:
            _check_order(index, ring, findings)


def _check_order(index: Index, ring: Ring, findings: Findings) -> None:
    """A prefix of the canon is right wherever the canon is."""
    for stay in [ring.canon, *(fork for fork in ring.forks if fork is not ring.canon)]:
        if stay.whole:
            _follows_causes(index, ring, stay, findings)
        else:
            findings.pending += 1


def _follows_causes(index: Index, ring: Ring, stay: Stay, findings: Findings) -> None:
    expected: dict[Stay, int] = {}
    for position, code in enumerate(stay.codes):
        origin = index.origins.get(code)
        if origin is None or origin.stay is None or origin.stay.ring != ring.id:
            continue  # Created, or sent elsewhere: other checkers say so.
        sender = origin.stay
        rank = origin.first_rank + code // index.stride - origin.sent.first
        if rank > expected.get(sender, 0):
            _own_earlier(index, stay, position, sender.sent_codes[expected.get(sender, 0) : rank], findings)
        expected[sender] = max(rank + 1, expected.get(sender, 0))
        if origin.before > min(position, stay.agreed, sender.agreed):
            _seen_before(index, stay, position, origin, findings)


def _own_earlier(index: Index, stay: Stay, position: int, causes: list[int], findings: Findings) -> None:
    for cause in causes:
        if stay.position.get(cause, position) >= position:
            _tell_behind(index, stay, position, cause, "had sent", (), findings)


def _seen_before(index: Index, stay: Stay, position: int, origin: Origin, findings: Findings) -> None:
    """The slow way, for sequences that fork: each message the sender had delivered must be here, before. Of those that are not,
    the one that came last here is told; one that never came is later than any."""
    sender = origin.stay
    assert sender is not None
    causes = enumerate(sender.codes[: origin.before])
    late = [(stay.position.get(cause, NEVER), -there) for there, cause in causes if cause != stay.codes[position]]
    here, back = max(late, default=(-1, 0))
    if here >= position:
        _tell_behind(index, stay, position, sender.codes[-back], "had delivered", (sender.event_at(-back),), findings)


def _tell_behind(index: Index, stay: Stay, position: int, cause: int, how: str, seen: Witness, findings: Findings) -> None:
    effect = stay.codes[position]
    origin = index.origins[effect]
    message, before = index.message(effect), index.message(cause)
    here = stay.position.get(cause)
    late = "never delivered" if here is None else "delivered only later"
    witness: Witness = (*seen, (message.process.node, origin.sent.lseq), stay.event_at(position))
    findings.broken(
        f"{message.process.node} {how} {before} before it sent {message}, but {stay.node} {late} {before} "
        f"when it delivered {message} in {stay.conf_at(position).view.id}",
        witness if here is None else (*witness, stay.event_at(here)),
        (before, message),
    )
