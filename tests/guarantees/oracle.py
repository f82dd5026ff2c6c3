"""Good histories without a network: an oracle of extended virtual synchrony that moves whole configurations at once.

It knows everything, so it needs no token, no timer and no packet; it only draws who receives what, who delivers how
far, who fails, and who finds whom. What a node may then deliver follows the rules of recovery (TOCS95 section 7, with
F1 and W3): everything up to the first gap, after it only what the obligation covers; laggards that exchanged
messages but did not install are left behind with their obligation and later install a smaller transitional
configuration (F8). Checkers must find nothing in such a history, and mutants start from one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Final

from transis.audit.guarantees import check
from transis.trace.events import History, NodeTrace, is_ordered
from transis.trace.recorder import Recorder
from transis.types.ids import NodeId, ProcessId, Service, ViewId, ViewKind
from transis.types.outputs import Accepted, Configure, Delivered, Originated, Phase, Refused, RunIds
from transis.types.views import Cause, Member, View

RING_STEP: Final = 4
"""A new ring's sequence exceeds all it replaces by this much; its transitional configurations have two less (TOCS95)."""


@dataclass(frozen=True, slots=True)
class Datagram:
    """One entry of a ring's order: a run of messages that share a datagram. `causes`, where they are needed, are the positions of
    what its sender had sent or delivered before."""

    sender: NodeId
    ids: RunIds
    seq: int
    timestamp: int
    causes: frozenset[int] = frozenset()


@dataclass(eq=False, slots=True)
class RingLog:
    """A regular configuration with its order; `acked` is how far each member, still in it, had everything."""

    view: ViewId
    members: tuple[NodeId, ...]
    log: list[Datagram] = field(default_factory=list)
    acked: dict[NodeId, int] = field(default_factory=dict)

    def stable(self, position: int) -> bool:
        return all(self.acked.get(member, 0) > position for member in self.members)


@dataclass(eq=False, slots=True)
class Actor:
    """One life of one node as the oracle sees it."""

    id: NodeId
    recorder: Recorder
    ring: RingLog | None = None
    operational: bool = False
    received: set[int] = field(default_factory=set)
    early: set[int] = field(default_factory=set)
    delivered: int = 0
    obligation: frozenset[NodeId] = frozenset()
    queue: list[RunIds] = field(default_factory=list)
    counters: dict[int, int] = field(default_factory=dict)
    highest_seq: int = 0

    def contiguous(self) -> int:
        """How many datagrams from the first on have all arrived."""
        position = self.delivered
        while position in self.received:
            position += 1
        return position


