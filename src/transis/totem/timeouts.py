"""Effective timeouts: the configured ones, stretched by what the ring shows and by this node's own health (W17, D26).

T_loss = max(configured, 8 x longest recent rotation) x (1 + health). Health rises when this node's own timers fire late (a pause,
a garbage collection, a starved machine) and falls with every 64 rotations that go well: a sick observer suspects others more
slowly (Lifeguard). Everything is integer arithmetic: no float decides a protocol step.
"""

from __future__ import annotations

from typing import Final

from transis.engine.core import Health
from transis.types.config import Timing

ROTATIONS_IN_LOSS: Final = 8
RETRIES_IN_LOSS: Final = 3
"""T_retx stays this many times below T_loss, however large the ring: a lost token must be sent again before it is missed."""
STRETCH_MAX: Final = 16
"""However slow the ring looks, T_loss stays below this many times its configured value: a dead ring must be noticed."""


class Timeouts:
    def __init__(self, timing: Timing) -> None:
        self.timing = timing
        self._health = Health()
        self.rotations = 0
        self.last_rotation_us = 0
        self._rotation_us = 0
        self._members = 1

    def begin_ring(self, members: int) -> None:
        """A new ring: nothing is known of its rotation yet, so expect a modest time per hop."""
        self._members = members
        self._rotation_us = members * self.timing.hop_us

    def saw_rotation(self, rotation_us: int) -> None:
        """Remember the longest recent rotation; older ones fade by 1/64 a rotation."""
        self.rotations += 1
        self.last_rotation_us = rotation_us
        self._rotation_us = max(rotation_us, self._rotation_us - (self._rotation_us >> 6))
        self._health.went_well()

    def fired_late(self, late_us: int) -> bool:
        """True if a timer fired so late that this node, not its peers, was away."""
        return self._health.fired_late(late_us, self.token_retransmit_us)

    @property
    def health(self) -> int:
        return self._health.score

    @property
    def token_loss_us(self) -> int:
        return self._healthy_loss_us * (1 + self.health)

    @property
    def _healthy_loss_us(self) -> int:
        base = self.timing.token_loss_us
        return min(max(base, ROTATIONS_IN_LOSS * self._rotation_us), STRETCH_MAX * base)

    @property
    def token_retransmit_us(self) -> int:
        """Grows with the size of the ring but never with measured rotations: a lost token makes a rotation long, and a
        retransmission that waits longer because of it would make the next one longer still."""
        return min(self._for_size(self.timing.token_retransmit_us, self._members), self._healthy_loss_us // RETRIES_IN_LOSS)

    def consensus_us(self, members: int) -> int:
        """Consensus must outlast the slowest ring that this many members could form."""
        return self._for_size(self.timing.consensus_us, members) * (1 + self.health)

    def _for_size(self, base_us: int, members: int) -> int:
        """A timeout stretched as T_loss is, for a ring of this many members whose rotation nobody has measured yet."""
        expected = ROTATIONS_IN_LOSS * members * self.timing.hop_us * base_us // self.timing.token_loss_us
        return min(max(base_us, expected), STRETCH_MAX * base_us)
