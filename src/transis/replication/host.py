"""The host of a replica: joins the machine without I/O (prsl) with the writer of its directory, its sessions, and clocks.

1. Everything runs in one event loop; the writer's thread only calls back into it. An input is handled in one step, and what the
   machine hands out is carried out in order before the next.
2. A commit that takes longer than `patience` makes the disk *hung*, and so does a disk that refuses; a process whose STATE does
   not come for so long is *silent*. Nothing else is decided by a clock.
3. A broken invariant ends the replica: everything that waits gets the reason, and what is on disk stays as it is.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, TypeVarTuple

from transis.client.events import Batch, View
from transis.client.session import Session
from transis.prsl.actions import ActionId, Kind
from transis.prsl.core import Config, Stage
from transis.prsl.log import Snapshot, StoreRecord
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
from transis.replication.attachment import Attachment, Connect
from transis.replication.newcomers import WAITS, Newcomer, Search, decode, encode
from transis.replication.posts import Waiting, wake
from transis.replication.scrub import PAUSE_S, Scrub
from transis.replication.snapshots import SnapshotFiles
from transis.replication.store import Store
from transis.replication.transfer import SNAPSHOT, SnapshotTransfer
from transis.replication.writer import Writer
from transis.types.errors import Rejection, TransisError
from transis.types.ids import ProcessId, Service

PATIENCE_S: Final = 2.0
"""How long a commit may take, and a STATE may not come."""
TICKS: Final = 4
"""Looks at the clock in this time."""

NEWCOMERS_MAX: Final = 64
"""Newcomers that are remembered."""

Arguments = TypeVarTuple("Arguments")
News = Accepted | Ordered | StableTo | Refused | TakeSnapshot | LoadSnapshot


class Application(NamedTuple):
    """What becomes of actions is told here, in order; and why the replica ended, if it did."""

    hear: Callable[[News], None]
    ended: Callable[[str], None]


class Host:
    def __init__(self, store: Store, group: str, config: Config, connect: Connect, application: Application) -> None:
        self.store: Final = store
        self.machine: Final = Machine(config, store.opened)
        self.attachment: Final = Attachment(group, connect, self)
        self.files: Final = SnapshotFiles(store.path)
        self.transfer: Final = SnapshotTransfer(self.files, self.attachment.tell, self._snapshot_received)
        self.seen: dict[int, float] = {}
        """When each replica was last in a view with this one, by the loop's clock."""
        self.newcomers: dict[str, bytes] = {}
        """Who waits to become a replica: the identity of its directory by its name."""
        self.newcomers_waiting: Waiting = []
        self.disk_trouble = ""
        self.why_ended = ""
        self._application = application
        self._loop = asyncio.get_running_loop()
        self._writer = Writer(store, self._from_thread(self._synced), self._from_thread(self._refused))
        self._commits: deque[tuple[int, float]] = deque()
        self._final = self._shown = 0
        self._is_hung = False
        self._view_began = 0.0
        self._newcomer = Newcomer(config.name, config.directory)
        self._search = Search()
        self._brought_up_to = 0
        self._tasks: list[asyncio.Task[None]] = []

    # --- life -----------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._input(self.machine.start)
        works = (self.attachment.run, self._tick, self._scrub)
        self._tasks = [asyncio.ensure_future(self._run(work)) for work in works]

    async def close(self) -> None:
        """End the sessions, and write what waits if the disk takes it."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.to_thread(self._writer.close)

    async def _run(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except Exception as error:
            self._fail(error)
            raise

    def _fail(self, error: Exception) -> None:
        self.end(f"a bug: {error!r}. The directory is as it was: start this replica again")

    def end(self, why: str) -> None:
        """Take part no more. What is on disk stays, and can be read here."""
        if not self.why_ended:
            self.why_ended = why
            for task in self._tasks:
                task.cancel()
            self._application.ended(why)

    @property
    def trouble(self) -> str:
        """What is wrong, for people; empty if nothing is."""
        is_slow = self._is_hung and not self.disk_trouble
        slow = f"{self.store.path}: the disk does not answer" if is_slow else ""
        return self.why_ended or self.disk_trouble or slow or self.transfer.trouble or self.attachment.trouble

    # --- inputs of the application ----------------------------------------------------------------------------------------

    def post(self, messages: list[bytes], kind: Kind, key: bytes, at: int, posted: int) -> ActionId | Rejection:
        return self._asked(lambda: self.machine.post(messages, kind=kind, key=key, at=at, posted=posted))

    def admin(self, what: What, name: str, directory: bytes, number: int) -> ActionId | Rejection:
        return self._asked(lambda: self.machine.admin(what, name=name, directory=directory, number=number))

    def take_snapshot(self) -> None:
        self._input(self.machine.take_snapshot)

    def snapshot_written(self, place: int) -> None:
        self._input(self.machine.snapshot_written, place)
        self.files.keep_newest()

    def _snapshot_received(self, snapshot: Snapshot) -> None:
        self._input(self.machine.snapshot_received, snapshot)

    def acknowledge(self, offset: int) -> None:
        self._input(self.machine.acknowledge, offset)

    def _asked(self, ask: Callable[[], ActionId | Rejection]) -> ActionId | Rejection:
        if self.why_ended:
            return Rejection("stopped", self.why_ended)
        answer: list[ActionId | Rejection] = []
        self._input(lambda: answer.append(ask()))
        return answer[0]

    # --- inputs of the sessions -------------------------------------------------------------------------------------------

    def connected(self, session: Session[bytes]) -> None:
        """Nothing to tell the machine: it hears of the group when a view comes."""

    def lost(self) -> None:
        self._note_who_is_here()
        self._input(self.machine.lost)

    def view(self, view: View, me: ProcessId) -> None:
        self._note_who_is_here()
        self._view_began = self._loop.time()
        self._input(self.machine.view, view, me)

    def batch(self, batch: Batch[bytes]) -> None:
        """Only agreed and safe messages have one place for all; a stranger may send others."""
        if batch.service >= Service.AGREED:
            for payload in batch.payloads:
                self._input(self.machine.message, batch.sender, payload)

    def private(self, sender: ProcessId, payload: bytes) -> None:
        if payload[:1] == WAITS:
            newcomer = decode(payload)
            if not isinstance(newcomer, Rejection):
                self._note_newcomer(newcomer)
        elif payload[:1] == SNAPSHOT:
            self.transfer.hear(sender, payload)
        else:
            self._input(self.machine.bulk, sender, payload)

    def _note_newcomer(self, newcomer: Newcomer) -> None:
        """The last ones that told of themselves; strangers may tell anything."""
        self.newcomers.pop(newcomer.name, None)
        self.newcomers[newcomer.name] = newcomer.directory
        if len(self.newcomers) > NEWCOMERS_MAX:
            del self.newcomers[next(iter(self.newcomers))]
        wake(self.newcomers_waiting)

    # --- inputs of the disk -----------------------------------------------------------------------------------------------

    def _from_thread(self, act: Callable[..., None]) -> Callable[..., None]:
        def call(*arguments: object) -> None:
            self._loop.call_soon_threadsafe(act, *arguments)

        return call

    def _synced(self, tickets: list[int]) -> None:
        for ticket in tickets:
            self._commits.popleft()
            self._input(self.machine.persisted, ticket)
        self._tell_hung()

    def _refused(self, why: str) -> None:
        self.disk_trouble = why
        self._tell_hung()

    def _tell_hung(self) -> None:
        is_late = bool(self._commits) and self._loop.time() - self._commits[0][1] > PATIENCE_S
        is_hung = bool(self.disk_trouble) or is_late
        if is_hung != self._is_hung:
            self._is_hung = is_hung
            self._input(self.machine.hung, is_hung)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(PATIENCE_S / TICKS)
            self._tell_hung()
            self._exclude_silent()
            await self._look_for_members()

    async def _look_for_members(self) -> None:
        """A newcomer tells all members that it waits, and asks the next one if the last one says nothing more."""
        session, status = self.attachment.session, self.machine.status()
        if status.number or session is None:
            return
        try:
            members, next_one = await self._search.next_member(session, self.attachment.group)
        except TransisError:
            return
        for member in members:
            self.attachment.tell(member, encode(self._newcomer))
        if next_one is not None and status.green == self._brought_up_to:
            self._input(self.machine.bring_up, next_one)
        self._brought_up_to = status.green

    async def _scrub(self) -> None:
        """Damage is repaired from others, or ends this replica with a sentence (prsl/repair.py)."""
        scrub = Scrub(self.store.path)
        while True:
            await asyncio.sleep(PAUSE_S)
            damage = await asyncio.to_thread(scrub.step)
            if damage is not None:
                self._input(self.machine.damaged, damage)

    def _exclude_silent(self) -> None:
        status = self.machine.status()
        if status.stage == Stage.STATES and status.untold and self._loop.time() - self._view_began > PATIENCE_S:
            self._view_began = self._loop.time()
            self._input(self.machine.silent, status.untold)

    # --- outputs ------------------------------------------------------------------------------------------------------

    def _input(self, act: Callable[[*Arguments], None], *arguments: *Arguments) -> None:
        if self.why_ended:
            return
        try:
            act(*arguments)
            while outputs := self.machine.take():
                for output in outputs:
                    self._carry_out(output)
            self._show()
        except Exception as error:
            self._fail(error)
            raise

    def _carry_out(self, output: Output) -> None:
        attachment = self.attachment
        match output:
            case Append(ticket, records):
                self._write(ticket, records)
            case Multicast(payload, is_safe):
                attachment.send(payload, Service.SAFE if is_safe else Service.AGREED)
            case Bulk(to, payload):
                attachment.tell(to, payload)
            case JoinGroup():
                attachment.join()
            case LeaveGroup():
                attachment.leave()
            case SendSnapshot(to, snapshot):
                self.transfer.send(to, snapshot)
            case Stopped(why):
                self.end(why)
            case MoreToDeliver():
                self._loop.call_soon(self._input, self.machine.deliver_more)
            case Ordered(place):
                self._final = place + 1
                self._application.hear(output)
            case _:
                self._application.hear(output)

    def _show(self) -> None:
        """What was handed over is for everybody who may read the directory."""
        if self._final > self._shown:
            self._shown = self._final
            self._writer.show(self._shown)

    def _write(self, ticket: int, records: tuple[StoreRecord, ...]) -> None:
        self._commits.append((ticket, self._loop.time()))
        self._writer.write(ticket, records)

    def _note_who_is_here(self) -> None:
        now = self._loop.time()
        for number in self.machine.status().here:
            self.seen[number] = now
