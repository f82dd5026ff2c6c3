"""The world: virtual time, a heap of events, hosts on a network.

1. Time is integer microseconds and moves only from event to event. Events of one instant happen in the order faults,
   arrivals and completions, turns; within that, in the order in which they were arranged.
2. Every draw comes from a stream of the seed; nothing looks at a clock, an address of an object or a set's order.
3. What goes wrong in a node is collected as harness failures; the world itself goes on.
4. A fault that does not apply (a crash of the dead, a resume of the running) does nothing: schedules are drawn, shrunk and
   cut, and must make sense in any part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from typing import Any, Final, NamedTuple

from transis.sim.coverage import Coverage
from transis.sim.faults import (
    COPY_SUFFIX,
    HARMLESS,
    ActAsClients,
    ActAsReplica,
    Ambush,
    CopyDirectory,
    CrashNode,
    CutLink,
    Delay,
    DropSession,
    FreeDisk,
    HangDisk,
    HealNetwork,
    InjectedFault,
    KillReplica,
    LeaveCluster,
    LoseDisk,
    MendLink,
    NodeFault,
    PartitionNetwork,
    PauseNode,
    RestartNode,
    ResumeNode,
    SendMessages,
    SlowNode,
    Weather,
)
from transis.sim.host import Clock, Host, Machine
from transis.sim.life import NodeFactory, Sessions, SimulatedLife, Submission
from transis.sim.network import LinkQuality, Network
from transis.sim.streams import Streams
from transis.types.config import Config
from transis.types.ids import NodeId
from transis.types.outputs import NEVER, Audience, Delivered, Observer, Port, Transmit

FAULT: Final = 0
ARRIVAL: Final = 1
TURN: Final = 2

MISHAPS_MAX: Final = 20
"""Failures kept in words; more of the same run add nothing new."""


CLIMATE: Final = LinkQuality()
MACHINE: Final = Machine()


@dataclass(frozen=True, slots=True)
class Conditions:
    """The surroundings of the nodes of one run, apart from faults."""

    climate: LinkQuality = CLIMATE
    machine: Machine = MACHINE
    offset_us: int = 0
    """How far apart clocks may start."""
    drift_ppm: int = 0
    """How fast or slow clocks may run."""
    sync_us: tuple[int, int] = (200, 2_000)
    """The shortest and the longest sync."""
    kept_permille: int = 500
    """How often a write survives a crash that came before its sync completed."""
    check_every: int = 1
    """A node's invariants are asserted once in this many turns."""


class HarnessFailure(NamedTuple):
    """What the harness itself saw go wrong: `no_crash` or `integrity`."""

    property: str
    time_us: int
    explanation: str


