"""IAA, "I am alive" (transis-design-1995 section 3): a member with nothing to send still says what it has, and its clock.

An ALIVE is outside the DAG: unnumbered, never acknowledged, and idempotent, so losing one costs only time. Nobody answers it, so
there is no echo. Its `sent` shows a lost last burst, its `recv` makes others' bursts stable, its clock is a promise (orders.py),
and it carries requests while there is no burst to carry them.

A member that owes an acknowledgement and has nothing to send says ALIVE as soon as it has read all that waited, because others
wait for it alone; so one ALIVE answers all bursts that came together. A member that sends all the time leaves it to its next
burst.
"""

from __future__ import annotations

from typing import Final

from transis.lansis.dag import DagNode
from transis.lansis.packets import Alive, encode_alive
from transis.lansis.repair import Repair
from transis.lansis.states import Event
from transis.lansis.view import LansisCore
from transis.types.outputs import NEVER, Audience, Port, Send

PATIENCE: Final = 4
"""A busy member waits this many times as long before it says in an ALIVE what its next burst would say anyway."""
CROWDED: Final = 4
"""When one part in so many of the usable window waits for acknowledgements, they hurry, whatever was sent."""


class Heartbeat:
    def __init__(self, core: LansisCore, repair: Repair) -> None:
        self._core = core
        self._repair = repair
        self._due_at = 0
        self._said_at = self._sent_at = -core.config.pulse.prompt_us
        self._gap_us = NEVER
        """The time between my last two bursts: the next one may follow as soon."""
        self.alives_sent = 0
        self.vote_by = NEVER
        """By when a burst of mine must follow the ordered ones here: under ToTo only nodes of the DAG are votes."""

    def begin_view(self) -> None:
        """In a new view everybody says ALIVE at once: a member that has flushed the view and hears me installs it too."""
        self.vote_by = NEVER
        if self._core.view.is_singleton:
            self._core.timers.cancel(Event.ALIVE_DUE, Event.NACK_DUE, Event.ANSWER_DUE)
        else:
            self._say()

    def owe(self, node: DagNode) -> None:
        """Another member's burst entered the DAG. Others wait for my acknowledgement if it is ordered or the window fills up."""
        core, view = self._core, self._core.view
        if core.frozen is not None and not core.flows:
            return
        if node.is_ordered and core.config.order == "toto":
            self.vote_by = min(self.vote_by, core.now + self._pace_us)
        elif core.frozen is not None:
            return
        elif node.is_ordered or view.dag.held_datagrams * CROWDED > view.rate.window.window:
            self._hurry(self._prompt_at())

    @property
    def _pace_us(self) -> int:
        return self._core.config.pulse.prompt_us * self._core.view.crowd

    def _prompt_at(self) -> int:
        """At once after a quiet moment; then no more often than everybody can read."""
        core, pace_us = self._core, self._pace_us
        is_busy = core.outbox.has_work() or self._gap_us <= PATIENCE * pace_us
        return max(core.now, self._said_at + (PATIENCE * pace_us if is_busy else pace_us))

    def _hurry(self, at: int) -> None:
        if at < self._due_at or not self._core.timers.armed(Event.ALIVE_DUE):
            self._arm(at)

    def is_spoken_for(self, until: int) -> None:
        """A burst of mine will leave by then and say what an ALIVE would."""
        if self._due_at < until:
            self._arm(until)

    def paid(self) -> None:
        """I sent a burst, which acknowledges everything, promises its timestamp, and is a vote."""
        self.vote_by = NEVER
        now = self._core.now
        self._gap_us, self._sent_at, self._said_at = now - self._sent_at, now, now
        if not self._core.view.is_singleton:
            self._arm(now + self._core.view.alive_us)

    def alive_due(self) -> None:
        self._say()

    def alive_now(self) -> None:
        """Another member seems to be in a view that I have left. An ALIVE tells it so, and one is enough for a while."""
        core = self._core
        if not core.view.is_singleton and core.now >= self._said_at + core.config.pulse.prompt_us:
            self._say()

    def nack_due(self) -> None:
        """No packet that could carry my requests left in time."""
        if self._core.view.requests.due_at() <= self._core.now:
            self._say()

    def _say(self) -> None:
        core, view = self._core, self._core.view
        frozen = core.frozen
        recv = tuple(view.dag.inserted) if frozen is None else frozen.recv
        clock = core.clock if frozen is None else frozen.clock
        alive = Alive(view.tag, view.rank, frozen is not None, core.counter, clock, recv, self._repair.take_nacks())
        core.emit(Send(Audience.RING, Port.CONTROL, core.in_parts(encode_alive(alive))))
        self.alives_sent += 1
        self._said_at = core.now
        self._arm(core.now + core.view.alive_us)

    def statistics(self) -> dict[str, int]:
        return {"alives_sent": self.alives_sent}

    def _arm(self, at: int) -> None:
        self._due_at = at
        self._core.timers.arm(Event.ALIVE_DUE, at)
