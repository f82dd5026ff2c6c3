"""A simulated cluster to play with: start it, do things to it, look at it. For scripts, tests and the demonstration.

1. What it prints is short: a node's incarnation is left out in its first life, views are `R8{a,b,c}`, messages `a1`, and nodes
   with the same output share a line.
2. Filters name packets as people do ("the next commit token from a to b"). They read plaintext; under a seal every packet is of
   kind `sealed`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from transis.audit.guarantees import check
from transis.audit.guarantees.property import Report
from transis.lansis.packets import KIND_ALIVE, KIND_ATTEMPT, KIND_FAULTS, KIND_FLUSHED, KIND_JOINING, KIND_QUERY, Query
from transis.sim.faults import (
    SEND_SIZE,
    CrashNode,
    CutLink,
    HealNetwork,
    InjectedFault,
    LeaveCluster,
    MendLink,
    PartitionNetwork,
    PauseNode,
    RestartNode,
    ResumeNode,
    SendMessages,
)
from transis.sim.life import NodeFactory, SimulatedLife
from transis.sim.liveness import budget_us, judged, settle, unrest
from transis.sim.network import Fate, Journey
from transis.sim.plan import Plan
from transis.sim.run import build_world, held_to_evs, history_of, node_of
from transis.totem.packets import KIND_COMMIT, KIND_JOIN, KIND_TOKEN, KIND_WAKE, Commit
from transis.trace.events import Conf, Delivery, History
from transis.types.config import SECOND
from transis.types.ids import MessageId, NodeId, ProcessId, Service, ViewId
from transis.types.outputs import Port
from transis.types.views import View
from transis.wire.burst import DATA_HEADER_SIZE, KIND_DATA, LAST_OFFSET
from transis.wire.control import KIND_BEACON, KIND_PART, KIND_PROBE, KIND_PROBE_ANSWER, decode_control
from transis.wire.envelope import ENVELOPE_SIZE, FLAG_SEALED
from transis.wire.items import AcksAt, read_item

# --- sniff ------------------------------------------------------------------------------------------------------------

_FLAGS_AT: Final = 3
_ALONE: Final = b"\0\0\1"
"""In a header: datagram 0 of its burst, and also the last."""

NAMES: Final = {
    KIND_DATA: "data",
    KIND_TOKEN: "token",
    KIND_JOIN: "join",
    KIND_COMMIT: "commit",
    KIND_BEACON: "beacon",
    KIND_WAKE: "wake",
    KIND_PROBE: "probe",
    KIND_PROBE_ANSWER: "answer",
    KIND_PART: "part",
    KIND_ALIVE: "alive",
    KIND_ATTEMPT: "aj",
    KIND_JOINING: "ljoin",
    KIND_FAULTS: "fa",
    KIND_FLUSHED: "flushed",
    KIND_QUERY: "query",
}

KINDS: Final = (*NAMES.values(), "commit1", "commit2", "reply", "ack", "any")
"""What a filter may look for: commit1 and commit2 are the two rotations of a commit token, reply is the answer to a query, and
ack is a Lansis burst that carries only acknowledgements."""


def kinds_of(datagram: bytes) -> tuple[str, ...]:
    """Every kind that matches this packet."""
    if len(datagram) <= ENVELOPE_SIZE:
        return ("any",)
    if datagram[_FLAGS_AT] & FLAG_SEALED:
        return ("any", "sealed")
    body = datagram[ENVELOPE_SIZE:]
    name = NAMES.get(body[0], "unknown")
    match decode_control(body) if name in ("commit", "query") else None:
        case Commit(rotation=rotation):
            return ("any", name, f"commit{rotation}")
        case Query(is_reply=True):
            return ("any", "reply")
        case _:
            return ("any", name, *(("ack",) if name == "data" and _only_acks(body) else ()))


def _only_acks(body: bytes) -> bool:
    """Whether this is a burst of one datagram whose only item is acknowledgements."""
    if len(body) <= DATA_HEADER_SIZE or body[LAST_OFFSET - 2 : LAST_OFFSET + 1] != _ALONE:
        return False
    found = read_item(body, DATA_HEADER_SIZE)
    return isinstance(found, AcksAt) and found.end == len(body)


class HeldPacket(NamedTuple):
    """A packet held back, to arrive later."""

    source: str
    target: str
    port: Port
    datagram: bytes


@dataclass(slots=True)
class PacketFilter:
    """Drops, doubles or holds packets of one kind on some links: the first `skip` pass, then it takes `count`."""

    fate: Fate
    source: str
    target: str
    kind: str
    count: int
    skip: int = 0
    kept: list[HeldPacket] | None = None

    def __call__(self, source: str, target: str, port: Port, datagram: bytes) -> Fate:
        if self.count <= 0 or self.source not in ("*", source) or self.target not in ("*", target):
            return Fate.PASS
        if self.kind not in kinds_of(datagram):
            return Fate.PASS
        if self.skip:
            self.skip -= 1
            return Fate.PASS
        self.count -= 1
        if self.kept is not None:
            self.kept.append(HeldPacket(source, target, port, datagram))
        return self.fate


@dataclass(slots=True)
class PacketCounts:
    """Counts packets by kind; a multicast counts once for each receiver."""

    seen: Counter[str] = field(default_factory=Counter)

    def __call__(self, source: str, target: str, port: Port, datagram: bytes) -> Fate:
        self.seen.update(kind for kind in kinds_of(datagram) if kind != "any")
        return Fate.PASS


# --- cluster ----------------------------------------------------------------------------------------------------------

ALWAYS: Final = 1 << 62

WAIT_MAX_US: Final = 60 * SECOND
"""How long `until` waits for something that may never come."""


class SimulatedCluster:
    """1. Nothing happens until `run` or `settle` lets time pass.
    2. `views` and `deliveries` return only what is new since the last call.
    """

    def __init__(self, plan: Plan, later: Iterable[str] = (), make_node: NodeFactory | None = None) -> None:
        self.plan = plan
        self.world = build_world(plan, make_node or node_of(plan), set(later))
        self._shown_views: dict[NodeId, int] = {}
        self._shown_deliveries: dict[NodeId, int] = {}
        self.shown_steps: dict[ProcessId, int] = {}
        """How much of each process's stream was shown (scripts.py)."""
        self._kept: list[HeldPacket] = []
        self.tally = PacketCounts()

    # -- doing ---------------------------------------------------------------------------------------------------

    def run(self, time_us: int) -> None:
        self.world.run(self.world.now + time_us)

    def until(self, reached: Callable[[], bool]) -> bool:
        """Run, one instant at a time, until `reached()` holds; False if it never does."""
        world = self.world
        latest = world.now + WAIT_MAX_US
        while not reached():
            if not world.events or world.events[0][0] > latest:
                return False
            world.run(world.events[0][0])
        return True

    def settle(self) -> str:
        """Run until the cluster is at rest. Returns why it is not if the budget runs out first, else an empty string."""
        if settle(self.world, self.plan, budget_us(self.world, self.plan)) is None:
            return unrest(self.world)
        return ""

    def submit(self, name: str, service: Service = Service.AGREED, count: int = 1, size: int = SEND_SIZE) -> None:
        self.strike(SendMessages(name, service, count, size))

    def strike(self, fault: InjectedFault) -> None:
        self.world.strike(fault)

    def start(self, name: str) -> None:
        self.strike(RestartNode(name))

    def crash(self, name: str, after: int = 0) -> None:
        self.strike(CrashNode(name, after))

    def restart(self, name: str) -> None:
        self.strike(RestartNode(name))

    def pause(self, name: str) -> None:
        self.strike(PauseNode(name))

    def resume(self, name: str) -> None:
        self.strike(ResumeNode(name))

    def leave(self, name: str) -> None:
        self.strike(LeaveCluster(name))

    def partition(self, *components: Sequence[str]) -> None:
        self.strike(PartitionNetwork(tuple(tuple(component) for component in components)))

    def heal(self) -> None:
        self.strike(HealNetwork())

    def cut(self, source: str, target: str) -> None:
        self.strike(CutLink(source, target))

    def mend(self, source: str, target: str) -> None:
        self.strike(MendLink(source, target))

    def drop_next(self, kind: str, source: str = "*", target: str = "*", count: int = 1, skip: int = 0) -> None:
        self._filter(PacketFilter(Fate.DROP, source, target, kind, count, skip))

    def duplicate(self, kind: str, source: str = "*", target: str = "*", count: int = ALWAYS, skip: int = 0) -> None:
        self._filter(PacketFilter(Fate.TWICE, source, target, kind, count, skip))

    def keep(self, kind: str, source: str = "*", target: str = "*", count: int = 1, skip: int = 0) -> None:
        """Hold packets back until `release`."""
        self._filter(PacketFilter(Fate.DROP, source, target, kind, count, skip, self._kept))

    def copy(self, kind: str, source: str = "*", target: str = "*", count: int = 1, skip: int = 0) -> None:
        """Let packets pass, and deliver a copy of each at `release`."""
        self._filter(PacketFilter(Fate.PASS, source, target, kind, count, skip, self._kept))

    def release(self) -> int:
        """Deliver what was held or copied, in order; returns how many packets."""
        world = self.world
        kept, self._kept[:] = list(self._kept), []
        for source, target, port, datagram in kept:
            world.at(world.now, world.hosts[target].arrive, Journey(world.now, source, port, (datagram,)))
        return len(kept)

    def watch(self) -> None:
        """Start counting packets from zero."""
        self.tally.seen.clear()
        if self.tally not in self.world.network.interceptors:
            self.world.network.interceptors.append(self.tally)

    def let_pass(self) -> None:
        """Remove all filters."""
        interceptors = self.world.network.interceptors
        interceptors[:] = [interceptor for interceptor in interceptors if interceptor is self.tally]

    def _filter(self, chosen: PacketFilter) -> None:
        if chosen.kind not in KINDS:
            raise ValueError(f"{chosen.kind!r} is not a kind of packet; known are {', '.join(KINDS)}")
        self.world.network.interceptors.append(chosen)

    # -- looking -------------------------------------------------------------------------------------------------

    def lives(self) -> list[SimulatedLife]:
        return sorted(self.world.lives.values(), key=lambda life: life.id)

    def history(self) -> History:
        """What was recorded so far; closed if the cluster is at rest and owes nothing."""
        lives = self.lives()
        waits = any(life.waits_for_quorum for life in lives)
        return history_of(self.plan, lives, closed=not unrest(self.world) and not waits)

    def check(self, by_evs: bool = False) -> Report:
        return check(held_to_evs(self.history()) if by_evs else self.history())

    def states(self) -> str:
        lines = [(show_node(life.id), life.node.state) for life in judged(self.world)]
        return grouped(lines)

    def views(self) -> str:
        """New configurations of each life, in order, each with its cause."""
        lines = []
        for life in self.lives():
            confs = [event for event in life.recorder.events if isinstance(event, Conf)]
            new = confs[self._shown_views.get(life.id, 0) :]
            self._shown_views[life.id] = len(confs)
            if new:
                lines.append((show_node(life.id), " ".join(show_view(conf.view) for conf in new)))
        return grouped(lines)

    def deliveries(self) -> str:
        """New deliveries of each life, by the configuration in which they were delivered."""
        lines = []
        for life in self.lives():
            seen = [event for event in life.recorder.events if isinstance(event, Delivery)]
            new = seen[self._shown_deliveries.get(life.id, 0) :]
            self._shown_deliveries[life.id] = len(seen)
            if new:
                lines.append((show_node(life.id), _show_deliveries(new)))
        return grouped(lines)