class World:
    """Hosts are known by address; a host's node has that name, unless the host runs a copy of another's directory.

    `sends_to` is the address of what a schedule sends, and `ask` makes a client process of a host act, where there are
    groups; `at_replicas` does to the replicas of a host what a fault says. `observers_of` and `open_sessions` are asked when a
    life begins: who else observes it, and what serves its clients.
    """

    def __init__(self, seed: int, conditions: Conditions, make_node: NodeFactory, key: bytes | None = None) -> None:
        self.now = 0
        self.turns = 0
        self.make_node = make_node
        self.key = key
        self.conditions = conditions
        self.streams = Streams(seed)
        self.network = Network(conditions.climate, self.streams["network"])
        self.hosts: dict[str, Host] = {}
        self.lives: dict[NodeId, SimulatedLife] = {}
        self.coverage = Coverage()
        self.mishaps: list[HarnessFailure] = []
        self.log: list[tuple[int, str]] = []
        self.struck: dict[str, int] = {}
        self.verified = 0
        self.at_peace = False
        self.sends_to = b""
        self.ask: Callable[[Host], None] = _ask_nothing
        self.at_replicas: Callable[[Host, NodeFault], None] = _no_replicas
        self.met: Callable[[InjectedFault], None] = _unmet
        """Is told of each fault before it strikes."""
        self.observers_of: Callable[[SimulatedLife], Sequence[Observer]] = lambda life: ()
        self.open_sessions: Callable[[Host, SimulatedLife], Sessions] | None = None
        self.events: list[tuple[int, int, int, Callable[..., None], Any]] = []
        self._serial = 0

    # -- hosts ---------------------------------------------------------------------------------------------------

    def add_host(self, config: Config, address: str = "") -> Host:
        """A host without a life yet; its address is the node's name unless said otherwise."""
        address = address or config.name
        assert address not in self.hosts, f"{address} exists"
        stream = self.streams["clock"]
        offset, drift = self.conditions.offset_us, self.conditions.drift_ppm
        clock = Clock(stream.between(0, offset), stream.between(-drift, drift))
        host = Host(self, address, replace(config, address=address), clock, self.conditions.machine)
        self.hosts[address] = host
        return host

    def start(self, address: str, memory: str = "") -> None:
        self.hosts[address].start(self.streams["boot"].bits64(), memory)

    def first_start(self, address: str) -> None:
        """The planned start of a node, unless a restart came before it."""
        if self.hosts[address].life is None:
            self.start(address)

    def living(self) -> list[Host]:
        return [host for host in self.hosts.values() if host.life is not None]

    # -- time ----------------------------------------------------------------------------------------------------

    def at(self, time_us: int, action: Callable[..., None], argument: object, rank: int = ARRIVAL) -> None:
        assert time_us >= self.now, "the past does not change"
        self._serial += 1
        heappush(self.events, (time_us, rank, self._serial, action, argument))

    def at_turn(self, time_us: int, host: Host) -> None:
        self._serial += 1
        heappush(self.events, (time_us, TURN, self._serial, host.turn, time_us))

    @property
    def next_us(self) -> int:
        """When the next event happens."""
        return self.events[0][0] if self.events else NEVER

    def run(self, until_us: int, turns_max: int = 1 << 62) -> None:
        """Let events happen up to a time, or until the nodes have taken so many turns in all."""
        events = self.events
        while events and events[0][0] <= until_us and self.turns < turns_max:
            time_us, rank, _, action, argument = heappop(events)
            assert time_us >= self.now
            self.now = time_us
            self.turns += rank == TURN
            action(argument)
        if self.turns < turns_max:
            self.now = max(self.now, until_us)

    # -- what hosts ask for --------------------------------------------------------------------------------------

    def transmit(self, sender: Host, output: Transmit) -> None:
        if isinstance(output.to, Audience):
            targets = [host for host in self.hosts.values() if host is not sender and host.life is not None]
        else:
            target = self.hosts.get(output.to)
            targets = [target] if target is not None and target.life is not None else []
        for target in targets:
            for journey in self.network.carry(self.now, sender.address, target.address, output.port, output.datagrams):
                self.at(journey.arrival_us, target.arrive, journey)

    def sync(self, host: Host, life: SimulatedLife) -> None:
        self.at(self.now + self.streams["disk"].between(*self.conditions.sync_us), host.written, life)

    def write_survives(self) -> bool:
        return self.streams["disk"].chance(self.conditions.kept_permille)

    def check_is_due(self) -> bool:
        return self.turns % self.conditions.check_every == 0

    def moment(self, host: Host, moment: str) -> None:
        """A node entered a state or waits for its disk: ambushes that wait for it strike now."""
        if not host.ambushes:
            return
        due = [ambush for ambush in host.ambushes if ambush.moment == moment]
        host.ambushes = [ambush for ambush in host.ambushes if ambush.moment != moment]
        for ambush in due:
            if ambush.later_us:
                self.at(self.now + ambush.later_us, self.strike_unless_at_peace, ambush.fault, FAULT)
            else:
                self.strike(ambush.fault)

    # -- faults and mishaps --------------------------------------------------------------------------------------

    def strike(self, fault: InjectedFault) -> None:
        """Carry out a fault now; log and coverage record what it met."""
        self.log.append((self.now, str(fault)))
        if not isinstance(fault, HARMLESS):
            self.struck[fault.kind] = self.struck.get(fault.kind, 0) + 1
            self.met(fault)
        _strike(self, fault)

    def strike_unless_at_peace(self, fault: InjectedFault) -> None:
        """What was arranged for later does not happen once the faults have ended."""
        if not self.at_peace:
            self.strike(fault)

    def verify(self, life: SimulatedLife, output: Delivered) -> None:
        """Delivered bytes are the submitted bytes."""
        self.verified += len(output.payloads)
        sender = self.lives.get(output.process.node)
        first = output.first_counter
        sent = sender.payloads.get(output.process.number, []) if sender is not None else []
        expected = sent[first - 1 : first - 1 + len(output.payloads)]
        if len(expected) == len(output.payloads) and all(map(_equal, output.payloads, expected)):
            return
        self._mishap("integrity", f"{life.id} delivered {output.process}:{first} with other bytes than were submitted")

    def note_exception(self, host: Host, text: str) -> None:
        assert host.life is not None
        self._mishap("no_crash", f"{host.life.id} in {host.state} raised:\n{text}")

    def note_refusal(self, host: Host, why: str) -> None:
        self.log.append((self.now, f"{host.address} may not start: {why}"))
        self.coverage.notes["start refused"] += 1

    def note_stop(self, host: Host, why: str) -> None:
        self.log.append((self.now, f"{host.address} stopped: {why}"))
        self.coverage.notes["stopped"] += 1

    def _mishap(self, property_name: str, explanation: str) -> None:
        if len(self.mishaps) < MISHAPS_MAX:
            self.mishaps.append(HarnessFailure(property_name, self.now, explanation))


def _ask_nothing(host: Host) -> None:
    """Nodes without groups have no client processes."""


def _no_replicas(host: Host, fault: NodeFault) -> None:
    """Only some runs have replicas."""


def _unmet(fault: InjectedFault) -> None:
    """Only replicas want to know."""


