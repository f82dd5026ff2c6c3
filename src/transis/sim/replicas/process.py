"""One process that runs a replica: the machine of `prsl`, its directory, and a session with the node of its computer.

1. It handles one piece of news at a time, and carries out what follows before the next; it may die before any output.
2. The disk syncs all that was written when it began. While it hangs nothing is synced; the machine is told after `patience_us`.
3. Who leaves the process group ends the session and opens another: what was still on its way to the old one is nobody's.
4. What the machine says and delivers is held against the ledger at once, and against what is on the disk.
"""

from __future__ import annotations

import traceback
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from transis.prsl.actions import ActionId
from transis.prsl.core import Stage
from transis.prsl.log import Snapshot
from transis.prsl.machine import Machine
from transis.prsl.outputs import (
    Accepted,
    Append,
    Bulk,
    JoinGroup,
    LeaveGroup,
    LoadSnapshot,
    MoreToDeliver,
    Multicast,
    Ordered,
    Output,
    Refused,
    SendSnapshot,
    StableTo,
    Stopped,
    TakeSnapshot,
)
from transis.prsl.record import What
from transis.sim.replicas.directory import Directory
from transis.sim.replicas.ledger import STATE_SIZE, Violation
from transis.sim.replicas.record import ReplicaRecord, plain
from transis.sim.replicas.sessions import GROUP, TO_GROUP, Asked, Event, Lost, Request, Session, private_address
from transis.types.errors import Rejection
from transis.types.ids import ProcessId, Service
from transis.types.views import GroupView

if TYPE_CHECKING:
    from transis.sim.replicas.group import ReplicationGroup

FROM_MACHINE = b"\0"
SNAPSHOT_FILE = b"\1"
"""The first byte of a private message."""


class SnapshotFile(NamedTuple):
    """A snapshot as it travels: what the machine knows of it, and the application's state."""

    snapshot: Snapshot
    state: bytes


_FILES = msgspec.msgpack.Decoder(SnapshotFile)


