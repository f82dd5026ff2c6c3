"""From green to the application: delivery in order, snapshots, trimming, and what is stable.

1. An action is handed over when it is green and the order up to it is synced *here* (R6): else a power cut of all could give its
   place to another one after the application saw it.
2. After a start delivery begins behind the newest snapshot, and the same is delivered again.
3. Who finds its own LEAVE green delivers nothing behind it. It goes on answering until a majority of those who stay have told
   that they know (R26), and stops then.
4. Trimmed is what is below the newest synced snapshot and on the disk of every member (or older than `keep_places`); not while an
   exchange may have told that it is here (R23).
"""

from __future__ import annotations

from transis.prsl.actions import Action
from transis.prsl.core import Core, Stage
from transis.prsl.keys import Keys
from transis.prsl.log import Snapshot, Taken, Trimmed
from transis.prsl.outputs import Effect, LeaveGroup, LoadSnapshot, Ordered, Refused, StableTo, TakeSnapshot
from transis.prsl.prefix import Base, Prefix, next_digest


class Delivery:
    def __init__(self, core: Core, snapshot: Snapshot) -> None:
        self._core = core
        self.snapshot = snapshot
        self._taken: dict[int, Snapshot] = {}
        self._stable = (0, 0)
        self._is_loading = False
        self._go_on_from(snapshot)

    def _go_on_from(self, snapshot: Snapshot) -> None:
        self.prefix = Prefix(snapshot.base)
        self._keys = Keys(snapshot.keys, snapshot.evicted_to, self._core.config.keys_max)
        self.left_at = 0
        core, numbers = self._core, self.prefix.numbers
        own = [one for one in core.log.content.values() if one.id.creator == core.number and one.id not in numbers]
        self.own_waiting = sum(action.size for action in own)
        """Bytes of own actions that were not delivered yet."""
        self._has_left()

    # --- delivery -----------------------------------------------------------------------------------------------------

    def deliver(self) -> None:
        core, prefix = self._core, self.prefix
        ready = min(core.log.green.place, core.journal.durable)
        if self.left_at or core.is_stopped:
            return
        if prefix.place < ready:
            for action in core.log.actions(prefix.place, ready):
                self._hand_over(action)
                if action.id.lane and self._has_left():
                    break
            core.find_number()
        self.tell_stable()

    def _hand_over(self, action: Action) -> None:
        prefix = self.prefix
        effect, first = Effect.RUN, 0
        if prefix.is_void(action):
            effect = Effect.VOID
        elif action.key:
            effect, first = self._keys.use(action.key, action.at, prefix.offset)
        self._core.outputs.append(Ordered(prefix.place, prefix.offset, action, effect, first))
        prefix.take(action)
        if action.id.creator == self._core.number:
            self.own_waiting -= action.size

    def _has_left(self) -> bool:
        number = self._core.number
        if not number or self.prefix.record.entry(number) is None or number in self.prefix.record.members:
            return False
        self.left_at = self.prefix.place
        numbers = self.prefix.numbers
        lost = tuple(sorted(one for one in self._core.log.content if one.creator == number and one not in numbers))
        if lost:
            self._core.outputs.append(Refused(lost, "this replica was removed from the group before they were ordered"))
        return True

    def stop_if_free(self) -> None:
        """Its LEAVE is known where it matters: whoever of the others are together can go on without it (R26)."""
        core = self._core
        if not self.left_at or core.is_stopped:
            return
        members = core.log.green.record.members
        knowing = [number for number in members if core.peer(number).green >= self.left_at]
        if 2 * len(knowing) > len(members):
            core.outputs.append(LeaveGroup("removed from the group of replicas"))
            core.stop("this replica was removed from the group, and the others know")

    # --- stable -------------------------------------------------------------------------------------------------------

    def white_line(self) -> int:
        """How much of the order is on the disk of every member."""
        core = self._core
        return min((core.peer(number).line for number in core.log.green.record.members), default=0)

    def tell_stable(self) -> None:
        core = self._core
        place = min(self.white_line(), self.prefix.place)
        acked = min((core.peer(number).acked for number in core.log.green.record.members), default=0)
        stable = (max(place, self._stable[0]), max(min(acked, self.prefix.offset), self._stable[1]))
        if stable != self._stable:
            self._stable = stable
            core.outputs.append(StableTo(*stable))

    # --- snapshots ----------------------------------------------------------------------------------------------------

    def take_snapshot(self) -> None:
        """Ask the application for its state at the place where it is; not while it is told to go on from another one."""
        if self._is_loading:
            return
        snapshot = Snapshot(self.prefix.base(), self._keys.known(), self._keys.evicted_to)
        self._taken[self.prefix.place] = snapshot
        self._core.outputs.append(TakeSnapshot(snapshot))

    def snapshot_written(self, place: int) -> None:
        """It is complete and synced. Older ones that are still being written are not needed."""
        snapshot = self._taken.pop(place, None)
        if snapshot is None or place <= self.snapshot.base.place:
            return
        self._taken = {later: taken for later, taken in self._taken.items() if later > place}
        self.snapshot = snapshot
        self._core.journal.write(Taken(snapshot))
        self.trim()

    def trim(self) -> None:
        core = self._core
        round_ = core.round
        if round_ is not None and round_.stage in (Stage.STATES, Stage.CONTENT):
            return
        keep = core.config.keep_places
        others = self.white_line() if keep is None else core.log.green.place - keep
        place = min(self.snapshot.base.place, others)
        if place <= core.log.base.place or (core.config.explicit_ack and self._is_needed(place)):
            return
        base = core.log.base_at(place)
        core.log.trim(base)
        core.journal.write(Trimmed(base))
        core.write_marks()

    def _is_needed(self, place: int) -> bool:
        """Whether the application has not acknowledged all before the place yet."""
        return self._core.log.base_at(place).offset > self._core.acked

    def load(self, snapshot: Snapshot) -> None:
        """Another replica's snapshot takes the place of all before it. What follows stays if it begins with the same."""
        core = self._core
        base = snapshot.base
        rest = core.log.ids(base.place, core.log.end) if self._agrees(base) else []
        core.journal.cap(core.log.green.place)
        core.log.load(base, rest)
        self.snapshot = snapshot
        self._go_on_from(snapshot)
        core.replace_loaded(base, rest)
        core.journal.write(Taken(snapshot))
        core.acknowledge(max(core.acked, base.offset))
        core.find_number()
        self._is_loading = True
        core.journal.then(lambda: self._loaded(snapshot))

    def _loaded(self, snapshot: Snapshot) -> None:
        self._is_loading = False
        self._core.outputs.append(LoadSnapshot(snapshot))

    def _agrees(self, base: Base) -> bool:
        log = self._core.log
        if log.end < base.place:
            return False
        digest = log.green.digest
        for action in log.ids(log.green.place, base.place):
            digest = next_digest(digest, action)
        return digest == base.digest
