"""The simulated machines of a cluster: what a test may do to them, what became of them, and when they are at rest.

1. Everything a node does is the code of production, on a simulated network, disk and clock.
2. When something fails, the error says what was done, the seed, and the line that repeats it.
3. What a test does must make sense: a name that no node has, or a crash of a dead node, is an error, not silence.
4. A cluster is at rest when in every component all live nodes share one view, nothing is owed but what waits for a quorum, and
   nothing is under way. (For the simulator's own runs, sim/liveness.py, it is the whole network; tests also want to wait while it
   is divided.)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final

from transis.audit.guarantees import check
from transis.audit.guarantees.property import Report
from transis.node.node import Node
from transis.sessions.host import SessionHost, SessionPolicy
from transis.sim.cluster import show_view
from transis.sim.faults import (
    WEATHERS,
    CrashNode,
    HealNetwork,
    InjectedFault,
    LeaveCluster,
    PartitionNetwork,
    PauseNode,
    RestartNode,
    ResumeNode,
    Weather,
)
from transis.sim.host import Host
from transis.sim.life import SimulatedLife
from transis.sim.liveness import budget_us
from transis.sim.network import LinkQuality
from transis.sim.plan import Plan
from transis.sim.streams import RandomStream
from transis.sim.swarm import node_names
from transis.sim.world import Conditions, World
from transis.testing.node import SimulatedSessions
from transis.trace.events import History, NodeTrace
from transis.trace.segment import digest
from transis.types.config import MS, SECOND, Config, WithoutQuorum
from transis.types.errors import UsageError
from transis.types.ids import NodeId, ProcessId
from transis.types.limits import MEMBERS_MAX

# --- rest -------------------------------------------------------------------------------------------------------------


def unrest(world: World, components: Iterable[Sequence[str]]) -> str:
    """Why the cluster is not at rest, in words; empty when it is. Nodes that are down or paused are left out."""
    for component in components:
        hosts = [world.hosts[name] for name in component]
        reason = _unrest_among([host.life for host in hosts if host.life is not None and not host.paused])
        if reason:
            return reason
    return ""


def _unrest_among(lives: Sequence[SimulatedLife]) -> str:
    members = tuple(sorted(life.id for life in lives))
    for life in lives:
        reason = _apart(life, members) or _unfinished(life)
        if reason:
            return f"{life.id.name} {reason}"
    if len({(life.regular, life.position) for life in lives}) > 1:
        return "not every message was delivered at every node: " + ", ".join(f"{one.id.name} has {one.position}" for one in lives)
    return _unrest_of_groups(lives)


def _unrest_of_groups(lives: Sequence[SimulatedLife]) -> str:
    """The last view that each member saw has exactly the processes that want to be in the group."""
    crowds = [(life.clients, life) for life in lives if life.clients is not None]
    wanted: dict[str, list[ProcessId]] = {}
    for crowd, _ in crowds:
        for process in crowd.connected():
            for name in sorted(crowd.wanted[process]):
                wanted.setdefault(name, []).append(crowd.id(process))
    for crowd, life in crowds:
        for process in crowd.connected():
            for view in crowd.inside[process].values():
                if list(view.members) != sorted(wanted.get(view.name, [])):
                    return f"{life.id.name} has not told its clients of the last change of {view.name}"
    return ""


def _apart(life: SimulatedLife, members: tuple[NodeId, ...]) -> str:
    if life.view is None:
        return "has no view yet"
    if life.regular is not None and life.view.nodes == members and life.node.state == "Operational":
        return ""
    return f"is in a view of {_shown(life.view.nodes)}; {_shown(members)} should be together"


def _shown(nodes: Sequence[NodeId]) -> str:
    return " ".join(node.name for node in nodes)


def _unfinished(life: SimulatedLife) -> str:
    if life.owed and not life.held:
        return f"has sent {life.taken} messages, of which {life.owed} did not come back yet"
    if isinstance(life.sessions, SimulatedSessions):
        if not life.sessions.is_idle:
            return "has something to do for its sessions"
        if (open_receipts := life.sessions.open_receipts) and not life.held:
            return f"has not told its clients what became of {open_receipts} of their messages"
    return life.clients.unrest() if life.clients is not None else ""


# --- simulation -------------------------------------------------------------------------------------------------------

LOG_SHOWN: Final = 40
"""How many actions are shown when something fails: the last ones."""

STAGGER_US: Final = 20 * MS
"""Nodes start within this time."""

CONDITIONS: Final = Conditions(climate=LinkQuality(jitter_us=100), offset_us=1 * SECOND, drift_ppm=50, check_every=16)
"""A LAN whose packets overtake each other now and then, and clocks that differ as real ones do. Invariants of nodes are asserted
at some of the turns; the simulator's own sweeps do so at every one."""


