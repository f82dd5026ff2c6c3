"""Repairing losses: NACKs, which leave with the next burst or ALIVE, and answers to the NACKs of others."""

from __future__ import annotations

from collections.abc import Sequence

from transis.engine.core import multicast
from transis.lansis.packets import Nack
from transis.lansis.states import Event, Trap
from transis.lansis.view import LansisCore
from transis.types.outputs import NEVER
from transis.wire.burst import Burst


class Repair:
    def __init__(self, core: LansisCore) -> None:
        self._core = core
        self.nacks_sent = 0
        self.requested = 0
        """Datagrams requested here; one that is requested several times counts each time."""
        self.retransmitted = 0
        self.answers_cancelled = 0
        """Datagrams that another member sent again before my turn came."""

    # --- what I miss ------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Bring my requests up to date after anything that may open or close a gap."""
        core, view = self._core, self._core.view
        if view.dag.lacking or view.requests:
            view.requests.look(view.dag, core.now)
            self._arm(Event.NACK_DUE, view.requests.due_at())

    def take_nacks(self) -> tuple[Nack, ...]:
        """What to ask for in the packet that leaves now."""
        core, view = self._core, self._core.view
        if not view.requests:
            return ()
        nacks = view.requests.take_due(core.now)
        self._arm(Event.NACK_DUE, view.requests.due_at())
        for rank, first, last in nacks:
            self.nacks_sent += 1
            self.requested += last - first + 1
            if last == view.dag.named[rank] > view.dag.stores[rank].highest:
                core.trap(Trap.TAIL_LOST)
        return nacks

    # --- what others miss -------------------------------------------------------------------------------------------

    def asked(self, asker: int, nacks: Sequence[Nack]) -> None:
        """A member misses something. Nobody can miss what was collected here: a request for it is late (trap 11)."""
        if not nacks:
            return
        core, view = self._core, self._core.view
        self.forget()
        for nack in nacks:
            wanted = self._of_use(nack)
            if wanted is not None:
                if nack.rank == view.rank:
                    view.pressure.lost(wanted.last, core.counter)
                view.turns.asked(asker, wanted, core.now)
                view.answers.schedule(wanted, core.now + self._turn_us(wanted), core.now)
        if view.answers:
            self.answer_due()

    def _of_use(self, nack: Nack) -> Nack | None:
        """The part of a request that I may have and somebody may lack."""
        view = self._core.view
        if nack.rank >= len(view):
            return None
        store = view.dag.stores[nack.rank]
        first, last = max(nack.first, store.discarded + 1), min(nack.last, store.highest)
        return Nack(nack.rank, first, last) if first <= last else None

    def _turn_us(self, wanted: Nack) -> int:
        """How long until my turn: the first member answers at once, each later one after a pause. Lost members are skipped."""
        view = self._core.view
        return self._core.config.pulse.nack_us * view.turns.ahead(wanted, view.rank, len(view), view.gone)

    def forget(self) -> None:
        """Forget turns for what has been discarded."""
        view = self._core.view
        if view.turns:
            view.turns.forget([store.discarded for store in view.dag.stores], self._core.now)

    def seen(self, burst: Burst) -> None:
        """Data came, new or not: I need not send it again."""
        answers = self._core.view.answers
        if answers:
            self.answers_cancelled += answers.seen(burst.sender, burst.first_seq, burst.last_seq)
            self._arm(Event.ANSWER_DUE, answers.due_at())

    def answer_due(self) -> None:
        """Send again what is due, byte for byte."""
        core, view = self._core, self._core.view
        count = 0
        for _, rank, first, last in view.answers.take_due(core.now):
            held = list(view.dag.get(rank, first, last))
            multicast(core, held)
            count += sum(map(len, held))
            if held and rank in view.gone:
                core.trap(Trap.ANSWERED_FOR_THE_DEAD)
        if count:
            self.retransmitted += count
            core.note("retransmitted", count=count)
        self._arm(Event.ANSWER_DUE, view.answers.due_at())

    def _arm(self, event: Event, at: int) -> None:
        if at < NEVER:
            self._core.timers.arm(event, max(at, self._core.now))
        else:
            self._core.timers.cancel(event)

    def statistics(self) -> dict[str, int]:
        return {
            "nacks_sent": self.nacks_sent,
            "requested": self.requested,
            "retransmitted": self.retransmitted,
            "answers_cancelled": self.answers_cancelled,
        }
