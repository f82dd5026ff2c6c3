"""Replicas step by step: worked examples decide what is sent, heard and synced, and when.

A story begins with a founded group, whose directories are known, and with disks as some earlier schedule could have left them.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from tests.prsl.replicas import Cluster, Disk, Replica
from tests.prsl.schedules import NAMES
from transis.prsl.actions import Action, ActionId, Kind, Lane
from transis.prsl.core import Config
from transis.prsl.log import Kept, Marks, Placed, Stored
from transis.prsl.prefix import Base, beginning
from transis.prsl.record import Entry, Record

LARGE = 200 * 1024
"""Bytes of messages of which only one fits into a chunk or a retransmission."""


def action(creator: int, number: int, lts: int = 1, deps: tuple[tuple[int, int], ...] = (), size: int = 1) -> Action:
    data = bytes([creator]) * size
    return Action(ActionId(creator, Lane.MESSAGES, number), Kind.DATA, lts, deps, (size,), data)


class Story:
    def __init__(self, replicas: int, **options: object) -> None:
        self.cluster = Cluster(Random(1))
        self.streams = self.cluster.streams
        self.names = NAMES[:replicas]
        entries = tuple(Entry(number, name, bytes([number]) * 16) for number, name in enumerate(self.names, 1))
        self.base = beginning(Record(1, entries, tuple(range(1, replicas + 1))))
        self.options = options
        for entry in entries:
            self.new_disk(entry.name, entry.directory, self.base)

    def new_disk(self, name: str, directory: bytes, base: Base) -> Disk:
        disk = Disk(Config(name, directory, (), **self.options))  # type: ignore[arg-type]
        disk.stored = Stored(base)
        self.cluster.disks[name] = disk
        return disk

    def disk(self, name: str, order: Sequence[Action] = (), red: Sequence[Action] = (), **marks: int) -> None:
        """What is on a disk when the story begins. `green` is how much of the order is green, `committed` the last primary."""
        stored = self.cluster.disks[name].stored
        for one in (*order, *red):
            stored.apply(Kept(one))
            self.cluster.ledger.posted.setdefault(one.id, frozenset(self._depended(one)))
        stored.apply(Placed(0, tuple(one.id for one in order)))
        stored.apply(Marks(**marks))

    @staticmethod
    def _depended(one: Action) -> list[ActionId]:
        return [ActionId(creator, Lane.MESSAGES, number) for creator, number in one.deps]

    def __getitem__(self, name: str) -> Replica:
        return self.cluster.replicas[name]

    # --- what happens -------------------------------------------------------------------------------------------------

    def boot(self, *names: str) -> None:
        for name in names:
            self.cluster.replicas[name] = Replica(self.cluster, name)
            self[name].start()
            self.hear(name)

    def die(self, *names: str) -> None:
        """With their daemons, and with nothing on disk that was not synced."""
        for name in names:
            replica = self.cluster.replicas.pop(name)
            replica.disk.crash(0)
            self.streams.disconnect(replica.process)

    def view(self, *parts: Sequence[str]) -> None:
        """From now on these are together; their members hear of it at once."""
        self.streams.together(*([self[name].process for name in part] for part in parts))

    def send(self, name: str, many: int = 1000) -> None:
        for _ in range(many):
            if not self.streams.originate(self[name].process):
                return

    def receive(self, name: str) -> None:
        self.streams.receive_all(self[name].process)
        self.hand_over(name)

    def hand_over(self, name: str) -> None:
        """With all that everybody has, if it is safe."""
        self.streams.learn(self[name].process)
        self.streams.hand_over(self[name].process)

    def hear(self, name: str, many: int = 1000) -> None:
        for _ in range(many):
            inbox = self.streams.inbox[self[name].process] if name in self.cluster.replicas else None
            if not inbox:
                return
            self[name].handle(inbox.popleft())

    def sync(self, name: str) -> None:
        self[name].sync(1000)

    def rounds(self, *names: str, many: int = 20) -> None:
        """These do all that they can, so often."""
        for _ in range(many):
            for name in names:
                if self[name].is_in_group:
                    self.send(name)
            for name in names:
                if self[name].is_in_group:
                    self.receive(name)
            for name in names:
                if self[name].is_in_group:
                    self.hand_over(name)
            for name in names:
                self.hear(name)
                self.sync(name)

    def form(self, *names: str) -> None:
        """All are up, together, and done."""
        self.boot(*names)
        self.view(names)
        self.rounds(*names)

    def placed(self, one: Action) -> int | None:
        return self.cluster.ledger.placed.get(one.id)
