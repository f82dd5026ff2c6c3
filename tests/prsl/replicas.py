"""A replica as its host runs it, on a disk that forgets what was not synced, and with an application that can be compared."""

from __future__ import annotations

from collections import deque
from random import Random
from typing import NamedTuple

from tests.prsl.streams import Arrival, File, Streams
from transis.prsl.actions import ActionId
from transis.prsl.log import Opened, Snapshot, Stored, StoreRecord
from transis.prsl.machine import Config, Machine, first_base
from transis.prsl.messages import Ack, Attempt, Posted, State, decode_message
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
from transis.prsl.votes import Voting
from transis.sim.replicas.ledger import Ledger, Violation
from transis.types.ids import NodeId, ProcessId
from transis.types.views import GroupView


class Crash(Exception):
    """The process dies here."""


class Files(NamedTuple):
    """What an application had saved at a place: its state, and which actions it had seen."""

    state: int
    seen: frozenset[ActionId]


class Disk:
    """`stored` is synced. Of what is written behind it, a crash keeps any beginning."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.stored = Stored(first_base(config))
        self.open: deque[tuple[int, tuple[StoreRecord, ...]]] = deque()
        self.files: dict[int, Files] = {0: Files(0, frozenset())}
        self.life = 0

    def begin_life(self) -> None:
        """A process opens it."""
        self.life += 1

    def opened(self) -> Opened:
        return self.stored.opened()

    def sync(self) -> int:
        ticket, records = self.open.popleft()
        for record in records:
            self.stored.apply(record)
        return ticket

    @property
    def voting(self) -> Voting | None:
        """As it will be when all is synced that is written."""
        written = [record for _, records in self.open for record in records if isinstance(record, Voting)]
        return written[-1] if written else self.stored.voting

    def crash(self, kept: int) -> None:
        for _ in range(kept):
            self.sync()
        self.open.clear()


class Cluster:
    """What replicas share: the streams, the ledger, and the luck of the schedule."""

    def __init__(self, random: Random, crashes: float = 0.0) -> None:
        self.random = random
        self.crashes = crashes
        """How likely a replica dies before an output is carried out."""
        self.streams = Streams()
        self.ledger = Ledger()
        self.replicas: dict[str, Replica] = {}
        self.disks: dict[str, Disk] = {}
        self.numbers: dict[int, Disk] = {}
        """The disk of each replica that was ever a member, by its number."""
        self.lost: set[int] = set()
        """Numbers of replicas whose disk is gone for good."""
        self.boots = 0
        self.counts: dict[str, int] = {}

    def count(self, what: str, by: int = 1) -> None:
        self.counts[what] = self.counts.get(what, 0) + by

    def process(self, name: str) -> ProcessId:
        self.boots += 1
        return ProcessId(NodeId(name, self.boots, self.boots), 1)


class Replica:
    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster, self.name = cluster, name
        self.disk = disk = cluster.disks[name]
        disk.begin_life()
        self.process = cluster.process(name)
        cluster.streams.connect(self.process)
        self.is_in_group = False
        self.is_hung = False
        self.stopped = ""
        self.stable = StableTo(0, 0, 0)
        files = disk.files[disk.stored.snapshot.base.place]
        self.state, self.seen = files.state, set(files.seen)
        self.wants_more = False
        self.machine = Machine(disk.config._replace(life=disk.life), disk.opened())

    def start(self) -> None:
        self.machine.start()
        self.carry_out()

    # --- inputs -------------------------------------------------------------------------------------------------------

    def handle(self, event: GroupView | Arrival | File) -> None:
        if isinstance(event, GroupView):
            self.machine.view(event, self.process)
        elif isinstance(event, File):
            assert isinstance(event.content, Files)
            self.disk.files[event.snapshot.base.place] = event.content
            self.machine.snapshot_received(event.snapshot)
        elif event.is_private:
            self.machine.bulk(event.sender, event.payload)
        else:
            self.machine.message(event.sender, event.payload)
        self.carry_out()

    def sync(self, many: int = 1) -> None:
        """So many commits end."""
        for _ in range(min(many, len(self.disk.open))):
            if self.disk.open and not self.is_hung:
                self.machine.persisted(self.disk.sync())
                self.carry_out()
        if self.wants_more:
            self.wants_more = False
            self.machine.deliver_more()
            self.carry_out()

    def post(self, messages: list[bytes], key: bytes = b"", at: int = 0) -> None:
        seen = frozenset(self.seen.union(action.id for action in self.machine.dirty()))
        action = self.machine.post(messages, key=key, at=at)
        if isinstance(action, ActionId):
            self.cluster.ledger.post(action, frozenset(one for one in seen if not one.lane))
            self.cluster.count("posted")
        self.carry_out()

    def admin(self, what: What, name: str = "", directory: bytes = b"", number: int = 0) -> None:
        action = self.machine.admin(what, name=name, directory=directory, number=number)
        if isinstance(action, ActionId):
            self.cluster.ledger.post(action, frozenset())
            self.cluster.count("changes")
        self.carry_out()

    def bring_up(self, provider: ProcessId) -> None:
        self.machine.bring_up(provider)
        self.carry_out()

    def take_snapshot(self) -> None:
        self.machine.take_snapshot()
        self.carry_out()

    def acknowledge(self) -> None:
        """The application says how far it is, or somewhat less."""
        self.machine.acknowledge(self.cluster.random.randint(0, self.machine.status().offset))
        self.carry_out()

    def tell_line(self) -> None:
        self.machine.tell_line()
        self.carry_out()

    def trim(self) -> None:
        self.machine.trim()
        self.carry_out()

    def tell_hung(self, is_hung: bool) -> None:
        self.machine.hung(is_hung)
        self.carry_out()

    def reconnect(self) -> None:
        """The session was lost; the replica has a new one, and is in no group yet."""
        self.machine.lost()
        self.carry_out()
        self.process = self.cluster.process(self.name)
        self.cluster.streams.connect(self.process)
        if self.is_in_group:
            self.cluster.streams.join(self.process)

    # --- outputs ------------------------------------------------------------------------------------------------------

    def carry_out(self) -> None:
        cluster = self.cluster
        for output in self.machine.take():
            if cluster.crashes and cluster.random.random() < cluster.crashes:
                raise Crash
            self._carry_out(output)
        primary = self.machine.primary
        if primary is not None and (self.disk.voting is None or self._is_in_primary()):
            cluster.ledger.primary(self.name, *primary)
        if self.machine.number:
            cluster.numbers[self.machine.number] = self.disk

    def _carry_out(self, output: Output) -> None:
        streams, ledger = self.cluster.streams, self.cluster.ledger
        match output:
            case Append():
                self.disk.open.append(output)
            case Multicast(payload, is_safe):
                self._check_said(payload)
                if self.is_in_group:
                    streams.submit(self.process, payload, is_safe)
            case Bulk(to, payload):
                self.cluster.count("bulk")
                streams.tell(self.process, to, payload)
            case Accepted(ids):
                ledger.accepted.update(ids)
            case Ordered():
                if self.disk.stored.end <= output.place:
                    raise Violation(f"delivered_is_synced: {self.name} delivers place {output.place} before it is on its disk")
                self.state = ledger.deliver(self.name, output, self.state)
                self.seen.add(output.action.id)
            case MoreToDeliver():
                self.cluster.count("read from disk")
                self.wants_more = True
            case StableTo():
                self._check_stable(output)
            case Refused(ids):
                ledger.refused.update(ids)
            case TakeSnapshot(snapshot):
                self._take_snapshot(snapshot)
            case LoadSnapshot(snapshot):
                files = self.disk.files[snapshot.base.place]
                self.state, self.seen = files.state, set(files.seen)
            case SendSnapshot(to, snapshot):
                self._send_snapshot(to, snapshot)
            case JoinGroup():
                streams.join(self.process)
                self.is_in_group = True
            case LeaveGroup():
                self.leave_group()
            case Stopped(why):
                self.stopped = why

    def leave_group(self) -> None:
        self.cluster.streams.leave(self.process)
        self.is_in_group = False
        self.process = self.cluster.process(self.name)
        self.cluster.streams.connect(self.process)

    def _take_snapshot(self, snapshot: Snapshot) -> None:
        """The file is synced at once; the machine writes down later that it is there."""
        self.disk.files[snapshot.base.place] = Files(self.state, frozenset(self.seen))
        self.cluster.count("snapshots")
        self.machine.snapshot_written(snapshot.base.place)
        self.carry_out()

    def _send_snapshot(self, to: ProcessId, snapshot: Snapshot) -> None:
        self.cluster.count("snapshots sent")
        self.cluster.streams.bring(to, File(snapshot, self.disk.files[snapshot.base.place]))

    # --- checks -------------------------------------------------------------------------------------------------------

    def _check_said(self, payload: bytes) -> None:
        message, stored = decode_message(payload), self.disk.stored
        match message:
            case Posted(_, action, line, is_primary):
                synced = action.id in stored.content and stored.end >= line
                synced = synced and (not is_primary or self._is_in_primary())
            case Ack(_, places, _, acked):
                synced = stored.end >= places and stored.marks.acked >= acked and self._is_in_primary()
            case Attempt() if stored.voting is not None:
                synced = stored.voting.vulnerable is not None and stored.voting.vulnerable.attempt == stored.voting.attempt
            case Attempt():
                synced = stored.marks.attempted > stored.marks.committed
            case State():
                reds = {(creator, lane, n) for creator, lane, first, last in message.red for n in range(first, last + 1)}
                synced = stored.marks.committed >= message.committed and stored.marks.attempted >= message.attempted
                synced = synced and stored.end >= message.end and reds <= set(stored.content)
                synced = synced and stored.voting == message.voting
            case _:
                synced = True
        if not synced:
            raise Violation(f"said_is_synced: {self.name} says {type(message).__name__} before it is on its disk")

    def _is_in_primary(self) -> bool:
        """Whether the primary that the machine is in is on its disk."""
        primary, stored = self.machine.primary, self.disk.stored
        synced = stored.marks.committed if stored.voting is None else stored.voting.primary.index
        return primary is None or synced >= primary[0]

    def check_changes(self) -> None:
        """A primary always holds a majority of every configuration that counts, so it can finish what it has begun."""
        status = self.machine.status()
        if status.is_primary and not all(record.has_majority(status.here) for record in status.counting):
            raise Violation(
                f"joint_majorities: {self.name} is in a primary that holds no majority of a change that it made yellow"
            )

    def _check_stable(self, stable: StableTo) -> None:
        """What is new in it. What was stable before somebody joined stays stable, and says nothing about the newcomer."""
        ledger, before, self.stable = self.cluster.ledger, self.stable, stable
        for number in self.machine.status().record.members:
            if number in self.cluster.lost:
                continue
            disk = self.cluster.numbers.get(number)
            end = disk.stored.end if disk is not None else 0
            start = disk.stored.base.place if disk is not None else 0
            order = disk.stored.order if disk is not None else []
            if before.place < stable.place and (
                end < stable.place or order[: max(0, stable.place - start)] != ledger.order[start : stable.place]
            ):
                raise Violation(f"stable_is_everywhere: {self.name} says {stable.place}, replica {number} has {end}")
            if before.majority < stable.majority:
                self._check_majority(stable.majority)
            if before.acked < stable.acked and (disk.stored.marks.acked if disk is not None else 0) < stable.acked:
                raise Violation(f"stable_is_everywhere: {self.name} says that {stable.acked} was acknowledged by {number}")

    def _check_majority(self, place: int) -> None:
        disks = [self.cluster.numbers.get(number) for number in self.machine.status().record.members]
        synced = [disk for disk in disks if disk is not None and disk.stored.end >= place]
        if 2 * len(synced) <= len(disks):
            raise Violation(f"durable_at_a_majority: {self.name} says {place}, which {len(synced)} of {len(disks)} have")