class ReplicaProcess:
    def __init__(self, group: ReplicationGroup, directory: Directory) -> None:
        self.group = group
        self.directory = directory
        self.name = directory.name
        self.is_dead = False
        self.why_stopped = ""
        self.session: Session | None = None
        self.is_in_group = False
        self.crash_after = -1
        self.inbox: deque[Event] = deque()
        stored = directory.open()
        self._place = stored.snapshot.base.place
        self.state = int.from_bytes(directory.snapshots[self._place], "big")
        """Of the application, which has been given everything before `_place`."""
        self.machine = Machine(directory.config._replace(life=directory.life), stored.opened())
        self._world = group.world
        self._drawn = group.drawn
        self.record = ReplicaRecord(group.world, GROUP, directory, group.boots.bits64())
        self._lag_us = self._drawn.pick(group.plan.lags_us)
        self._is_busy = False
        self._sync_number = 0
        self._syncing = 0
        """How many writes the disk is syncing."""
        self._is_stuck = False
        self._was_told_hung = False
        self._stable = StableTo(0, 0)
        self._last_stage: Stage | None = None
        self._has_left = False
        self._last_primary: tuple[int, int] | None = None

    def start(self) -> None:
        self._step(self.machine.start)

    # --- what reaches it ----------------------------------------------------------------------------------------------

    def connect(self) -> None:
        """Open a session with the node of this computer, if it runs; the group goes on with whoever was in it."""
        self.session = self.group.open_session(self)
        if self.session is not None and self.is_in_group:
            self._ask(Request(Asked.JOIN))

    def drop_session(self) -> None:
        """The connection breaks; what was on its way to either side is gone."""
        self.inbox.clear()
        self._close_session()
        self.hear(Lost())

    def hear(self, event: Event) -> None:
        self.inbox.append(event)
        if not self._is_busy:
            self._is_busy = True
            self._later(self._lag_us, self._work)

    def _work(self) -> None:
        self._is_busy = False
        if self.inbox:
            event = self.inbox.popleft()
            self._step(lambda: self._handle(event))
        if self.inbox and not self._is_busy:
            self._is_busy = True
            self._later(self._lag_us, self._work)

    def _handle(self, event: Event) -> None:
        if isinstance(event, Lost):
            self.session = None
            self.machine.lost()
            self.group.count("session lost")
            self.group.connect_later(self)
        elif isinstance(event, GroupView):
            self._view(event)
        elif not event.is_private:
            self.machine.message(event.sender, event.payload)
        elif event.payload[:1] == FROM_MACHINE:
            self.machine.bulk(event.sender, event.payload[1:])
        else:
            self._receive_snapshot(event.payload[1:])

    def _view(self, view: GroupView) -> None:
        me = self.session.process if self.session is not None else None
        if me is None or not self.is_in_group:
            return
        self.machine.view(view, me)
        if view.id.configuration.is_regular:
            self._later(self.group.plan.silence_us, lambda: self._step(lambda: self._complain(view)))

    def _complain(self, view: GroupView) -> None:
        """Somebody in the view has not told its STATE for long."""
        status = self.machine.status()
        if status.stage == Stage.STATES:
            self.group.count("silent process")
            self.machine.silent(status.untold)

    # --- what its application and its administrator do ------------------------------------------------------------------

    def post(self, messages: list[bytes], key: bytes = b"", at: int = 0) -> None:
        def act() -> None:
            seen = self.group.ledger.order[: self._place]
            dirty = [action.id for action in self.machine.dirty()]
            posted = self.machine.post(messages, key=key, at=at)
            if isinstance(posted, ActionId):
                self.record.posted(posted, len(messages), key, [*seen, *dirty])
            self._note(posted, "posted", [*seen, *dirty])

        self._step(act)

    def admin(self, what: What, name: str = "", directory: bytes = b"", number: int = 0) -> None:
        def act() -> None:
            asked = self.machine.admin(what, name=name, directory=directory, number=number)
            if isinstance(asked, ActionId):
                self.record.posted(asked, 0, b"", [])
            self._note(asked, f"{what.name.lower()} asked for", [])

        self._step(act)

    def _note(self, asked: ActionId | Rejection, what: str, seen: list[ActionId]) -> None:
        if isinstance(asked, ActionId):
            self.group.ledger.post(asked, frozenset(one for one in seen if not one.lane))
            self.group.count(what)
        else:
            self.group.count(f"refused: {asked.field}")

    def bring_up(self, provider: ProcessId) -> None:
        self._step(lambda: self.machine.bring_up(provider))

    def take_snapshot(self) -> None:
        self._step(self.machine.take_snapshot)

    def trim(self) -> None:
        self._step(self.machine.trim)

    def acknowledge(self) -> None:
        """The application has done with what it got, or with somewhat less."""
        self._step(lambda: self.machine.acknowledge(self._drawn.between(0, self.machine.status().offset)))

    # --- the disk -------------------------------------------------------------------------------------------------------

    def sync(self) -> None:
        """Begin, if there is something to sync and nothing is under way."""
        if self._syncing or not self.directory.unsynced:
            return
        self._sync_number += 1
        self._syncing = len(self.directory.unsynced)
        number = self._sync_number
        self._later(self.group.sync_us(), self._synced)
        self._later(self.group.plan.patience_us, lambda: self._is_late(number))

    def disk_goes_on(self) -> None:
        """It does not hang any more: what it was about to sync is synced after all."""
        if self._is_stuck:
            self._is_stuck = False
            self._later(self.group.sync_us(), self._synced)

    def _synced(self) -> None:
        if self.directory.home in self.group.hung:
            self._is_stuck = True
            return
        tickets = self.directory.sync(self._syncing)
        self.record.step("synced", number=self.machine.number, place=self.directory.stored.end)
        self._syncing = 0
        for ticket in tickets:
            self._step(partial(self.machine.persisted, ticket))
        self._tell_hung(False)
        if not self.is_dead:
            self.sync()

    def _is_late(self, number: int) -> None:
        if number == self._sync_number and self._syncing:
            self._tell_hung(True)

    def _tell_hung(self, is_hung: bool) -> None:
        if is_hung != self._was_told_hung:
            self._was_told_hung = is_hung
            self.group.count("disk hangs" if is_hung else "disk goes on")
            self._step(lambda: self.machine.hung(is_hung))

    def rest(self) -> None:
        """The run has ended, and everything is as it should be."""
        self.record.step("rest", number=self.machine.number, place=self._place)

    @property
    def is_idle(self) -> bool:
        return not (self.inbox or self._is_busy or self.directory.unsynced)

    # --- death ----------------------------------------------------------------------------------------------------------

    def die(self) -> None:
        """Of its unsynced writes any beginning may be on the disk."""
        if self.is_dead:
            return
        self.is_dead = True
        self.record.end("stopped" if self.why_stopped else "failed")
        self.directory.crash(self._drawn.between(0, self.directory.unsynced_bytes))
        self._close_session()
        self.group.died(self)

    def _close_session(self) -> None:
        session, self.session = self.session, None
        if session is not None:
            self.group.close_session(self.directory.home, session)

    # --- steps ----------------------------------------------------------------------------------------------------------

    def _later(self, time_us: int, act: Callable[[], None]) -> None:
        self._world.at(self._world.now + time_us, self._if_alive, act)

    def _if_alive(self, act: Callable[[], None]) -> None:
        if not self.is_dead and not self.group.is_over:
            act()

    def _step(self, act: Callable[[], None]) -> None:
        """Whatever goes wrong is a finding, and the end of this run's replicas."""
        if self.is_dead or self.group.is_over:
            return
        self.group.ledger.checked["replicas_run"] += 1
        try:
            act()
            self._carry_out()
        except Violation as violation:
            self.group.broken(str(violation))
        except Exception:
            self.group.broken(f"replicas_run: {self.name} raised:\n{traceback.format_exc()}")

    def _carry_out(self) -> None:
        for output in self.machine.take():
            if self.crash_after == 0:
                self.group.log(f"replica {self.name} dies before {type(output).__name__}")
                self.die()
                return
            self.crash_after -= self.crash_after > 0
            self._carry(output)
        self._look()
        if self.why_stopped:
            self.group.stopped(self)
        else:
            self.sync()

    def _look(self) -> None:
        group, machine = self.group, self.machine
        status = machine.status()
        group.saw(self, status, self._last_stage)
        self._last_stage = status.stage
        if machine.number:
            group.numbers[machine.number] = self.directory
        if status.number and status.number not in status.record.members and not self._has_left:
            self._has_left = True
            self.record.step("left", number=status.number)
        if machine.primary is not None:
            group.ledger.primary(self.name, *machine.primary)
            if machine.primary != self._last_primary:
                self._last_primary = machine.primary
                self.record.step("primary", number=machine.primary[0], tag=machine.primary[1])

    def _carry(self, output: Output) -> None:
        ledger = self.group.ledger
        match output:
            case Append(ticket, records):
                self.directory.write(ticket, records)
            case Multicast(payload, is_safe):
                if self.is_in_group:
                    self._ask(Request(Asked.SEND, TO_GROUP, payload, Service.SAFE if is_safe else Service.AGREED))
            case Bulk(to, payload):
                self.group.count("bulk message")
                self._ask(Request(Asked.SEND, private_address(to), FROM_MACHINE + payload))
            case Accepted(ids):
                ledger.accepted.update(ids)
                for one in ids:
                    self.record.step("accepted", **plain(one))
            case Ordered():
                self._deliver(output)
            case StableTo():
                self.group.check_stable(self, self._stable, output)
                self._stable = output
                members = self.machine.status().record.members
                self.record.step("stable", place=output.place, offset=output.acked, members=members)
            case Refused(ids):
                ledger.refused.update(ids)
                for one in ids:
                    self.record.step("refused", **plain(one))
            case MoreToDeliver():
                self.group.count("delivered from disk")
                self._later(self._lag_us, lambda: self._step(self.machine.deliver_more))
            case TakeSnapshot() | LoadSnapshot() | SendSnapshot():
                self._carry_snapshot(output)
            case JoinGroup():
                self._join()
            case LeaveGroup():
                self._leave()
            case Stopped(why):
                self.why_stopped = why

    def _deliver(self, ordered: Ordered) -> None:
        ledger = self.group.ledger
        ledger.checked["delivered_is_synced"] += 1
        if self.directory.stored.end <= ordered.place:
            raise Violation(f"delivered_is_synced: {self.name} delivers place {ordered.place} before it is on its disk")
        self.state = ledger.deliver(self.name, ordered, self.state)
        self._place = ordered.place + 1
        self.record.ordered(ordered, self.state)
        self.group.count(f"delivered to {ordered.effect.name.lower()}")

    def _ask(self, request: Request) -> None:
        if self.session is not None:
            self.group.ask(self.directory.home, self.session, request)

    def _join(self) -> None:
        if not self.is_in_group:
            self.is_in_group = True
            self._ask(Request(Asked.JOIN))

    def _leave(self) -> None:
        self.is_in_group = False
        self.inbox.clear()
        self._close_session()
        self.connect()

    # --- snapshots ------------------------------------------------------------------------------------------------------

    def _carry_snapshot(self, output: TakeSnapshot | LoadSnapshot | SendSnapshot) -> None:
        place = output.snapshot.base.place
        match output:
            case TakeSnapshot():
                state = self.state.to_bytes(STATE_SIZE, "big")
                self.record.step("taken", place=place, state=state)
                self._save(place, state, lambda: self.machine.snapshot_written(place))
                self.group.count("snapshot taken")
            case LoadSnapshot():
                self.state, self._place = int.from_bytes(self.directory.snapshots[place], "big"), place
                self.record.step("loaded", place=place, state=self.directory.snapshots[place])
                self.group.count("snapshot loaded")
            case SendSnapshot(to, snapshot):
                file = SnapshotFile(snapshot, self.directory.snapshots[place])
                self._ask(Request(Asked.SEND, private_address(to), SNAPSHOT_FILE + msgspec.msgpack.encode(file)))
                self.group.count("snapshot sent")

    def _receive_snapshot(self, content: bytes) -> None:
        file = _FILES.decode(content)
        self._save(file.snapshot.base.place, file.state, lambda: self.machine.snapshot_received(file.snapshot))

    def _save(self, place: int, state: bytes, then: Callable[[], None]) -> None:
        """A file of its own, which is there when it is synced, and not before."""

        def saved() -> None:
            if self.directory.home in self.group.hung:
                self._later(self.group.plan.patience_us, saved)
                return
            self.directory.snapshots[place] = state
            self._step(then)

        self._later(self.group.sync_us(), saved)
