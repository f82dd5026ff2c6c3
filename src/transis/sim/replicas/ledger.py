"""What must hold for all time, whatever a schedule does. Each check is written from the promise, not from the machine.

replicated_order      the i-th action is the same everywhere, also before crashes; so is the application's state behind it
replicated_fifo       actions of one creator in the order of their numbers
replicated_causal     an action comes behind all that its poster's application could have seen
accepted_never_lost   what was accepted is ordered in the end
ordered_never_lost    what was ordered once is in the order in the end (it follows from the order, and is looked at again)
one_primary           one committed primary has one view
stable_is_everywhere  what is called stable is on the disk of every member, and acknowledged by every application
exactly_once_keys     an action with a client key runs at most once
said_is_synced        what a message reveals is on the disk of its sender
delivered_is_synced   what is delivered is in the order on the disk of who delivers it

Schedules of tests and the simulator hold their replicas against the same ledger.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from hashlib import blake2b
from typing import Final

from transis.prsl.actions import Action, ActionId
from transis.prsl.machine import Machine, Status
from transis.prsl.outputs import Effect, Ordered

STATE_SIZE: Final = 8
"""Bytes of an application's state."""


class Violation(Exception):
    """A promise was broken; begins with the name of the check."""


def unfinished(machine: Machine) -> Status | None:
    """The status of a member that has not ordered all that it knows. A newcomer whose JOIN was never ordered is no member."""
    status = machine.status()
    if not status.number or status.number not in status.record.members:
        return None
    reds = [action for action in machine.dirty() if not action.id.lane]
    is_busy = not status.is_primary or status.is_behind or status.yellow or status.out or reds
    return status if is_busy else None


class Ledger:
    """What the whole world saw."""

    def __init__(self) -> None:
        self.order: list[ActionId] = []
        self.offsets: list[int] = [0]
        self.states: list[int] = [0]
        """The application's state behind each place, as it was when the place was first delivered anywhere."""
        self.placed: dict[ActionId, int] = {}
        self.posted: dict[ActionId, frozenset[ActionId]] = {}
        """Each posted action, with all that its poster could have seen."""
        self.accepted: set[ActionId] = set()
        self.ran: dict[bytes, int] = {}
        self.primaries: dict[int, int] = {}
        self.refused: set[ActionId] = set()
        self.checked: Counter[str] = Counter()
        """How often each promise was looked at."""

    def post(self, action: ActionId, seen: frozenset[ActionId]) -> None:
        self.posted[action] = seen

    def deliver(self, where: str, ordered: Ordered, state: int) -> int:
        """The action is delivered at a replica whose state before it is given; returns the state behind it."""
        place, action = ordered.place, ordered.action
        self.checked["replicated_order"] += 1
        if self.states[place] != state:
            raise Violation(f"replicated_order: the state before place {place} differs at {where}")
        if place == len(self.order):
            self._append(where, action, ordered)
        elif self.order[place] != action.id:
            raise Violation(f"replicated_order: place {place} is {self.order[place]}, and at {where} {action.id}")
        if ordered.offset != self.offsets[place]:
            raise Violation(f"replicated_order: place {place} has offset {self.offsets[place]}, at {where} {ordered.offset}")
        after = next_state(state, ordered)
        if len(self.states) == place + 1:
            self.states.append(after)
        if self.states[place + 1] != after:
            raise Violation(f"replicated_order: place {place} did something else at {where}: {ordered.effect.name}")
        return after

    def _append(self, where: str, action: Action, ordered: Ordered) -> None:
        creator, lane, number = action.id
        self.checked.update(("replicated_fifo", "replicated_causal"))
        if action.id in self.placed:
            raise Violation(
                f"replicated_order: {action.id} has the places {self.placed[action.id]} and {ordered.place} at {where}"
            )
        if not lane and number > 1 and ActionId(creator, lane, number - 1) not in self.placed:
            raise Violation(f"replicated_fifo: {action.id} before its predecessor at {where}")
        if creator and action.id not in self.posted:
            raise Violation(f"replicated_order: {action.id} was never posted")
        for seen in self.posted.get(action.id, ()):
            if seen not in self.placed:
                raise Violation(f"replicated_causal: {action.id} before {seen}, which its poster had seen, at {where}")
        if action.key and ordered.effect == Effect.RUN:
            self.checked["exactly_once_keys"] += 1
            if action.key in self.ran:
                raise Violation(f"exactly_once_keys: a key ran at {self.ran[action.key]} and at {ordered.place}")
            self.ran[action.key] = ordered.place
        self.placed[action.id] = ordered.place
        self.order.append(action.id)
        self.offsets.append(ordered.offset + action.count)

    def primary(self, where: str, number: int, tag: int) -> None:
        self.checked["one_primary"] += 1
        if self.primaries.setdefault(number, tag) != tag:
            raise Violation(f"one_primary: {where} is in another primary {number}")

    def all_is_ordered(self, lost: Iterable[int], with_changes: bool) -> None:
        """At the end: everything that was accepted by replicas whose disks are there. A change may be held back for good, if so
        many are away that what it makes would have no majority."""
        gone = set(lost)
        accepted = {action for action in self.accepted - self.refused if with_changes or not action.lane}
        self.checked["accepted_never_lost"] += len(accepted)
        missing = sorted(action for action in accepted if action.creator not in gone and action not in self.placed)
        if missing:
            raise Violation(f"accepted_never_lost: {', '.join(map(str, missing[:5]))} of {len(missing)} have no place")


def next_state(state: int, ordered: Ordered) -> int:
    """What an application might compute: everything that it is told goes into it."""
    effect = (ordered.effect, ordered.first if ordered.effect == Effect.AGAIN else 0)
    told = b"%d %b %b" % (state, repr((tuple(ordered.action.id), effect)).encode(), ordered.action.data)
    return int.from_bytes(blake2b(told, digest_size=STATE_SIZE).digest(), "big")
