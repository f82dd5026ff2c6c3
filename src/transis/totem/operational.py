"""Operational: the installed ring at work, the hold of an idle token and the wake (protocols 1.3, W15, W16).

Deviation (D10): the representative keeps the token of a ring that was idle for three rotations (two are needed for
safe delivery at everybody, the third shows that they happened), and paces the rotation while only retransmissions
are pending; whoever has work asks for the token by multicast.
"""

from __future__ import annotations

from typing import Final

from transis.totem.core import Core
from transis.totem.delivery import Delivery
from transis.totem.gather import FAILED_TO_RECEIVE, Gathering
from transis.totem.packets import Token, Wake
from transis.totem.passing import Passing
from transis.totem.ring import Ring
from transis.totem.states import Event, State
from transis.totem.traps import Trap
from transis.totem.visit import Visit, is_idle
from transis.types.outputs import Stopped
from transis.types.views import Cause
from transis.wire.burst import Burst

IDLE_VISITS: Final = 3


class Operational:
    def __init__(self, core: Core, visit: Visit, passing: Passing, delivery: Delivery, gathering: Gathering) -> None:
        self._core = core
        self._visit = visit
        self._passing = passing
        self._delivery = delivery
        self._gathering = gathering
        self._woken = False
        self._leaving = False

    def ring_data(self, burst: Burst) -> None:
        ring = self._core.ring
        self._core.observe(burst.header.timestamp)
        self._passing.evidence(burst.last_seq)
        if self._delivery.accept(ring, burst, installed=True):
            self._delivery.eager(ring)

    def token_in_operational(self, token: Token) -> None:
        ring = self._core.ring
        if not self._visit.accept(ring, token):
            return
        pause_us = self._pause(ring, token)
        if pause_us:
            self._passing.hold(token, pause_us)
        else:
            self._run_visit(token)

    def _pause(self, ring: Ring, token: Token) -> int:
        """How long the representative keeps the token: idle, or only waiting for retransmissions; else not at all."""
        timing = self._core.config.timing
        woken, self._woken = self._woken, False
        if not ring.i_represent or self._core.outbox.has_work():
            ring.idle_visits = 0
            return 0
        if is_idle(token) and ring.safe_upto == token.seq:
            ring.idle_visits += 1
            return timing.token_hold_us if ring.idle_visits >= IDLE_VISITS and not woken else 0
        ring.idle_visits = 0
        waiting = token.aru < token.seq and token.aru == ring.last_aru_sent and token.backlog == 0
        if waiting:
            self._core.trap(Trap.PACED)
        return timing.retransmission_pace_us if waiting else 0

    def release_token(self) -> None:
        token = self._passing.take_held()
        assert token is not None, "the hold timer runs only while a token is held"
        ring = self._core.ring
        if ring.is_singleton:
            ring.token_seq = token.token_seq
            ring.token_at = self._core.now
            self._core.pace.saw_rotation(0)
        self._run_visit(token)

    def _run_visit(self, token: Token) -> None:
        core, ring = self._core, self._core.ring
        if not self._visit.run(ring, token, core.outbox, encapsulated=False):
            accused = ring.members[token.aru_id]
            core.note("failed to receive", accused=str(accused), aru=token.aru, seq=token.seq)
            self._gathering.shift(Cause(FAILED_TO_RECEIVE, core.me, (accused,)), fail=(accused,))
            return
        core.announce_room()
        self._delivery.eager(ring)
        ring.store.discard(min(ring.safe_upto, ring.high_delivered))
        if self._leaving:
            self._try_to_leave()

    def submitted(self) -> None:
        """There is new work: hurry a held token, or ask for it if the ring is idle."""
        if self._core.state is not State.OPERATIONAL:
            return
        if self._passing.held is not None:
            self._passing.hurry()
        elif self._core.ring.forwarded_idle and not self._core.timers.armed(Event.WAKE_REPEAT):
            self.ask_for_token()

    def ask_for_token(self) -> None:
        ring = self._core.ring
        self._core.broadcast(Wake(ring.tag, ring.token_seq))
        self._core.arm(Event.WAKE_REPEAT, self._core.pace.token_retransmit_us)

    def wake_token(self, wake: Wake) -> None:
        if wake.ring == self._core.ring.tag:
            self._woken = self._core.ring.i_represent
            self._passing.hurry()

    def leave(self) -> None:
        """Graceful leave: nothing new is taken, what was taken is sent and safe, then the others are told (W16)."""
        if self._core.state is State.STOPPED or self._leaving:
            return
        self._leaving = True
        self._core.arm(Event.LEAVE, self._core.config.timing.leave_us)
        self._passing.hurry()

    @property
    def is_leaving(self) -> bool:
        return self._leaving

    def _try_to_leave(self) -> None:
        """A held lane counts too: its messages were taken, and a young view has not opened it yet."""
        ring = self._core.ring
        if not self._core.outbox.queued() and ring.high_delivered >= ring.own_seq and ring.safe_upto >= ring.own_seq:
            self.leave_now()

    def leave_now(self) -> None:
        """Say goodbye twice, because nobody repeats it, and stop."""
        self._gathering.say_goodbye()
        self.stop("left")

    def stop(self, why: str) -> None:
        core = self._core
        if core.state is State.STOPPED:
            return
        core.refuse(core.outbox.drop_all(), why)
        core.timers.cancel_all()
        self._passing.forget()
        core.forming = None
        core.shift(State.STOPPED, why)
        core.emit(Stopped(why))
