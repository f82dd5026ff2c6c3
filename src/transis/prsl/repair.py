"""Repair: green content that cannot be read here is fetched from another replica, which has it under the same id.

1. The order itself is not repaired: it cannot be guessed, and who lost it must be replaced (core.py, `found`).
2. Until it is repaired a replica votes as before, and does not count as one that has the content: its STATE tells a `held_from`
   behind the damage.
3. One replica of the view after the other is asked for the one place, as somebody asks who is behind (catchup.py).
"""

from __future__ import annotations

from typing import Final

from transis.prsl.core import Core, Round, Stage
from transis.prsl.log import Kept
from transis.prsl.messages import Ask, BulkMessage, Chunk
from transis.types.ids import ProcessId

ASKED_MAX: Final = 16
"""Places that are asked for at the same time: a disk that is full of damage must not keep the others busy."""


class Repair:
    def __init__(self, core: Core) -> None:
        self._core = core
        self._view = 0
        self._asked: dict[int, list[ProcessId]] = {}
        """For each place who may have it, and was not asked in vain."""

    def ask(self) -> None:
        """For what is damaged and was not asked for in this view."""
        core, round_ = self._core, self._core.round
        if not core.damaged or round_ is None or round_.stage <= Stage.CONTENT:
            return
        if round_.tag != self._view:
            self._view, self._asked = round_.tag, {}
        for place in sorted(core.damaged):
            if place not in self._asked and sum(map(bool, self._asked.values())) < ASKED_MAX:
                self._asked[place] = self._providers(round_, place)
                self._ask_next(place)

    def _providers(self, round_: Round, place: int) -> list[ProcessId]:
        """All who did not say that they have it not; they may have got it in this view."""
        others = [(state.number, sender) for sender, state in round_.states.items() if state.held_from <= place]
        return [sender for number, sender in sorted(others) if number != self._core.number]

    def _ask_next(self, place: int) -> None:
        providers = self._asked[place]
        if providers:
            self._core.send_to(providers[0], Ask(self._view, place, place + 1))

    def heard(self, sender: ProcessId, message: BulkMessage) -> bool:
        """Whether it was an answer to this."""
        place, providers = message.place, self._asked.get(message.place)
        if isinstance(message, Ask) or not providers or sender != providers[0] or message.view != self._view:
            return False
        action = message.actions[0] if isinstance(message, Chunk) and len(message.actions) == 1 else None
        if action is None or action.id != self._core.damaged.get(place):
            providers.pop(0)
            self._ask_next(place)
            return True
        providers.clear()
        self._core.journal.write(Kept(action))
        self._core.journal.then(lambda: self._repaired(place))
        return True

    def _repaired(self, place: int) -> None:
        self._core.damaged.pop(place, None)
        self._asked.pop(place, None)
