"""The replication group of a run: its directories, the processes that run replicas, and what happens to them.

1. A replica has a home, a node's computer. When the node fails, its replicas lose their sessions; if the power fails, they die
   too.
2. A dead replica is started again some time later, from what its disk kept, unless it was removed or its disk is gone for good.
3. Actions, retries, snapshots and changes of membership are drawn from streams of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from transis.prsl.core import Config, Stage
from transis.prsl.machine import Status
from transis.prsl.outputs import StableTo
from transis.prsl.record import What
from transis.sim.faults import (
    ActAsReplica,
    DropSession,
    FreeDisk,
    HangDisk,
    InjectedFault,
    KillReplica,
    LoseDisk,
    NodeFault,
)
from transis.sim.host import Host
from transis.sim.life import SimulatedLife
from transis.sim.plan import Plan
from transis.sim.replicas.directory import Directory
from transis.sim.replicas.ledger import Ledger, Violation
from transis.sim.replicas.process import ReplicaProcess
from transis.sim.replicas.record import ReplicaRecord
from transis.sim.replicas.sessions import ReplicaSessions, Request, Session
from transis.sim.world import World
from transis.types.outputs import Observer

NEWCOMERS_MAX: Final = 3
BRING_UP_US: Final = 50_000
"""How often a newcomer asks a member for what it lacks."""


class NodeEnd(Observer):
    """Tells the group that a node is gone."""

    kinds = frozenset()

    def __init__(self, group: ReplicationGroup, address: str) -> None:
        self._group = group
        self._address = address

    def close(self, now_us: int, how: str) -> None:
        self._group.node_ended(self._address, how)


class ReplicationGroup:
    def __init__(self, world: World, plan: Plan) -> None:
        self.world = world
        self.plan = plan.replicas
        self.drawn = world.streams["replicas"]
        self.boots = world.streams["replica boots"]
        self.ledger = Ledger()
        self.directories: dict[str, Directory] = {}
        self.processes: dict[str, ReplicaProcess] = {}
        self.records: list[ReplicaRecord] = []
        """Of all lives of all directories."""
        self.numbers: dict[int, Directory] = {}
        """The directory of each replica that was ever a member, by its number."""
        self.lost: set[int] = set()
        """Numbers of replicas whose directory is gone for good."""
        self.away: set[str] = set()
        """Those that do not come back: removed, or without a directory."""
        self.kept_down: set[str] = set()
        self.hung: set[str] = set()
        """Nodes whose disk hangs."""
        self.violations: list[str] = []
        self.is_over = False
        self._sync_us = plan.conditions.sync_us
        self._disk = world.streams["replica disks"]
        self._work = world.streams["replica work"]
        self._sessions: dict[str, ReplicaSessions] = {}
        self._keys: list[tuple[bytes, int]] = []
        self._posts_left = self.plan.posts
        self._posted = 0
        self._newcomers = 0
        self._is_open = True
        world.open_sessions = self._open_node
        world.observers_of = lambda life: (NodeEnd(self, life.host),)
        world.at_replicas = self._act
        world.met = self._met
        founders = plan.names[: self.plan.count]
        for name in founders:
            self._new_directory(name, name, founders)
        self._schedule_work()

    # --- notes --------------------------------------------------------------------------------------------------------

    def count(self, what: str, by: int = 1) -> None:
        self.world.coverage.replicas[what] += by

    def log(self, what: str) -> None:
        self.world.log.append((self.world.now, what))

    def broken(self, why: str) -> None:
        """The first violation ends the run of the replicas: what comes after it would only follow from it."""
        self.violations.append(why)
        self.log(why)
        self.is_over = True

    def saw(self, process: ReplicaProcess, status: Status, before: Stage | None) -> None:
        if status.stage != before:
            stage = status.stage
            self.count(f"state {'none' if stage is None else stage.name}")
            if stage in (Stage.MINORITY, Stage.PRIMARY):
                self.log(f"replica {process.name}: {stage.name.lower()}, {_colours(status)}")
                for colour, many in (("red", status.red), ("yellow", status.yellow), ("green", status.green)):
                    self.count(f"{colour} in {stage.name}", min(1, many))
                self.count(f"behind in {stage.name}", status.is_behind)

    # --- directories and processes --------------------------------------------------------------------------------------

    def _new_directory(self, name: str, home: str, founders: Sequence[str]) -> Directory:
        plan = self.plan
        config = Config(
            name=name,
            directory=self.drawn.bits64().to_bytes(8, "big") + self.drawn.bits64().to_bytes(8, "big"),
            founders=tuple(founders),
            behind_max=plan.behind_max,
            tail_max=plan.tail_max,
            keep_places=None if plan.keep_places < 0 else plan.keep_places,
            acks_of_all=plan.acks_of_all,
            explicit_ack=plan.explicit_ack,
            keys_max=plan.keys_max,
            ordering="engine" if plan.ordering == "engine" else "corel",
        )
        directory = self.directories[name] = Directory(home, config)
        return directory

    def boot(self, name: str) -> None:
        if name in self.processes or name in self.away or name in self.kept_down or self.is_over:
            return
        directory = self.directories[name]
        torn = directory.torn
        process = self.processes[name] = ReplicaProcess(self, directory)
        self.records.append(process.record)
        self.count("record torn", directory.torn - torn)
        self.count("replica started" if directory.life == 1 else "replica started again")
        process.connect()
        process.start()

    def _boot_later(self, name: str) -> None:
        self.world.at(self.world.now + self.drawn.stretched(100, max(200, self.plan.restart_us)), self.boot, name)

    def died(self, process: ReplicaProcess) -> None:
        del self.processes[process.name]
        if process.name not in self.away:
            self._boot_later(process.name)

    def stopped(self, process: ReplicaProcess) -> None:
        """For good: it was removed and the others know, or it is not wanted."""
        self.count("replica stopped")
        self.log(f"replica {process.name} stopped: {process.why_stopped}")
        self.away.add(process.name)
        process.die()

    def at(self, home: str) -> list[ReplicaProcess]:
        return [process for process in self.processes.values() if process.directory.home == home]

    # --- nodes ----------------------------------------------------------------------------------------------------------

    def _open_node(self, host: Host, life: SimulatedLife) -> ReplicaSessions:
        sessions = self._sessions[host.address] = ReplicaSessions(self.world, host, life)
        for process in self.at(host.address):
            self.connect_later(process)
        for name, directory in self.directories.items():
            if directory.home == host.address and name not in self.processes:
                self._boot_later(name)
        return sessions

    def node_ended(self, address: str, how: str) -> None:
        sessions = self._sessions.pop(address, None)
        if sessions is None:
            return
        sessions.died()
        if how == "failed" and self.at(address) and self.drawn.chance(self.plan.power_permille):
            self.count("power cut")
            self.world.at(self.world.now, self._kill_all, address)

    def _kill_all(self, home: str) -> None:
        for process in self.at(home):
            process.die()

    def open_session(self, process: ReplicaProcess) -> Session | None:
        sessions = self._sessions.get(process.directory.home)
        return sessions.open(process.hear) if sessions is not None else None

    def ask(self, home: str, session: Session, request: Request) -> None:
        if home in self._sessions:
            self._sessions[home].ask(session, request)

    def close_session(self, home: str, session: Session) -> None:
        session.is_over = True
        if home in self._sessions:
            self._sessions[home].close(session)

    def connect_later(self, process: ReplicaProcess) -> None:
        self.world.at(self.world.now + self.drawn.stretched(100, 20_000), self._connect, process)

    def _connect(self, process: ReplicaProcess) -> None:
        if not process.is_dead and process.session is None and not self.is_over:
            process.connect()

    def sync_us(self) -> int:
        return self._disk.between(*self._sync_us)

    # --- faults ---------------------------------------------------------------------------------------------------------

    def _met(self, fault: InjectedFault) -> None:
        """Which states of replicas a fault meets: those at its node, or all if it is one of the network."""
        met = self.at(fault.node) if isinstance(fault, NodeFault) else self.processes.values()
        for process in met:
            stage = process.machine.status().stage
            self.count(f"{fault.kind} met {'none' if stage is None else stage.name}")

    def _act(self, host: Host, fault: NodeFault) -> None:
        if not self.is_over:
            _ACTS[type(fault)](self, host.address, fault)

    def _kill(self, home: str, fault: KillReplica) -> None:
        for process in self.at(home):
            if fault.after:
                process.crash_after = fault.after
            else:
                process.die()

    def _drop(self, home: str, fault: DropSession) -> None:
        for process in self.at(home):
            process.drop_session()

    def _hang(self, home: str, fault: HangDisk) -> None:
        self.hung.add(home)

    def _free(self, home: str, fault: FreeDisk) -> None:
        self.free(home)

    def free(self, home: str) -> None:
        self.hung.discard(home)
        for process in self.at(home):
            process.disk_goes_on()

    def _lose(self, home: str, fault: LoseDisk) -> None:
        """One in a run, so that mostly a majority of directories is left."""
        for process in self.at(home)[:1]:
            number = process.machine.number
            if number and not self.lost and self.plan.count > 2 and self.ledger.order:
                self.count("directory lost")
                self.lost.add(number)
                self.away.add(process.name)
                process.record.step("lost", number=number)
                process.die()

    # --- work -----------------------------------------------------------------------------------------------------------

    def _schedule_work(self) -> None:
        self._after(self.plan.interval_us, self._post_next)
        self._after(self.plan.upkeep_us, self._look_after_next)
        self._after(BRING_UP_US, self._bring_up)

    def _after(self, interval_us: int, act: Callable[[None], None]) -> None:
        if interval_us:
            self.world.at(self.world.now + self._work.stretched(max(1, interval_us // 4), 2 * interval_us), act, None)

    def close(self) -> None:
        """Nobody posts anything more."""
        self._is_open = False

    def _somebody(self) -> ReplicaProcess | None:
        return self._work.pick(list(self.processes.values())) if self.processes else None

    def _post_next(self, _: None) -> None:
        process = self._somebody()
        if process is not None and self._posts_left and self._is_open:
            self._posts_left -= 1
            self._post(process)
        self._after(self.plan.interval_us, self._post_next)

    def _post(self, process: ReplicaProcess) -> None:
        self._posted += 1
        key, at = b"", 0
        if self._work.chance(self.plan.retries_permille):
            key, at = self._key(process)
        count = self._work.between(1, self.plan.batch)
        messages = [b"%d.%d" % (self._posted, one) + bytes(self._work.below(self.plan.size + 1)) for one in range(count)]
        process.post(messages, key, at)

    def _key(self, process: ReplicaProcess) -> tuple[bytes, int]:
        """A new key, or a retry of an old one, with the offset that it was first used with."""
        if self._keys and self._work.chance(500):
            return self._work.pick(self._keys)
        key = self._work.bits64().to_bytes(16, "big")
        self._keys.append((key, process.machine.status().offset))
        return self._keys[-1]

    def _look_after_next(self, _: None) -> None:
        process = self._somebody()
        if process is not None and self._is_open:
            self._work.pick((process.take_snapshot, process.trim, process.acknowledge))()
        self._after(self.plan.upkeep_us, self._look_after_next)

    def _bring_up(self, _: None) -> None:
        """A newcomer that is no member yet asks somebody, again and again."""
        members = [process.session.process for process in self.processes.values() if _can_provide(process) and process.session]
        for process in list(self.processes.values()):
            if not process.machine.number and members:
                provider = self._work.pick(members)
                if provider is not None:
                    process.bring_up(provider)
        self._after(BRING_UP_US, self._bring_up)

    def _act_as(self, home: str, fault: ActAsReplica) -> None:
        if not self._is_open:
            return
        if fault.act in _CHANGES:
            asker = self._somebody()
            if asker is not None and asker.machine.number:
                _CHANGES[fault.act](self, asker, home)
            return
        for process in self.at(home):
            if fault.act == "post":
                self._post(process)
            elif fault.act == "acknowledge":
                process.acknowledge()
            else:
                (process.take_snapshot if fault.act == "snapshot" else process.trim)()

    # --- changes of membership --------------------------------------------------------------------------------------------

    def _newcomer(self, home: str) -> Directory | None:
        if self._newcomers == NEWCOMERS_MAX:
            return None
        self._newcomers += 1
        directory = self._new_directory(f"{home}{self._newcomers + 1}", home, ())
        self._boot_later(directory.name)
        return directory

    def _add(self, asker: ReplicaProcess, home: str) -> None:
        new = self._newcomer(home)
        if new is not None:
            asker.admin(What.JOIN, new.name, new.config.directory)

    def _remove(self, asker: ReplicaProcess, home: str) -> None:
        members = asker.machine.status().record.members
        there = [number for number in members if number in self.numbers and self.numbers[number].home == home]
        if there and len(members) > 2:
            asker.admin(What.LEAVE, number=there[0])

    def _replace(self, asker: ReplicaProcess, home: str) -> None:
        lost = sorted(self.lost.intersection(asker.machine.status().record.members))
        new = self._newcomer(home) if lost else None
        if new is not None:
            asker.admin(What.REPLACE, new.name, new.config.directory, lost[0])

    # --- the end ----------------------------------------------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """Nobody has anything to do but wait."""
        sessions = all(sessions.is_idle for sessions in self._sessions.values())
        return sessions and all(process.is_idle for process in self.processes.values())

    def progress(self) -> tuple[object, ...]:
        """What changes as long as anything comes of what replicas do; that a newcomer asks again and again is nothing yet."""
        return tuple((process.name, *process.machine.status()[:9]) for process in self.processes.values())

    def name_of(self, number: int) -> str:
        """The name of the replica with this number, if it may come back."""
        directory = self.numbers.get(number)
        return directory.name if directory is not None and directory.name not in self.away else ""

    def keep_only(self, names: Sequence[str]) -> None:
        self.kept_down = set(self.directories) - set(names)
        for name in sorted(self.kept_down.intersection(self.processes)):
            self.processes[name].die()
        for name in names:
            self.boot(name)

    # --- checks -----------------------------------------------------------------------------------------------------------

    def check_stable(self, process: ReplicaProcess, before: StableTo, now: StableTo) -> None:
        """What is new in it. What was stable before somebody joined stays stable, and says nothing about the newcomer."""
        self.ledger.checked["stable_is_everywhere"] += 1
        for number in process.machine.status().record.members:
            if number not in self.lost:
                self._check_stable_at(process.name, number, before, now)

    def _check_stable_at(self, name: str, number: int, before: StableTo, now: StableTo) -> None:
        directory = self.numbers.get(number)
        stored = directory.stored if directory is not None else None
        end = stored.end if stored is not None else 0
        if before.place < now.place:
            start = stored.base.place if stored is not None else 0
            held = stored.order[: max(0, now.place - start)] if stored is not None else []
            if end < now.place or held != self.ledger.order[start : now.place]:
                raise Violation(f"stable_is_everywhere: {name} says {now.place}, replica {number} has {end}")
        if before.acked < now.acked and (stored.marks.acked if stored is not None else 0) < now.acked:
            raise Violation(f"stable_is_everywhere: {name} says that {now.acked} was acknowledged by {number}")


def _colours(status: Status) -> str:
    return f"{status.green} green, {status.yellow} yellow, {status.red} red" + (", behind" if status.is_behind else "")


def _can_provide(process: ReplicaProcess) -> bool:
    return process.is_in_group and process.machine.number > 0


_ACTS: Final[dict[type[InjectedFault], Callable[..., None]]] = {
    KillReplica: ReplicationGroup._kill,
    DropSession: ReplicationGroup._drop,
    HangDisk: ReplicationGroup._hang,
    FreeDisk: ReplicationGroup._free,
    LoseDisk: ReplicationGroup._lose,
    ActAsReplica: ReplicationGroup._act_as,
}

_CHANGES: Final[dict[str, Callable[[ReplicationGroup, ReplicaProcess, str], None]]] = {
    "add": ReplicationGroup._add,
    "remove": ReplicationGroup._remove,
    "replace": ReplicationGroup._replace,
}
