"""IAA, "I am alive" (transis-design-1995 section 3): who has nothing to send still says what it has and how far its clock is.

An ALIVE is outside the DAG: unnumbered, never acknowledged, and idempotent, so losing one costs nothing but time. It makes
nobody owe one: there is no echo. Its `sent` shows a lost last burst, its `recv` makes others' bursts stable, its clock is a
promise (rules/allack.py), and it carries requests while there is no burst that could.
"""

from __future__ import annotations

from typing import Final

from transis.lansis.core import Core
from transis.lansis.node import Node
from transis.lansis.repair import Repair
from transis.lansis.states import Event
from transis.model.contract import NEVER, Audience, Port, Send
from transis.wire.alive import Alive, encode_alive

CROWD: Final = 10
"""From twice so many members on everybody says less often that it lives: their packets grow with the square."""
CROWDED: Final = 4
"""When this part of the window waits for acknowledgements, they hurry, whatever was sent."""


class Heartbeat:
    def __init__(self, core: Core, repair: Repair) -> None:
        self._core = core
        self._repair = repair
        self._due_at = 0
        self._said_at = -core.config.pulse.prompt_us
        self.alives_sent = 0
        self.vote_by = NEVER
        """When a burst of mine has to follow what is ordered here: under ToTo only nodes of the DAG are votes."""

    @property
    def alive_us(self) -> int:
        return self._core.config.pulse.alive_us * self._crowd

    @property
    def _crowd(self) -> int:
        return max(1, len(self._core.view) // CROWD)

    def begin_view(self) -> None:
        """Everybody in a new view says so at once: who has flushed it and hears me installs it, too."""
        self.vote_by = NEVER
        if self._core.view.is_singleton:
            self._core.timers.cancel(Event.ALIVE_DUE, Event.NACK_DUE, Event.ANSWER_DUE)
        else:
            self._say()

    def owe(self, node: Node) -> None:
        """A burst of somebody else entered the DAG. Others wait for my word if it is ordered, or if the window fills."""
        core, view = self._core, self._core.view
        if core.frozen is not None:
            return
        by = core.now + core.config.pulse.prompt_us * self._crowd
        if node.is_ordered and core.config.order == "toto":
            self.vote_by = min(self.vote_by, by)
        elif node.is_ordered or view.graph.held_datagrams * CROWDED > core.config.window.window:
            self._hurry(by)

    def _hurry(self, at: int) -> None:
        if at < self._due_at or not self._core.timers.armed(Event.ALIVE_DUE):
            self._arm(at)

    def paid(self) -> None:
        """I sent a burst: it acknowledges everything, its timestamp is a promise, and it is a vote."""
        self.vote_by = NEVER
        if not self._core.view.is_singleton:
            self._arm(self._core.now + self.alive_us)

    def alive_due(self) -> None:
        self._say()

    def alive_now(self) -> None:
        """Somebody seems to be in a view that I have left: one ALIVE tells it, and one is enough for a while."""
        core = self._core
        if not core.view.is_singleton and core.now >= self._said_at + core.config.pulse.prompt_us:
            self._say()

    def nack_due(self) -> None:
        """Nothing left in time that could have carried my requests."""
        if self._core.view.requests.due_at() <= self._core.now:
            self._say()

    def _say(self) -> None:
        core, view = self._core, self._core.view
        frozen = core.frozen
        recv = tuple(view.graph.inserted) if frozen is None else frozen.recv
        clock = core.clock if frozen is None else frozen.clock
        alive = Alive(view.tag, view.rank, frozen is not None, core.counter, clock, recv, self._repair.take_nacks())
        core.emit(Send(Audience.RING, Port.CONTROL, core.in_parts(encode_alive(alive))))
        self.alives_sent += 1
        self._said_at = core.now
        self._arm(core.now + self.alive_us)

    def figures(self) -> dict[str, int]:
        return {"alives_sent": self.alives_sent}

    def _arm(self, at: int) -> None:
        self._due_at = at
        self._core.timers.arm(Event.ALIVE_DUE, at)