def _equal(delivered: bytes | memoryview, submitted: bytes) -> bool:
    return delivered == submitted


# --- carrying out a fault ---------------------------------------------------------------------------------------------


def _strike(world: World, fault: InjectedFault) -> None:
    if isinstance(fault, NodeFault):
        host = world.hosts.get(fault.node)
        if host is not None:
            if not isinstance(fault, HARMLESS):
                world.coverage.fault(fault.kind, [host.state])
                _record(world, [host], fault)
            _ON_HOST[type(fault)](world, host, fault)
        return
    world.coverage.fault(_name(fault), sorted({host.state for host in world.living()}))
    _record(world, world.living(), fault)
    _ON_NETWORK[type(fault)](world, fault)


def _name(fault: InjectedFault) -> str:
    return f"weather {fault.what}" if isinstance(fault, Weather) else fault.kind


def _record(world: World, hosts: list[Host], fault: InjectedFault) -> None:
    for host in hosts:
        if host.life is not None:
            host.life.recorder.fault(world.now, str(fault))


def _crash(world: World, host: Host, fault: CrashNode) -> None:
    if host.life is None:
        return
    if fault.after:
        host.crash_after = fault.after
    else:
        host.die("failed")


def _restart(world: World, host: Host, fault: RestartNode) -> None:
    if host.life is not None:
        return
    if fault.lost_directory:
        host.disk.durable.clear()
    world.start(host.address, "lost" if fault.lost_directory else "")


def _copy(world: World, host: Host, fault: CopyDirectory) -> None:
    address = host.address + COPY_SUFFIX
    if address not in world.hosts:
        world.add_host(host.config, address)
    copy = world.hosts[address]
    if copy.life is None:
        copy.disk = host.disk.copy()
        world.start(address, "copied")


def _leave(world: World, host: Host, fault: LeaveCluster) -> None:
    if host.life is not None and not host.paused:
        host.leave()


def _pause(world: World, host: Host, fault: PauseNode) -> None:
    host.paused = host.life is not None


def _resume(world: World, host: Host, fault: ResumeNode) -> None:
    if host.paused:
        host.resume()


def _slow(world: World, host: Host, fault: SlowNode) -> None:
    host.slow_us = fault.cost_us


def _send(world: World, host: Host, fault: SendMessages) -> None:
    host.submit(Submission(fault.service, (fault.size,) * fault.count, address=world.sends_to))


def _ask(world: World, host: Host, fault: ActAsClients) -> None:
    for _ in range(fault.count):
        world.ask(host)


def _at_replicas(world: World, host: Host, fault: NodeFault) -> None:
    world.at_replicas(host, fault)


def _ambush(world: World, host: Host, fault: Ambush) -> None:
    host.ambushes.append(fault)


def _partition(world: World, fault: PartitionNetwork) -> None:
    """A copy of a host's directory runs beside the host that it was copied from."""
    with_copies = [
        [address for address in world.hosts if address.removesuffix(COPY_SUFFIX) in component] for component in fault.components
    ]
    world.network.partition(with_copies)


def _heal(world: World, fault: HealNetwork) -> None:
    world.network.heal()


def _links(world: World, fault: CutLink) -> list[tuple[str, str, Port]]:
    hosts = list(world.hosts)
    sources = hosts if fault.source == "*" else [fault.source]
    targets = hosts if fault.target == "*" else [fault.target]
    ports = list(Port) if fault.port is None else [fault.port]
    return [(source, target, port) for source in sources for target in targets for port in ports if source != target]


def _cut(world: World, fault: CutLink) -> None:
    for link in _links(world, fault):
        world.network.cut(*link)


def _mend(world: World, fault: MendLink) -> None:
    for link in _links(world, fault):
        world.network.mend(*link)


def _weather(world: World, fault: Weather) -> None:
    world.network.rates[fault.what] = fault.permille


def _delay(world: World, fault: Delay) -> None:
    world.network.extra_us[fault.port] = fault.extra_us


_ON_HOST: Final[dict[type[InjectedFault], Callable[[World, Host, Any], None]]] = {
    CrashNode: _crash,
    RestartNode: _restart,
    CopyDirectory: _copy,
    LeaveCluster: _leave,
    PauseNode: _pause,
    ResumeNode: _resume,
    SlowNode: _slow,
    SendMessages: _send,
    ActAsClients: _ask,
    KillReplica: _at_replicas,
    DropSession: _at_replicas,
    HangDisk: _at_replicas,
    FreeDisk: _at_replicas,
    LoseDisk: _at_replicas,
    ActAsReplica: _at_replicas,
    Ambush: _ambush,
}

_ON_NETWORK: Final[dict[type[InjectedFault], Callable[[World, Any], None]]] = {
    PartitionNetwork: _partition,
    HealNetwork: _heal,
    CutLink: _cut,
    MendLink: _mend,
    Weather: _weather,
    Delay: _delay,
}
