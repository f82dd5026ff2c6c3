"""From green to the application: delivery in order, snapshots, trimming, and what is stable.

1. An action is handed over when it is green and the order up to it is synced *here* (R6): else a power cut of all could give its
   place to another one after the application saw it.
2. After a start delivery begins behind the newest snapshot, and the same is delivered again.
3. Who finds its own LEAVE green delivers nothing behind it. It goes on answering until a majority of those who stay have told
   that they know (R26), and stops then.
4. Trimmed is what is below the newest synced snapshot and on the disk of every member (or older than `keep_places`); not while an
   exchange may have told that it is here (R23). It ends at a checkpoint, whose base is on disk.
5. What is below the memory's floor is handed over in pieces, each when the host has done with the one before.
"""

from __future__ import annotations

from collections.abc import Iterable

from transis.prsl.actions import KEY_SIZE, Action
from transis.prsl.core import Core, Stage
from transis.prsl.keys import Keys
from transis.prsl.log import Checked, Ineffective, Opened, Snapshot, Taken
from transis.prsl.outputs import Effect, LeaveGroup, LoadSnapshot, MoreToDeliver, Ordered, Refused, StableTo, TakeSnapshot
from transis.prsl.prefix import Base, Prefix, next_digest


class Delivery:
    def __init__(self, core: Core, opened: Opened) -> None:
        self._core = core
        self.snapshot = opened.snapshot
        self._taken: dict[int, Snapshot] = {}
        self._stable = (0, 0, 0)
        self._loading = 0
        """Snapshots of other replicas that the application has not been told to load yet."""
        self._waits_for_host = False
        self._go_on_from(opened.snapshot if core.config.is_replayed else opened.checkpoint)

    def _go_on_from(self, snapshot: Snapshot) -> None:
        self.prefix = Prefix(snapshot.base)
        self._keys = Keys(snapshot.keys, snapshot.evicted_to, self._core.config.keys_max)
        self.left_at = 0
        core, numbers = self._core, self.prefix.numbers
        self._counted_from = core.log.floor.place
        own = [one for one in core.log.content.values() if one.id.creator == core.number and one.id not in numbers]
        self.own_waiting = sum(action.size for action in own)
        """Bytes of own actions that were not delivered yet, beside those that are delivered again."""
        self._has_left()

    # --- delivery -----------------------------------------------------------------------------------------------------

    def deliver(self) -> None:
        core = self._core
        if self.left_at or core.is_stopped:
            return
        ready = min(core.log.green.place, core.journal.durable)
        if self.prefix.place < ready:
            self._deliver_to(ready)
            core.find_number()
        self.tell_stable()

    def _deliver_to(self, ready: int) -> None:
        log, place = self._core.log, self.prefix.place
        if place >= log.floor.place:
            self._hand_over(log.actions(place, ready))
            self._check()
        elif not self._waits_for_host and (batch := self._core.batch(place, ready)):
            self._waits_for_host = True
            self._hand_over(batch)
            self._core.outputs.append(MoreToDeliver())

    def deliver_more(self) -> None:
        self._waits_for_host = False
        self.deliver()

    def _hand_over(self, actions: Iterable[Action]) -> None:
        for action in actions:
            self._hand_one_over(action)
            if action.id.lane and self._has_left():
                return

    def _check(self) -> None:
        """A checkpoint when the log has grown so much that writing all client keys again does not count."""
        core, keys = self._core, self._keys
        if self.prefix.size - core.log.floor.size > max(core.config.tail_max, 4 * len(keys) * (KEY_SIZE + 8)):
            core.check(Snapshot(self.prefix.base(), keys.known(), keys.evicted_to))

    def _hand_one_over(self, action: Action) -> None:
        prefix = self.prefix
        effect, first = Effect.RUN, 0
        if prefix.is_void(action):
            effect = Effect.VOID
        elif action.key:
            effect, first = self._keys.use(action.key, action.at, prefix.offset)
        self._core.outputs.append(Ordered(prefix.place, prefix.offset, action, effect, first))
        if effect != Effect.RUN and prefix.place >= self._core.log.floor.place:
            self._core.journal.write(Ineffective(prefix.place, effect))
        prefix.take(action)
        if action.id.creator == self._core.number and prefix.place > self._counted_from:
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

    def stop(self) -> None:
        """Its LEAVE is known where it matters: whoever of the others are together can go on without it (R26)."""
        self._core.outputs.append(LeaveGroup("removed from the group of replicas"))
        self._core.stop("this replica was removed from the group, and the others know")

    # --- stable -------------------------------------------------------------------------------------------------------

    def white_line(self) -> int:
        """How much of the order is on the disk of every member."""
        core = self._core
        return min((core.peer(number).line for number in core.log.green.record.members), default=0)

    def _majority_line(self) -> int:
        """How much of what was delivered is on the disks of a majority. With corel that is all of it, and not told."""
        core = self._core
        if core.voting is None:
            return 0
        lines = sorted((core.peer(number).line for number in core.log.green.record.members), reverse=True)
        line = lines[len(lines) // 2] if lines else 0
        return max(self._stable[2], min(line, self.prefix.place))

    def tell_stable(self) -> None:
        core = self._core
        place = min(self.white_line(), self.prefix.place)
        acked = min((core.peer(number).acked for number in core.log.green.record.members), default=0)
        stable = (max(place, self._stable[0]), max(min(acked, self.prefix.offset), self._stable[1]), self._majority_line())
        if stable != self._stable:
            self._stable = stable
            core.outputs.append(StableTo(*stable))

    # --- snapshots ----------------------------------------------------------------------------------------------------

    def take_snapshot(self) -> None:
        """Ask the application for its state at the place where it is; not while it is told to go on from another one."""
        if self._loading:
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
        base = self._base_before(min(self.snapshot.base.place, others))
        if base is None or base.place <= core.log.base.place:
            return
        if base.place > core.log.floor.place:
            core.journal.write(Checked(self.snapshot))
        core.trim(base)

    def _base_before(self, place: int) -> Base | None:
        """The last one that is not behind the place, nor behind what the application has not acknowledged yet."""
        core, base = self._core, self.snapshot.base
        offset = core.acked if core.config.explicit_ack else base.offset
        return base if base.place <= place and base.offset <= offset else core.base_before(place, offset)

    def load(self, snapshot: Snapshot) -> None:
        """Another replica's snapshot takes the place of all before it. What follows stays if it begins with the same."""
        core = self._core
        base = snapshot.base
        rest = core.log.ids(base.place, core.log.end) if self._agrees(base) else []
        core.journal.cap(core.log.green.place)
        core.log.load(base, rest)
        self.snapshot = snapshot
        self._go_on_from(snapshot)
        core.replace_loaded(snapshot, rest)
        core.journal.write(Taken(snapshot))
        core.acknowledge(max(core.acked, base.offset))
        core.find_number()
        self._loading += 1
        core.journal.then(lambda: self._loaded(snapshot))

    def _loaded(self, snapshot: Snapshot) -> None:
        self._loading -= 1
        self._core.outputs.append(LoadSnapshot(snapshot))

    def _agrees(self, base: Base) -> bool:
        log = self._core.log
        if log.end < base.place:
            return False
        digest = log.green.digest
        for action in log.ids(log.green.place, base.place):
            digest = next_digest(digest, action)
        return digest == base.digest