class GuaranteeBroken(AssertionError):
    """What was recorded contradicts a guarantee: a bug of the package, not of the test."""


class Simulation:
    """`names` are the nodes. `session_host` makes their sessions; only a test of this package has others, to break them."""

    session_host: ClassVar[type[Any]] = SessionHost

    def __init__(
        self,
        names: Sequence[str],
        seed: int,
        quorum: Sequence[str],
        policy: SessionPolicy,
        replay: str,
        engine: str,
        without_quorum: WithoutQuorum = "continue",
    ) -> None:
        self.names: tuple[str, ...] = tuple(names)
        self.seed = seed
        self.replay = replay
        self._policy = policy.validated()
        config = Config(name="any", quorum=tuple(quorum), engine=engine, without_quorum=without_quorum).validated()
        self._plan = Plan(seed, self.names, config=config, conditions=CONDITIONS)
        self._world = World(seed, CONDITIONS, Node)
        self._world.open_sessions = self._open_sessions
        self._components: list[tuple[str, ...]] = [self.names]
        self._present: dict[str, SimulatedSessions] = {}
        for name in self.names:
            self._world.add_host(replace(config, name=name).validated())
            self._world.at(self._world.streams["starts"].between(0, STAGGER_US), self._world.first_start, name)

    def _open_sessions(self, host: Host, life: SimulatedLife) -> SimulatedSessions:
        return SimulatedSessions(self._world, host, life, self._policy, self.session_host)

    @property
    def now(self) -> float:
        """Virtual seconds since the cluster began."""
        return self._world.now / SECOND

    def _budget_us(self) -> int:
        """The longest that the protocol may take until the cluster is at rest."""
        return budget_us(self._world, self._plan)

    # --- doings -----------------------------------------------------------------------------------------------------

    def partition(self, *components: Sequence[str]) -> None:
        """Only nodes of one of the `components` hear each other; nodes that are not named are together in one more."""
        named = [self._host(name).address for component in components for name in component]
        if len(set(named)) < len(named):
            raise UsageError(f"a node is in two components: {components}")
        rest = tuple(name for name in self.names if name not in named)
        self._components = [tuple(component) for component in components] + ([rest] if rest else [])
        self._strike(PartitionNetwork(tuple(self._components)))

    def heal(self) -> None:
        """The partition ends."""
        self._components = [self.names]
        self._strike(HealNetwork())

    def crash(self, name: str) -> None:
        """The node dies at once: its clients lose their sessions, and a write on its way to the disk may be lost."""
        self._life(name)
        self._strike(CrashNode(name))

    def leave(self, name: str) -> None:
        """The node leaves in good order, as when a daemon is stopped. That takes some time."""
        self._life(name)
        self._strike(LeaveCluster(name))

    def restart(self, name: str) -> None:
        """A node that is down starts again from what is on its disk."""
        host = self._host(name)
        if host.life is not None:
            raise UsageError(f"{name} runs: crash it or let it leave first")
        self._strike(RestartNode(name))
        if host.life is None:
            raise UsageError(self._world.log[-1][1])

    def pause(self, name: str) -> None:
        """The node stands still, as in a long garbage collection or under SIGSTOP."""
        self._life(name)
        self._strike(PauseNode(name))

    def resume(self, name: str) -> None:
        """A node that stands still goes on."""
        self._life(name)
        self._strike(ResumeNode(name))

    def lossy(self, rate: float) -> None:
        """The share `rate` of all datagrams is lost from now on: 0.1 is one in ten, 0 ends it."""
        self.weather("loss", rate)

    def weather(self, what: str, rate: float) -> None:
        """How the network is: `what` (loss, burst, duplicate, corrupt, reorder, junk or replay), at a `rate` from 0 to 1."""
        if what not in WEATHERS or not 0 <= rate <= 1:
            raise UsageError(f"{what!r} at {rate}: must be one of {', '.join(WEATHERS)}, at a rate from 0 to 1")
        self._strike(Weather(what, round(rate * 1000)))

    def _strike(self, fault: InjectedFault) -> None:
        self._world.strike(fault)
        self._look()

    def _look(self) -> None:
        """Tell the clients of nodes that are gone. A host's next node is another object, however soon it starts."""
        for name, host in self._world.hosts.items():
            before = self._present.get(name)
            now = None if host.life is None else host.life.sessions
            if now is not before:
                assert now is None or isinstance(now, SimulatedSessions)
                if before is not None:
                    del self._present[name]
                    before.died()
                if now is not None:
                    self._present[name] = now

    # --- looking ----------------------------------------------------------------------------------------------------

    @property
    def alive(self) -> tuple[str, ...]:
        """The names of the nodes that run."""
        return tuple(name for name, host in self._world.hosts.items() if host.life is not None)

    def members(self, name: str) -> tuple[str, ...]:
        """The nodes in this node's view; none before its first."""
        view = self._life(name).view
        return () if view is None else tuple(node.name for node in view.nodes)

    @property
    def random(self) -> RandomStream:
        """Draws from the seed, for tests that want to vary what they do."""
        return self._world.streams["test"]

    def unrest(self) -> str:
        """Why the cluster is not at rest, in words; empty when it is."""
        if self._world.now <= STAGGER_US:
            return "not all nodes have started"
        return unrest(self._world, self._components)

    def history(self) -> History:
        """Everything recorded so far, of every life of every node."""
        lives = sorted(self._world.lives.values(), key=lambda life: life.id)
        is_paused = any(host.paused for host in self._world.hosts.values())
        is_open = is_paused or any(life.waits_for_quorum for life in lives)
        nodes = [NodeTrace(life.id, life.recorder.events) for life in lives]
        return History(nodes, closed=not is_open and not self.unrest(), engine=self._plan.config.engine)

    def digest(self) -> str:
        """The digest of the history: equal for equal runs, in any process."""
        return digest(self.history())

    def check(self) -> Report:
        """Hold every guarantee of views and groups against what was recorded; raises GuaranteeBroken with what contradicts it."""
        report = check(self.history())
        found = [f"{one.property}: at {one.time_us / SECOND:.6f} s {one.explanation}" for one in self._world.mishaps]
        found += [f"{violation.property}: {violation.explanation}" for violation in report.violations]
        if found:
            head = f"guarantees were broken {len(found)} times. This is a bug of transis; please report it with all of this:"
            raise GuaranteeBroken("\n".join([head, *found, self.story()]))
        return report

    def story(self) -> str:
        """What this cluster is, what was done to it, where it stands, and the line that repeats it."""
        log = self._world.log
        lines = [f"simulated cluster of {' '.join(self.names)}, seed {self.seed}, after {self.now:.6f} s of virtual time"]
        lines += ["  ..."] if len(log) > LOG_SHOWN else []
        lines += [f"  {time_us / SECOND:10.6f} s  {what}" for time_us, what in log[-LOG_SHOWN:]]
        lines += [f"  {name} is {_standing(host)}" for name, host in self._world.hosts.items()]
        return "\n".join([*lines, f"replay: {self.replay}"])

    def _host(self, name: str) -> Host:
        if name not in self._world.hosts:
            raise UsageError(f"there is no node {name!r}; there are {' '.join(self.names)}")
        return self._world.hosts[name]

    def _life(self, name: str) -> SimulatedLife:
        life = self._host(name).life
        if life is None:
            raise UsageError(f"{name} is down")
        return life


def chosen_names(nodes: int | Sequence[str]) -> tuple[str, ...]:
    """a, b, c ... for a number, else those given."""
    count = nodes if isinstance(nodes, int) else len(nodes)
    if not 1 <= count <= MEMBERS_MAX:
        raise UsageError(f"a cluster of {count} nodes: must have 1 to {MEMBERS_MAX}")
    names = node_names(nodes) if isinstance(nodes, int) else tuple(nodes)
    if len(set(names)) < len(names):
        raise UsageError(f"two nodes have one name: {' '.join(names)}")
    return names


def _standing(host: Host) -> str:
    if host.life is None:
        return "down"
    view = "no view" if host.life.view is None else show_view(host.life.view)
    return f"{'paused' if host.paused else host.state} in {view}"
