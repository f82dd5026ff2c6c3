"""Good histories in which causal messages are not in the total order, as Lansis has them: the oracle of `abstract.py` with one
rule more.

A causal message has a place in a ring's log, but nobody delivers it because its place has come: a node delivers it at any time
when it has all that its sender had sent or delivered before, and at the latest before something that was sent after it.
Who goes on together from a ring delivers the same of them in the regular configuration, all for which that suffices, and the
others behind the transitional one.
"""

from __future__ import annotations

from tests.guarantees.oracle import AbstractWorld, Actor, RingLog
from transis.trace.events import History
from transis.types.ids import NodeId, Service
from transis.types.outputs import Configure, Phase
from transis.types.views import View


class ApartWorld(AbstractWorld):
    """`_apart` has the causal entries of the log that each life delivered in its ring. What an Actor calls delivered is
    everything before a position, but for the causal entries, over which it passes."""

    engine = "lansis"

    def __init__(self, seed: int, names: str = "abcde") -> None:
        self._apart: dict[NodeId, set[int]] = {}
        super().__init__(seed, names)

    def _enter(self, actor: Actor, ring: RingLog, view: View) -> None:
        self._apart[actor.id] = set()
        super()._enter(actor, ring, view)

    def _causes(self, actor: Actor) -> frozenset[int]:
        ring = actor.ring
        assert ring is not None
        sent = {p for p, datagram in enumerate(ring.log) if datagram.sender == actor.id}
        found = _ordered_until(ring, actor.delivered) | self._apart[actor.id] | sent
        return frozenset(p for p in found if ring.log[p].ids.service is not Service.BASIC)

    def _has(self, actor: Actor, position: int) -> bool:
        assert actor.ring is not None
        if _is_causal(actor.ring, position):
            return position in self._apart[actor.id]
        return position < actor.delivered

    # Delivery.

    def _deliver_some(self, actor: Actor, limit: int) -> None:
        """The next of the order, or any causal message whose causes were delivered, as it is drawn."""
        while limit:
            options = self._eligible(actor) + ([actor.delivered] if self._is_next(actor) else [])
            if not options:
                return
            self._deliver_one(actor, self.rng.choice(options), Phase.REGULAR)
            limit -= 1

    def _eligible(self, actor: Actor) -> list[int]:
        assert actor.ring is not None
        log = actor.ring.log
        coming = [p for p in sorted(actor.received - self._apart[actor.id]) if _is_causal(actor.ring, p)]
        return [p for p in coming if all(self._has(actor, cause) for cause in log[p].causes)]

    def _is_next(self, actor: Actor) -> bool:
        """Is the next of the order here, with its causes, and if it is safe, everywhere? Causal entries are passed over."""
        ring = actor.ring
        assert ring is not None
        while actor.delivered in actor.received and _is_causal(ring, actor.delivered):
            actor.delivered += 1
        position = actor.delivered
        if position not in actor.received or (ring.log[position].ids.service is Service.SAFE and not ring.stable(position)):
            return False
        return all(self._has(actor, cause) for cause in ring.log[position].causes)

    def _deliver_one(self, actor: Actor, position: int, phase: Phase) -> None:
        assert actor.ring is not None
        self._deliver_at(actor, position, phase)
        if _is_causal(actor.ring, position):
            self._apart[actor.id].add(position)
        else:
            actor.delivered = position + 1

    # Leaving a ring.

    def _recover(self, actor: Actor, high: int, covered: frozenset[NodeId], transitional: View) -> None:
        """As on the ring, with the causal messages as early as their causes allow."""
        ring = actor.ring
        assert ring is not None
        end = actor.delivered
        while end in actor.received and (ring.log[end].ids.service is not Service.SAFE or end < high):
            end += 1
        delivered = _ordered_until(ring, actor.delivered) | self._apart[actor.id]
        self._deliver_closed(actor, delivered, range(actor.delivered, end), Phase.REGULAR)
        actor.recorder.observe(self._tick(), [Configure(transitional)])
        gap = next((p for p in range(end, len(ring.log)) if p not in actor.received), len(ring.log))
        rest = [p for p in sorted(actor.received) if p >= end and (p < gap or ring.log[p].sender in covered)]
        self._deliver_closed(actor, delivered, rest, Phase.TRANSITIONAL)

    def _deliver_closed(self, actor: Actor, delivered: set[int], wanted: range | list[int], phase: Phase) -> None:
        """What is wanted of the order, and every causal message whose causes are there; the log is in causal order."""
        assert actor.ring is not None
        log = actor.ring.log
        for position in sorted(actor.received - delivered):
            closed = log[position].causes <= delivered
            if (closed and _is_causal(actor.ring, position)) or (position in wanted and not _is_causal(actor.ring, position)):
                assert closed, "what is delivered of the order has its causes before it"
                self._deliver_at(actor, position, phase)
                delivered.add(position)


def _is_causal(ring: RingLog, position: int) -> bool:
    return ring.log[position].ids.service is Service.CAUSAL


def _ordered_until(ring: RingLog, end: int) -> set[int]:
    """Entries below a position whose turn comes with their place: all but the causal ones."""
    return {p for p in range(end) if not _is_causal(ring, p)}


def apart_history(seed: int, names: str = "abcde", steps: int = 300, closed: bool = True) -> History:
    """A history that breaks no guarantee, causal messages apart; with `closed`, one that reached quiescence."""
    world = ApartWorld(seed, names)
    for _ in range(steps):
        world.step()
    if closed:
        world.close()
    return world.history(closed)
