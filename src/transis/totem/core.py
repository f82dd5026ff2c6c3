"""What the organs of the ring share: the installed ring, the one being formed, and the sequence numbers on disk."""

from __future__ import annotations

from transis.engine.core import BaseCore, is_seq_in_reach
from transis.totem.pace import Pace
from transis.totem.ring import Ring
from transis.totem.states import TRANSITIONS, Event, State
from transis.types.config import Config
from transis.types.ids import NodeId, RingId
from transis.types.outputs import Persist

RESERVE = 4_000
"""Ring sequence numbers reserved on disk ahead of use, so that a view change waits for no fsync (W14)."""


class Core(BaseCore[State, Event]):
    def __init__(self, config: Config, me: NodeId, ring_seq: int) -> None:
        super().__init__(config, me, State.OPERATIONAL, TRANSITIONS, Event)
        self.pace = Pace(config.timing)
        self.ring_seq = ring_seq
        """The highest ring sequence that this node ever accepted, proposed or installed (W9)."""
        self.ring_seq_seen = ring_seq
        """The highest ring sequence in any Join: a new ring goes beyond it."""
        self.durable_seq = ring_seq
        self._reserving = 0
        self.ring = Ring(RingId(ring_seq, me), (me,), me)
        self.forming: Ring | None = None
        self._tickets = 0
        self.retransmitted = 0
        """Datagrams sent again because somebody asked for them."""
        self.requested = 0
        """Datagrams asked for; one that is asked for at several visits counts at each."""

    def is_in_reach(self, seq: int) -> bool:
        """May another's ring sequence become ours?"""
        return is_seq_in_reach(seq, max(self.ring_seq, self.ring_seq_seen), is_alone=len(self.ring.members) == 1)

    def reserve(self, seq: int) -> None:
        """Make sure that ring sequences up to `seq` and well beyond are, or soon will be, durable."""
        if seq + RESERVE // 2 > max(self.durable_seq, self._reserving):
            self._reserving = seq + RESERVE
            self._tickets += 1
            self.emit(Persist(self._tickets, "ring_seq", self._reserving))

    def persisted(self, ticket: int) -> bool:
        """A write completed. True if everything that was asked for is durable now."""
        if ticket == self._tickets:
            self.durable_seq = max(self.durable_seq, self._reserving)
        return ticket == self._tickets
