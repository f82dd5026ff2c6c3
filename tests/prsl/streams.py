"""The streams of one process group, as extended virtual synchrony allows them: no packets, no time, no daemons.

A *component* is a regular view with one log. What a process submits waits in its outbox until it is originated, maybe in a later
view. Each member has received some of the log and was handed a prefix of that: up to the first gap, and up to the first safe
message of which it has not learned that all members received it. When a view ends, those who stay together share what they have
and have learned: that much is handed over in the regular view, the rest up to the first gap in the transitional one, and behind
the gap only what members of the transitional view sent. A process lags behind: it takes events from its inbox when it likes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from transis.prsl.log import Snapshot
from transis.types.ids import NodeId, Place, ProcessId, ViewId, ViewKind
from transis.types.views import GroupCause, GroupView, GroupViewId, group_id

GROUP = group_id("accounts")


class Arrival(NamedTuple):
    """A message as it is handed to a process; `is_private` if it was not sent to the group."""

    sender: ProcessId
    payload: bytes
    is_private: bool = False
    is_safe: bool = False


class File(NamedTuple):
    """A snapshot from another replica, complete."""

    snapshot: Snapshot
    content: object


class Component:
    def __init__(self, members: Sequence[ProcessId], number: int) -> None:
        self.members = tuple(sorted(members))
        self.number = number
        self.log: list[Arrival] = []
        self.received: dict[ProcessId, set[int]] = {member: set() for member in members}
        self.reached: dict[ProcessId, int] = dict.fromkeys(members, 0)
        """How far each has everything."""
        self.handed: dict[ProcessId, int] = dict.fromkeys(members, 0)
        self.learned: dict[ProcessId, int] = dict.fromkeys(members, 0)
        """How far each knows that everybody has everything."""

    def get(self, member: ProcessId, index: int) -> None:
        received, reached = self.received[member], self.reached[member]
        if index == reached:
            reached += 1
            while reached in received:
                received.discard(reached)
                reached += 1
            self.reached[member] = reached
        elif index > reached:
            received.add(index)

    def get_all(self, member: ProcessId) -> None:
        self.received[member].clear()
        self.reached[member] = len(self.log)

    def has(self, member: ProcessId, index: int) -> bool:
        return index < self.reached[member] or index in self.received[member]

    def regular_end(self, start: int, reached: int, learned: int) -> int:
        """How far messages from `start` on belong into the regular view."""
        held = (index for index in range(max(start, learned), reached) if self.log[index].is_safe)
        return next(held, max(start, reached))


class Streams:
    """Processes that are up are in exactly one component each."""

    def __init__(self) -> None:
        self.component: dict[ProcessId, Component] = {}
        self.inbox: dict[ProcessId, deque[GroupView | Arrival | File]] = {}
        self.outbox: dict[ProcessId, deque[tuple[bytes, bool]]] = {}
        self._numbers = 0
        self.alter: Callable[[bytes], bytes] = bytes
        """What becomes of a message on its way: nothing, unless a test makes somebody talk nonsense."""

    def connect(self, process: ProcessId) -> None:
        """A new process, in no group yet."""
        self.inbox[process] = deque()
        self.outbox[process] = deque()

    def join(self, process: ProcessId) -> None:
        """It is alone in its first view."""
        self._install((process,))

    def disconnect(self, process: ProcessId) -> None:
        """It is gone, and its daemon with it; the others have not noticed. What it had handed over may have been sent or not."""
        self.component.pop(process, None)
        del self.inbox[process], self.outbox[process]

    def leave(self, process: ProcessId) -> None:
        """Its daemon lives: the others get all that was sent, and a regular view without a transitional one (R8)."""
        component = self.component.get(process)
        if component is None:
            self.disconnect(process)
            return
        stay = [member for member in component.members if member != process and self.component.get(member) is component]
        whole = len(stay) == len(component.members) - 1
        self.disconnect(process)
        if not stay or not whole:
            return  # somebody else is missing too: what follows is a change of configuration
        for member in stay:
            component.get_all(member)
            component.learned[member] = len(component.log)
            self.hand_over(member)
        self._install(stay)

    def submit(self, process: ProcessId, payload: bytes, is_safe: bool = False) -> None:
        self.outbox[process].append((self.alter(payload), is_safe))

    def originate(self, process: ProcessId) -> bool:
        outbox, component = self.outbox[process], self.component[process]
        if not outbox:
            return False
        payload, is_safe = outbox.popleft()
        component.log.append(Arrival(process, payload, False, is_safe))
        component.get(process, len(component.log) - 1)
        return True

    def tell(self, sender: ProcessId, to: ProcessId, payload: bytes) -> None:
        """A private message; it comes, or the configuration changes."""
        if to in self.inbox:
            self.inbox[to].append(Arrival(sender, payload, True))

    def receive_all(self, process: ProcessId) -> None:
        self.component[process].get_all(process)

    def receive(self, process: ProcessId, index: int) -> None:
        self.component[process].get(process, index)

    def learn(self, process: ProcessId, to: Callable[[int, int], int] = max) -> None:
        """It learns what everybody has, or less: `to` says how much, between what it knew and what there is."""
        component = self.component[process]
        component.learned[process] = to(component.learned[process], min(component.reached.values()))

    def hand_over(self, process: ProcessId) -> None:
        component = self.component[process]
        start = component.handed[process]
        end = component.regular_end(start, component.reached[process], component.learned[process])
        if start < end:
            self.inbox[process].extend(component.log[start:end])
            component.handed[process] = end

    def bring(self, to: ProcessId, file: File) -> None:
        if to in self.inbox:
            self.inbox[to].append(file)

    # --- changes of configuration ---------------------------------------------------------------------------------------

    def together(self, *parts: Iterable[ProcessId]) -> None:
        """From now on these are together, each part by itself."""
        for part in parts:
            members = tuple(sorted(process for process in part if process in self.component))
            olds = {self.component[member].number: self.component[member] for member in members}
            if members and not (len(olds) == 1 and next(iter(olds.values())).members == members):
                for old in olds.values():
                    self._end(old, [member for member in members if self.component[member] is old])
                self._install(members)

    def _end(self, old: Component, stay: list[ProcessId]) -> None:
        known = [any(old.has(member, index) for member in stay) for index in range(len(old.log))]
        gap = known.index(False) if False in known else len(known)
        first, learned = min(old.handed[member] for member in stay), max(old.learned[member] for member in stay)
        end = old.regular_end(first, gap, learned) if len(stay) < len(old.members) else gap
        for member in stay:
            inbox = self.inbox[member]
            inbox.extend(old.log[old.handed[member] : end])
            if len(stay) < len(old.members):
                inbox.append(self._view(ViewKind.TRANSITIONAL, old.number, stay))
                inbox.extend(old.log[end:gap])
                inbox.extend(old.log[index] for index in range(gap, len(known)) if known[index] and old.log[index].sender in stay)

    def _install(self, members: Sequence[ProcessId]) -> None:
        self._numbers += 1
        component = Component(members, self._numbers)
        view = self._view(ViewKind.REGULAR, self._numbers, component.members)
        for member in members:
            self.component[member] = component
            self.inbox[member].append(view)

    def _view(self, kind: ViewKind, number: int, members: Sequence[ProcessId]) -> GroupView:
        members = tuple(sorted(members))
        view = GroupViewId(ViewId(kind, 4 * number, NodeId("ring", 1, 1)), Place(0, 0))
        return GroupView(GROUP, "accounts", view, members, (), (), (), GroupCause("schedule"))