class AbstractWorld:
    """Draws one good history."""

    engine = "totem"

    def __init__(self, seed: int, names: str = "abcde") -> None:
        self.rng = Random(f"{seed}:abstract")
        self.now = 0
        self.ordered = frozenset(service for service in Service if is_ordered(service, self.engine))
        self.live: dict[str, Actor] = {}
        self.lives: list[Actor] = []
        self.incarnation = dict.fromkeys(names, 0)
        for name in names:
            self._start(name)
        self._form(sorted(self.live), laggard=None)

    def step(self) -> None:
        """One drawn action; most are traffic."""
        actions = [self._submit, self._originate, self._receive, self._deliver, self._refuse, self._regroup, self._fail]
        weights = [12, 12, 14, 14, 1, 1.2, 0.5]
        self.rng.choices(actions, weights)[0]()

    def close(self) -> None:
        """Everybody alive comes together, sends what is queued and delivers everything."""
        everyone = [self.live[name] for name in sorted(self.live)]
        self._form([actor.id.name for actor in everyone], laggard=None)
        for actor in everyone:
            while actor.queue:
                self._originate_run(actor)
        for actor in everyone:
            assert actor.ring is not None
            self._take(actor, set(range(len(actor.ring.log))))
        for actor in everyone:
            self._deliver_some(actor, limit=1 << 30)

    def history(self, closed: bool) -> History:
        return History([NodeTrace(actor.id, actor.recorder.events) for actor in self.lives], closed, engine=self.engine)

    # Traffic.

    def _anyone(self, operational: bool = True) -> Actor | None:
        actors = [self.live[name] for name in sorted(self.live) if self.live[name].operational or not operational]
        return self.rng.choice(actors) if actors else None

    def _tick(self) -> int:
        self.now += self.rng.randint(1, 9)
        return self.now

    def _submit(self) -> None:
        actor = self._anyone(operational=False)
        if actor is not None:
            count = self.rng.choice((1, 1, 1, 2, 3))
            process = self.rng.choice((0, 0, 1))
            counter = actor.counters.get(process, 0)
            ids = RunIds(process, counter + 1, count, self.rng.choice(list(Service)))
            actor.counters[process] = counter + count
            actor.queue.append(ids)
            actor.recorder.observe(self._tick(), [Accepted(ids)])

    def _refuse(self) -> None:
        actor = self._anyone(operational=False)
        if actor is not None and actor.queue:
            actor.recorder.observe(self._tick(), [Refused(actor.queue.pop(), "drawn")])

    def _originate(self) -> None:
        actor = self._anyone()
        if actor is not None and actor.queue:
            self._originate_run(actor)

    def _originate_run(self, actor: Actor) -> None:
        ring = actor.ring
        assert ring is not None
        ids = actor.queue.pop(0)
        datagram = Datagram(actor.id, ids, len(ring.log) + 1, self._tick(), self._causes(actor))
        ring.log.append(datagram)
        actor.recorder.observe(self.now, [Originated(ids, ring.view, [(datagram.seq, 0, ids.count)], datagram.timestamp)])
        self._take(actor, {datagram.seq - 1})
        if ids.service is Service.BASIC:
            self._deliver_early(ring, datagram)

    def _causes(self, actor: Actor) -> frozenset[int]:
        """Here one order holds for all messages, so that it says what comes before what."""
        return frozenset()

    def _deliver_early(self, ring: RingLog, datagram: Datagram) -> None:
        for name in sorted(self.live):
            actor = self.live[name]
            if actor.operational and actor.ring is ring and self.rng.random() < 0.5:
                actor.early.add(datagram.seq - 1)
                self._record(actor, datagram, Phase.REGULAR, early=True)

    def _receive(self) -> None:
        """Usually the next few datagrams; sometimes one beyond a gap."""
        actor = self._anyone()
        if actor is None or actor.ring is None or not actor.ring.log:
            return
        if self.rng.random() < 0.2:
            self._take(actor, {self.rng.randrange(len(actor.ring.log))})
        else:
            first = actor.contiguous()
            self._take(actor, set(range(first, min(len(actor.ring.log), first + self.rng.randint(1, 6)))))

    def _take(self, actor: Actor, positions: set[int]) -> None:
        assert actor.ring is not None
        assert actor.operational
        actor.received |= positions
        actor.ring.acked[actor.id] = actor.contiguous()

    def _deliver(self) -> None:
        actor = self._anyone()
        if actor is not None:
            self._deliver_some(actor, self.rng.randint(1, 6))

    def _deliver_some(self, actor: Actor, limit: int) -> None:
        """Agreed when everything before it was delivered; safe when every member of the ring has it too."""
        ring = actor.ring
        assert ring is not None
        while limit and actor.delivered in actor.received:
            safe = ring.log[actor.delivered].ids.service is Service.SAFE
            if safe and not ring.stable(actor.delivered):
                return
            self._deliver_at(actor, actor.delivered, Phase.REGULAR)
            actor.delivered += 1
            limit -= 1

    def _deliver_at(self, actor: Actor, position: int, phase: Phase) -> None:
        assert actor.ring is not None
        if position not in actor.early:
            self._record(actor, actor.ring.log[position], phase, early=False)

    def _record(self, actor: Actor, datagram: Datagram, phase: Phase, early: bool) -> None:
        """Nodes may cut a run differently, so a run is sometimes recorded in two pieces."""
        process, first, count, service, address = datagram.ids
        pieces = [(0, count)] if count == 1 or self.rng.random() < 0.7 else [(0, 1), (1, count - 1)]
        for offset, size in pieces:
            assert actor.ring is not None
            run = Delivered(
                ProcessId(datagram.sender, process), address, service, first + offset, [b""] * size, actor.ring.view, phase,
                [(datagram.seq, offset, size)], early, self.now, datagram.timestamp, service in self.ordered,
            )  # fmt: skip
            actor.recorder.observe(self._tick(), [run])

    # Lives and configurations.

    def _start(self, name: str) -> None:
        self.incarnation[name] += 1
        incarnation = self.incarnation[name]
        node = NodeId(name, incarnation, 1000 * incarnation + ord(name[0]))
        actor = Actor(node, Recorder(node))
        self.live[name] = actor
        self.lives.append(actor)

    def _fail(self) -> None:
        """Somebody crashes or leaves, or somebody who was gone starts again alone."""
        gone = [name for name in sorted(self.incarnation) if name not in self.live]
        if gone and self.rng.random() < 0.6:
            name = self.rng.choice(gone)
            self._start(name)
            self._form([name], laggard=None)
        elif len(self.live) > 1:
            actor = self.live.pop(self.rng.choice(sorted(self.live)))
            actor.recorder.end(self._tick(), self.rng.choice(("failed", "failed", "stopped")))

    def _regroup(self) -> None:
        """Draw a component of the living; now and then one of it fails to install."""
        names = sorted(self.live)
        component = sorted(self.rng.sample(names, self.rng.randint(1, len(names))))
        laggard = self.rng.choice(component) if len(component) > 1 and self.rng.random() < 0.3 else None
        self._form(component, laggard)

    def _form(self, names: list[str], laggard: str | None) -> None:
        actors = [self.live[name] for name in names]
        seq = RING_STEP + max(actor.highest_seq for actor in actors)
        view_id = ViewId(ViewKind.REGULAR, seq, actors[0].id)
        members = tuple(Member(actor.id, "", None if actor.ring is None else actor.ring.view) for actor in actors)
        view = View(view_id, view_id, members, Cause("drawn"), self.now)
        ring = RingLog(view_id, view.nodes)
        groups: dict[RingLog | None, list[Actor]] = {}
        for actor in actors:
            actor.highest_seq = seq
            actor.operational = False
            groups.setdefault(actor.ring, []).append(actor)
        for old, group in groups.items():
            self._leave_ring(old, group, view, laggard)
        for actor in actors:
            if actor.id.name != laggard:
                self._enter(actor, ring, view)

    def _leave_ring(self, old: RingLog | None, group: list[Actor], view: View, laggard: str | None) -> None:
        if old is None:
            return
        covered = frozenset[NodeId]().union(*(actor.obligation for actor in group))
        held = set[int]().union(*(actor.received for actor in group))
        high = max(actor.delivered for actor in group)
        members = tuple(Member(actor.id, "", old.view) for actor in group)
        id_ = ViewId(ViewKind.TRANSITIONAL, view.id.seq - 2, group[0].id)
        transitional = View(id_, old.view, members, view.cause, self.now)
        for actor in group:
            actor.received = set(held)
            actor.obligation |= covered
            if actor.id.name != laggard:
                self._recover(actor, high, covered, transitional)

    def _recover(self, actor: Actor, high: int, covered: frozenset[NodeId], transitional: View) -> None:
        """What recovery delivers, in the order of TOCS95 section 7 as D20 and D21 correct it."""
        assert actor.ring is not None
        log = actor.ring.log
        position = actor.delivered
        while position in actor.received and (log[position].ids.service is not Service.SAFE or position < high):
            self._deliver_at(actor, position, Phase.REGULAR)
            position += 1
        actor.recorder.observe(self._tick(), [Configure(transitional)])
        gap = False
        for rest in range(position, len(log)):
            if rest not in actor.received:
                gap = True
            elif not gap or log[rest].sender in covered:
                self._deliver_at(actor, rest, Phase.TRANSITIONAL)

    def _enter(self, actor: Actor, ring: RingLog, view: View) -> None:
        actor.ring = ring
        actor.operational = True
        actor.received = set()
        actor.early = set()
        actor.delivered = 0
        actor.obligation = frozenset({actor.id})
        ring.acked[actor.id] = 0
        actor.recorder.observe(self._tick(), [Configure(view)])


def good_history(seed: int, names: str = "abcde", steps: int = 300, closed: bool = True) -> History:
    """A history that breaks no guarantee; with `closed`, one that reached quiescence."""
    world = AbstractWorld(seed, names)
    for _ in range(steps):
        world.step()
    if closed:
        world.close()
    return world.history(closed)


SEEDS_OF_A_WRONG_RULE = 60


def broken_by(oracle: type[AbstractWorld]) -> set[str]:
    """Properties broken in any of the histories that a world with a wrong rule draws."""
    broken: set[str] = set()
    for seed in range(SEEDS_OF_A_WRONG_RULE):
        world = oracle(seed)
        for _ in range(300):
            world.step()
        world.close()
        broken.update(check(world.history(closed=True)).broken)
    return broken