def show_node(node: NodeId) -> str:
    return node.name if node.incarnation == 1 else str(node)


def show_view_id(view: ViewId) -> str:
    return f"{'R' if view.is_regular else 'T'}{view.seq}"


def show_view(view: View) -> str:
    return f"{show_view_id(view.id)}{{{','.join(map(show_node, view.nodes))}}}"


def show_message(message: MessageId) -> str:
    """`a1`; `c/2:1` where the name itself ends in a digit."""
    node = show_node(message.process.node)
    process = f"#{message.process.number}." if message.process.number else ":" if node[-1].isdigit() else ""
    return f"{node}{process}{message.counter}"


def _show_deliveries(deliveries: Sequence[Delivery]) -> str:
    """`R8: a1 a2 b1; T10: c1`, runs of more than three as `a1..a9`."""
    parts: dict[ViewId, list[str]] = {}
    for event in deliveries:
        names = [show_message(MessageId(event.process, event.first + i)) for i in range(event.count)]
        shown = names if len(names) <= 3 else [f"{names[0]}..{names[-1]}"]
        parts.setdefault(event.conf, []).extend(shown)
    return "; ".join(f"{show_view_id(conf)}: {' '.join(names)}" for conf, names in parts.items())


def grouped(lines: Sequence[tuple[str, str]]) -> str:
    """Nodes with the same text share a line; lines are ordered by their first node."""
    together: dict[str, list[str]] = {}
    for name, text in lines:
        together.setdefault(text, []).append(name)
    return "\n".join(f"{' '.join(names)}: {text}" for text, names in together.items())
