"""Delivery on an installed ring (TOCS95 section 4.3; protocols 1.3).

Agreed: in the order of sequence numbers, nothing left out. Safe: in addition, the token was forwarded with
aru >= seq on two successive rotations. The first blocked datagram blocks everything after it: one total order.
Basic: on receipt, or at its place, whichever is first, once.
"""

from __future__ import annotations

from transis.totem.core import Core
from transis.totem.ring import Ring
from transis.types.ids import DatagramClass
from transis.types.limits import SEQ_JUMP_MAX
from transis.types.outputs import Deliver, Phase
from transis.wire.burst import Burst


class Delivery:
    def __init__(self, core: Core) -> None:
        self._core = core

    def accept(self, ring: Ring, burst: Burst, *, installed: bool) -> list[Burst]:
        """Store what is new; hand basic datagrams up at once if their view is installed here."""
        if burst.last_seq > ring.store.aru + SEQ_JUMP_MAX:
            return []
        fresh = ring.store.insert(burst)
        if installed and burst.klass is DatagramClass.BASIC and not burst.encapsulated:
            for part in fresh:
                ring.early.update(range(part.first_seq, part.last_seq + 1))
                self._hand_up(ring, part, Phase.REGULAR, early=True)
        return fresh

    def eager(self, ring: Ring) -> None:
        """Deliver everything that may be delivered in the regular configuration now."""
        self.upto(ring, ring.safe_upto)

    def upto(self, ring: Ring, safe_upto: int) -> None:
        """Deliver in order until a gap, or until a safe datagram above `safe_upto`."""
        while (burst := ring.store.at(ring.high_delivered + 1)) is not None:
            last = min(burst.last_seq, safe_upto) if burst.klass is DatagramClass.SAFE else burst.last_seq
            if last < burst.first_seq:
                return
            self.at_place(ring, burst.slice(burst.first_seq, last), Phase.REGULAR)
            ring.high_delivered = last

    def at_place(self, ring: Ring, burst: Burst, phase: Phase) -> None:
        """Deliver a burst at its place in the order, unless it went up early or only carried recovery."""
        if burst.encapsulated:
            return
        if burst.klass is not DatagramClass.BASIC:
            self._hand_up(ring, burst, phase, early=False)
            return
        for seq in range(burst.first_seq, burst.last_seq + 1):
            if seq in ring.early:
                ring.early.discard(seq)
            else:
                self._hand_up(ring, burst.slice(seq, seq), phase, early=False)

    def _hand_up(self, ring: Ring, burst: Burst, phase: Phase, *, early: bool) -> None:
        self._core.emit(Deliver(burst, ring.members[burst.sender], ring.view_id, phase, early, burst.first_seq))
