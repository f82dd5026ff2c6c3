"""One schedule is one seed: replicas on an abstract group, with everything that may happen to them, and then a peaceful end.

First comes trouble: partitions and merges, deaths of processes, daemons and machines, lost sessions, disks that are slow or hang
or are lost, power cuts of all, crashes before any output with any beginning of the unsynced writes kept, posts and retries
anywhere, snapshots, trimming, changes of membership. Then a bare majority, chosen at random, is alone in one view with working
disks, and must order all that it knows in a bounded number of rounds; then all come back, and nothing that was accepted may be
missing.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import NamedTuple

from tests.prsl.replicas import Cluster, Crash, Disk, Replica
from transis.prsl.core import Config
from transis.prsl.record import What
from transis.sim.replicas.ledger import Violation, unfinished
from transis.types.ids import ProcessId

NAMES = ("ann", "bob", "cyd", "dan", "eve")
NEWCOMERS = ("fay", "gus", "hal")
STEPS = 80
POSTS_MAX = 40
ROUNDS_MAX = 60
"""Rounds in which a majority must have ordered everything: in a round everything that is waiting is sent, handed over and synced.
A view needs its exchange, ATTEMPT, ACK; catching up needs two for each chunk; a change of membership an ACK more."""


class Rates(NamedTuple):
    """How likely a step is one of these; else time passes. Drawn for each schedule, so that every mixture is met."""

    fault: float
    post: float
    change: float
    maintenance: float

    @classmethod
    def drawn(cls, random: Random) -> Rates:
        return cls(
            random.choice((0.04, 0.1, 0.2)),
            random.choice((0.05, 0.15, 0.3)),
            random.choice((0.0, 0.0, 0.03, 0.08)),
            random.choice((0.0, 0.05, 0.12)),
        )


class World:
    def __init__(self, seed: int, steps: int = STEPS, ordering: str = "corel") -> None:
        self.random = random = Random(seed)
        self.steps = steps
        self.ordering = ordering
        self.cluster = Cluster(random, random.choice((0.0, 0.001, 0.004)))
        self.names = NAMES[: random.choice((2, 3, 3, 3, 4, 5))]
        self.options = {
            "behind_max": random.choice((0, 150, 400)),
            "keep_places": random.choice((None, 0, 2)),
            "acks_of_all": random.random() < 0.1,
            "explicit_ack": random.random() < 0.2,
            "keys_max": random.choice((2, 3)),
            "tail_max": (0, 150, 1 << 20)[seed % 3],
            "ordering": ordering,
        }
        if ordering == "engine":
            self.options |= {"servers_min": random.choice((1, 1, 1, 2)), "line_stride": random.choice((1, 4, 256))}
        self.rates = Rates.drawn(random)
        self.retries = random.choice((0.0, 0.3, 0.8))
        self.sync = random.choice((0.2, 0.6, 0.95))
        """How likely a disk is done with something in a round."""
        self.eager = random.random() < 0.1
        """Whether snapshots are taken and logs are trimmed all the time."""
        self.replicas = self.cluster.replicas
        self.newcomers = list(NEWCOMERS)
        self.away: set[str] = set()
        """Who is gone for good: a lost disk, or a replica that was removed and knows it."""
        self.keys: list[tuple[bytes, int]] = []
        self.lag = {name: random.choice((0.5, 0.9, 1.0)) for name in (*NAMES, *NEWCOMERS)}
        self.loss = random.choice((0.0, 0.1, 0.4))
        self.healing = random.choice((0.3, 0.6))
        self.posts = 0
        for name in self.names:
            self._new_disk(name, self.names)
        for name in self.names:
            self.boot(name)

    def _new_disk(self, name: str, founders: tuple[str, ...]) -> None:
        directory = self.random.getrandbits(128).to_bytes(16, "big")
        self.cluster.disks[name] = self.make_disk(Config(name, directory, founders, **self.options))

    def make_disk(self, config: Config) -> Disk:
        return Disk(config)

    # --- life and death -----------------------------------------------------------------------------------------------

    def boot(self, name: str) -> None:
        if name not in self.replicas and name not in self.away:
            self.replicas[name] = Replica(self.cluster, name)
            self.guard(name, self.replicas[name].start)

    def kill(self, name: str) -> None:
        """The process dies, alone or with its daemon; of its unsynced writes any beginning may be on the disk."""
        if name not in self.replicas:
            return
        replica = self.replicas.pop(name)
        replica.disk.crash(self.random.randint(0, len(replica.disk.open)))
        if self.random.random() < 0.3:
            self.cluster.streams.leave(replica.process)
            return
        component = self.cluster.streams.component.get(replica.process)
        while component is not None and self.random.random() < 0.5 and self.cluster.streams.originate(replica.process):
            for other in component.members:
                if self.random.random() < 0.5 and self.cluster.streams.component.get(other) is component:
                    component.get_all(other)
        self.cluster.streams.disconnect(replica.process)

    def guard(self, name: str, act: Callable[[], None]) -> None:
        try:
            act()
        except Crash:
            self.kill(name)
        replica = self.replicas.get(name)
        if replica is not None and replica.stopped:
            self.kill(name)
            self.away.add(name)

    # --- trouble ------------------------------------------------------------------------------------------------------

    def step(self) -> None:
        chance, rates = self.random.random(), self.rates
        for rate, act in zip(rates, (self._fault, self._post, self._change, self._maintain), strict=True):
            if chance < rate:
                act()
                break
            chance -= rate
        else:
            self.round(partly=True)
        for name in sorted(set(self.cluster.disks) - set(self.replicas) - self.away):
            if self.random.random() < 0.2:
                self.boot(name)
        self._bring_up_newcomers()
        if self.rates.change and self.ordering == "corel":
            for name in sorted(self.replicas):
                self.replicas[name].check_changes()

    def _fault(self) -> None:
        kind, name = self.random.random(), self._somebody()
        if name is None:
            return
        replica = self.replicas[name]
        if kind < 0.6:
            self._regroup()
        elif kind < 0.75:
            self.kill(name)
        elif kind < 0.82:
            self._lose_session(replica)
        elif kind < 0.9:
            self._hang(replica)
        elif kind < 0.93:
            for one in list(self.replicas):
                self.kill(one)
        elif self.rates.change:
            self._lose_disk(name)

    def _regroup(self) -> None:
        processes = [one.process for one in self.replicas.values() if one.is_in_group]
        if self.random.random() < self.healing:
            self.cluster.streams.together(processes)
            return
        parts: list[list[ProcessId]] = [[] for _ in range(self.random.choice((2, 2, 3)))]
        for process in processes:
            self.random.choice(parts).append(process)
        self.cluster.streams.together(*parts)

    def _lose_session(self, replica: Replica) -> None:
        """The daemon dies and the replica lives on: what was on its way to either is gone, and it comes back as another
        process."""
        if replica.is_in_group:
            self.cluster.count("lost sessions")
            self.cluster.streams.disconnect(replica.process)
            replica.reconnect()

    def _hang(self, replica: Replica) -> None:
        """Commits take longer than patience; or they end again."""
        self.cluster.count("hung")
        replica.is_hung = not replica.is_hung
        if replica.is_hung == (self.random.random() < 0.7):
            self.guard(replica.name, lambda: replica.tell_hung(replica.is_hung))

    def _lose_disk(self, name: str) -> None:
        """Gone for good; sometimes its replacement is asked for, sometimes it is removed later."""
        if self.cluster.lost or len(self.names) < 3:
            return
        number = self.replicas[name].machine.number
        if number and self.cluster.ledger.order:
            self.cluster.count("lost disks")
            self.kill(name)
            self.away.add(name)
            self.cluster.lost.add(number)

    def _somebody(self) -> str | None:
        return self.random.choice(sorted(self.replicas)) if self.replicas else None

    # --- work ---------------------------------------------------------------------------------------------------------

    def _post(self) -> None:
        name = self._somebody()
        if name is None or self.posts == POSTS_MAX:
            return
        self.posts += 1
        replica = self.replicas[name]
        key, at = b"", 0
        if self.random.random() < self.retries:
            key, at = self._key(replica)
        messages = [b"%d.%d" % (self.posts, one) for one in range(self.random.choice((1, 1, 2)))]
        self.guard(name, lambda: replica.post(messages, key, at))

    def _key(self, replica: Replica) -> tuple[bytes, int]:
        """A new key, or a retry of an old one, with the offset that it was first used with."""
        if self.keys and self.random.random() < 0.5:
            return self.random.choice(self.keys)
        self.keys.append((self.random.randbytes(16), replica.machine.status().offset))
        return self.keys[-1]

    def _change(self) -> None:
        name = self._somebody()
        if name is None:
            return
        replica, record = self.replicas[name], self.replicas[name].machine.status().record
        lost = sorted(self.cluster.lost.intersection(record.members))
        if lost and self.random.random() < 0.6:
            self._replace(replica, lost[0])
        elif self.random.random() < 0.5 and len(record.members) > 2:
            number = self.random.choice(record.members)
            self.guard(name, lambda: replica.admin(What.LEAVE, number=number))
        elif self.newcomers:
            self._add(replica)

    def _replace(self, replica: Replica, number: int) -> None:
        if self.newcomers:
            new = self.newcomers.pop(0)
            self._new_disk(new, ())
            directory = self.cluster.disks[new].config.directory
            self.guard(replica.name, lambda: replica.admin(What.REPLACE, name=new, directory=directory, number=number))

    def _add(self, replica: Replica) -> None:
        new = self.random.choice((self.newcomers[0], *(name for name in NEWCOMERS if name in self.cluster.disks)))
        if new in self.newcomers:
            self.newcomers.remove(new)
            self._new_disk(new, ())
        directory = self.cluster.disks[new].config.directory
        self.guard(replica.name, lambda: replica.admin(What.JOIN, name=new, directory=directory))

    def _bring_up_newcomers(self) -> None:
        """Who is no member yet asks somebody, again and again."""
        for name in NEWCOMERS:
            new = self.replicas.get(name)
            if new is not None and not new.machine.number and self.random.random() < 0.3:
                provider = self.replicas[self.random.choice(sorted(self.replicas))]
                self.guard(name, lambda new=new, provider=provider: new.bring_up(provider.process))

    def _maintain(self) -> None:
        name = self._somebody()
        if name is None:
            return
        replica = self.replicas[name]
        more = () if self.ordering == "corel" else (replica.tell_line,)
        act = self.random.choice((replica.take_snapshot, replica.acknowledge, replica.trim, *more))
        self.guard(name, act)

    # --- the passing of time ------------------------------------------------------------------------------------------

    def round(self, partly: bool = False) -> bool:
        """Everybody, or most, send what they have, hear what there is, and sync. Returns whether anything happened."""
        busy, random, streams = False, self.random, self.cluster.streams
        some = [name for name in sorted(self.replicas) if not partly or random.random() < 0.8]
        for name in some:
            process = self.replicas[name].process
            while process in streams.component and streams.originate(process):
                busy = True
                if partly and random.random() < 0.15:
                    break
        for name in some:
            self._receive(self.replicas[name].process, partly)
        for name in some:
            self._hand_over(self.replicas[name].process, partly)
        for name in some:
            busy = self._process(name, partly) or busy
        return busy

    def _receive(self, process: ProcessId, partly: bool) -> None:
        streams = self.cluster.streams
        component = streams.component.get(process)
        if component is None:
            return
        if partly and self.random.random() < self.loss and component.log:
            streams.receive(process, self.random.randrange(len(component.log)))
        else:
            streams.receive_all(process)

    def _hand_over(self, process: ProcessId, partly: bool) -> None:
        """It may not have learned yet that all have what is safe."""
        streams, random = self.cluster.streams, self.random
        if process not in streams.component:
            return
        if self.ordering == "engine":
            streams.learn(process, random.randint if partly and random.random() < self.loss else max)
        streams.hand_over(process)

    def _process(self, name: str, partly: bool) -> bool:
        random = self.random
        busy, lag = False, self.lag[name] if partly else 1.0
        while name in self.replicas and self.random.random() < lag:
            replica = self.replicas[name]
            inbox = self.cluster.streams.inbox[replica.process]
            if not inbox:
                break
            busy = True
            event = inbox.popleft()
            self.guard(name, lambda replica=replica, event=event: replica.handle(event))
            if self.eager and partly and name in self.replicas and random.random() < 0.15:
                self.guard(name, random.choice((replica.take_snapshot, replica.trim)))
        if name in self.replicas and (not partly or self.random.random() < self.sync):
            replica = self.replicas[name]
            many = self.random.randint(1, 3) if partly else len(replica.disk.open)
            busy = bool(replica.disk.open and not replica.is_hung) or busy
            self.guard(name, lambda: replica.sync(many))
        return busy

    # --- the end ------------------------------------------------------------------------------------------------------

    def run(self) -> Cluster:
        streams = self.cluster.streams
        if self.random.random() < 0.8:
            streams.together([one.process for one in self.replicas.values() if one.is_in_group])
        for _ in range(self.steps):
            self.step()
        self.cluster.crashes = 0.0
        self._end_with_a_majority()
        self._end_with_all()
        return self.cluster

    def _end_with_a_majority(self) -> None:
        """Any majority in one view with working disks, whatever happened before."""
        statuses = [one.machine.status() for one in self.replicas.values() if one.machine.number]
        record = max((status.record for status in statuses), key=lambda one: one.version, default=None)
        if record is None or not record.is_founded or self.random.random() < 0.3:
            return
        there = [number for number in record.members if self._name(number) is not None]
        need = len(record.members) // 2 + 1
        if len(there) >= need:
            self.settle(
                [name for name in map(self._name, self.random.sample(there, need)) if name is not None], "a bare majority"
            )

    def _name(self, number: int) -> str | None:
        disk = self.cluster.numbers.get(number)
        found = [name for name, one in self.cluster.disks.items() if one is disk]
        return found[0] if found and found[0] not in self.away else None

    def _end_with_all(self) -> None:
        if not self.settle(sorted(set(self.cluster.disks) - self.away), "all"):
            self.cluster.count("blocked by arithmetic")
            return
        removed = {number for number, disk in self.cluster.numbers.items() if self._name(number) is None}
        records = [one.machine.status().record for one in self.replicas.values()]
        assert records, "every replica has stopped"
        record = max(records, key=lambda one: one.version)
        gone = {entry.number for entry in record.entries if entry.number not in record.members}
        self.cluster.ledger.all_is_ordered(removed | gone | self.cluster.lost, with_changes=not self.away)

    def settle(self, names: list[str], who: str) -> bool:
        """These are together, undisturbed. False if they hold no majority of what counts."""
        for name in sorted(set(self.replicas) - set(names)):
            if self.replicas[name].is_hung:
                self.replicas[name].tell_hung(True)
            else:
                self.kill(name)
        for name in names:
            self.boot(name)
            if name in self.replicas:
                self.replicas[name].is_hung = False
                self.replicas[name].tell_hung(False)
        must = self.ordering == "engine" and self._must_go_on(set(names))
        for number in range(ROUNDS_MAX):
            self.cluster.streams.together([one.process for one in self.replicas.values() if one.is_in_group])
            self._bring_up_at_the_end(number)
            if not self.round() and number > 2:
                break
        else:
            raise Violation(f"liveness: {who} of {len(names)} are still busy after {ROUNDS_MAX} rounds")
        if self.ordering == "engine":
            return self._has_gone_on(names, must or who == "all", who)
        return self._is_settled(names, who)

    def _must_go_on(self, names: set[str]) -> bool:
        """Ordering engine: a quorum of the last primary that these know of, and for each open attempt one who took part and
        knows that nothing came of it, or all who took part (R14). Said only while nobody left or came."""
        votings = {replica.machine.number: replica.disk.voting for name, replica in self.replicas.items() if name in names}
        if self.rates.change or not all(votings.values()):
            return False
        known = {number: voting for number, voting in votings.items() if voting is not None}
        for number, voting in known.items():
            doubt = voting.vulnerable
            if doubt is None or set(doubt.members) <= set(known):
                continue
            told = [known[other].vulnerable for other in doubt.members if other in known and other != number]
            if all(other is not None and doubt.is_same(other) for other in told):
                return False
        last = max((voting.primary for voting in known.values()), key=lambda primary: primary.rank)
        present = set(last.members) & set(known)
        enough = max(self.options["servers_min"] * 2, len(last.members))
        return 2 * len(present) > enough or (2 * len(present) == enough and min(last.members) in present)

    def _has_gone_on(self, names: list[str], must: bool, who: str) -> bool:
        """All who are replicas are in one primary, and nothing that they know is without a place."""
        for name in names:
            replica = self.replicas.get(name)
            if replica is None:
                continue
            status = replica.machine.status()
            if not status.number or status.number not in status.record.members:
                continue
            reds = [action for action in replica.machine.dirty() if not action.id.lane]
            if status.is_primary and not status.out and not reds:
                continue
            if status.state == "NonPrim" and not (status.waits_for and status.why):
                raise Violation(f"liveness: {name} waits and does not say for whom: {status}")
            if must and not self.cluster.lost:
                raise Violation(f"liveness: {who} ({', '.join(sorted(self.replicas))}) do not go on: {name} has {status}")
            return False
        return True

    def _bring_up_at_the_end(self, number: int) -> None:
        for name, new in self.replicas.items():
            providers = [one for one in self.replicas.values() if one.machine.number]
            if not new.machine.number and providers and number % 10 == 3:
                self.guard(name, lambda new=new, provider=providers[0]: new.bring_up(provider.process))

    def _is_settled(self, names: list[str], who: str) -> bool:
        """A replica whose disk hangs is no help and no hindrance."""
        for name in names:
            replica = self.replicas.get(name)
            status = None if replica is None else unfinished(replica.machine)
            if status is None:
                continue
            here = {one.machine.number for one in self.replicas.values() if not one.is_hung}
            if all(record.has_majority(here) for record in status.counting) or status.is_behind:
                raise Violation(
                    f"liveness: {who} ({', '.join(sorted(self.replicas))}) do not order all they know: {name} has {status}"
                )
            return False
        return True


def run(seed: int, steps: int = STEPS, ordering: str = "corel") -> Cluster:
    return World(seed, steps, ordering).run()
