"""What the orderings share. Which view may give places, and when a place is final, is what corel.py and engine.py differ in.

    view → exchange done (`settle`) → attempt → primary: what is delivered gets a place

1. Nothing of an exchange is adopted before its content is in the log (R2).
2. Own actions are sent when they are synced, in their order, in a view that is settled; while it was not, they waited.
3. A replica that was behind is `complete` later than the others, and takes part from there (R3).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import ClassVar, Final

from transis.prsl.actions import Action, ActionId
from transis.prsl.core import Core, Round
from transis.prsl.exchange import Exchange
from transis.prsl.messages import Ack, Posted
from transis.prsl.plan import Plan
from transis.prsl.record import Entry, Record, founding


class Ordering(ABC):
    needs_everybody: ClassVar[bool]
    """A member that cannot write holds up the others in a primary too, so that it leaves at once (R16)."""

    def __init__(self, core: Core, exchange: Exchange, deliver: Callable[[], None]) -> None:
        self._core = core
        self._exchange = exchange
        self._deliver: Final = deliver

    # --- what an ordering decides -------------------------------------------------------------------------------------

    @abstractmethod
    def start(self) -> None:
        """The directory is open."""

    @abstractmethod
    def leave(self, round_: Round) -> None:
        """The next regular view is here. A session that is lost is no view: then this is not called (R9)."""

    @abstractmethod
    def settle(self, round_: Round) -> bool:
        """The exchange is done, at this place for all. Returns whether all content did come, so that who is behind may ask."""

    @abstractmethod
    def complete(self, round_: Round) -> None:
        """This replica was behind and is no more."""

    @abstractmethod
    def caught_up(self, round_: Round, number: int) -> None:
        """Another one was behind and is no more."""

    @abstractmethod
    def attempt(self, round_: Round, number: int) -> None:
        """A replica wants this view to be the next primary."""

    @abstractmethod
    def posted(self, round_: Round, number: int, message: Posted) -> None:
        """An action is delivered."""

    @abstractmethod
    def ack(self, round_: Round, number: int, ack: Ack) -> None:
        """A replica tells what it has on its disk."""

    @abstractmethod
    def synced(self, round_: Round) -> None:
        """More of the order may be on this disk."""

    @abstractmethod
    def acknowledge(self, round_: Round) -> None:
        """Tell what is on this disk, and what the application acknowledged."""

    @abstractmethod
    def is_free(self, left_at: int) -> bool:
        """Whether the others can go on without this replica, whose LEAVE is before this place of the order (R26)."""

    @abstractmethod
    def look_on(self) -> None:
        """This replica has left by its own order, and is not free yet."""

    @abstractmethod
    def state(self, round_: Round | None) -> str:
        """For people."""

    # --- the end of an exchange ---------------------------------------------------------------------------------------

    def _has_all(self, round_: Round, plan: Plan, more: Iterable[ActionId] = ()) -> bool:
        """Whether what was told did come. Only a STATE that tells what nobody has can make the difference."""
        content, green = self._core.log.content, self._core.log.green.place
        places = () if round_.is_behind else range(green, plan.green.place)
        wanted = (*plan.tail, *plan.others, *more)
        has_all = all(one in content for one in wanted) and all(place in round_.greens for place in places)
        if not has_all:
            self._core.trouble = "the exchange ended without all content: a replica told what nobody has"
        return has_all

    def _fits(self, round_: Round, record: Record) -> bool:
        """Whether everybody here has the directory that the record has under its number (R18)."""
        entries = [(record.entry(state.number), state) for state in round_.states.values()]
        fits = not record.is_founded or all(entry is None or entry.directory == state.directory for entry, state in entries)
        if not fits:
            self._core.trouble = "a replica here is not the one that the group was founded with: its directory is another one"
        return fits

    def _put_in_log(self, round_: Round, plan: Plan, order: Iterable[ActionId]) -> None:
        """The order from the plan's green place on becomes this; below it, what was sent for those who are near."""
        core, green = self._core, plan.green.place
        start = core.log.green.place
        if start > green:
            core.replace(start, list(order)[start - green :])
            return
        missing = [round_.greens[place] for place in range(start, green)]
        for action in missing:
            core.keep(action)
        core.replace(start, [*(action.id for action in missing), *order])

    def _founding(self, round_: Round) -> Action:
        """The first action of all says whose directory is whose (R32). Everybody builds it; nobody posts it."""
        action = founding([Entry(state.number, state.name, state.directory) for state in round_.states.values()])
        self._core.keep(action)
        return action

    # --- own actions --------------------------------------------------------------------------------------------------

    def _send_out(self, round_: Round) -> None:
        for action in self._core.log.out:
            self.send(round_, action)

    def send(self, round_: Round, action: ActionId) -> None:
        """When it is on this disk."""
        self._core.then(round_, lambda: self._send(round_, action) if action in self._core.log.out else None)

    @abstractmethod
    def _send(self, round_: Round, action: ActionId) -> None:
        """It is on this disk."""


def plan_of(round_: Round) -> Plan:
    assert round_.plan is not None
    return round_.plan
