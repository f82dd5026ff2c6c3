"""Membership without an engine: the pure rules of lansis driven over a network that loses, reorders and splits.

Machines start alone, join by AJ and JOIN, send bursts (Lamport keys, causal past, all-ack order, safe acknowledgements by ALIVE),
break with each other for no reason, crash, come back as new lives, and pass through many views in a row. `Change`, `Barrier`,
`propose` and `part` are the real ones; what is written here is only the glue that the engine has in its organs, and the data path
in its plainest form. judging.py looks at the histories from outside.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from transis.lansis.membership import Barrier
from transis.lansis.packets import Attempt, Faults, Flushed, Joining, Statement
from transis.lansis.statements import GROWN, MembershipSets, Opinion, Proposal, ViewEnd, part, propose
from transis.types.ids import NodeId, RingId, RingTag
from transis.types.views import Cause

DIGEST = bytes(8)
CAUSE = Cause("model")
CALM_ROUNDS = 80
"""Rounds of a healed network within which everybody must be in one view."""


PATIENCE = 4
"""Rounds that a machine waits for the others' statements, and again for their FLUSHED."""


class Burst(NamedTuple):
    tag: RingTag
    sender: NodeId
    counter: int
    timestamp: int
    is_safe: bool
    past: tuple[tuple[NodeId, int], ...]

    @property
    def key(self) -> int:
        """As lansis/dag.py: by timestamp, then by rank; names here are single letters in the order of ranks."""
        return self.timestamp << 7 | ord(self.sender.name) - 90


class Alive(NamedTuple):
    tag: RingTag
    sender: NodeId
    sent: int
    clock: int
    recv: tuple[tuple[NodeId, int], ...]


Packet = Burst | Alive | Statement | Flushed


@dataclass
class Stay:
    """One regular view at one machine: what it delivered in it, and how it left it."""

    proposal: bytes
    id: RingId
    tag: RingTag
    members: tuple[NodeId, ...]
    regular: list[Burst] = field(default_factory=list)
    transitional: list[Burst] = field(default_factory=list)
    trans: tuple[NodeId, ...] = ()
    next: RingId | None = None

    @property
    def all(self) -> list[Burst]:
        return self.regular + self.transitional


class Machine:
    """One life: the glue between the pure rules, with the data path of one view at a time."""

    def __init__(self, me: NodeId, world: World) -> None:
        self.me = me
        self.world = world
        self.clock = self.version = self.sent = self.view_seq = 0
        self.dead = False
        self.stays: list[Stay] = []
        self.all_sent: list[Burst] = []
        self.sets = MembershipSets(me, (me,))
        self._enter(Stay(b"", RingId(0, me), RingId(0, me).tag, (me,)), {me: 0})

    def _enter(self, stay: Stay, counters: dict[NodeId, int]) -> None:
        self.stay = stay
        self.stays.append(stay)
        self.sets = MembershipSets(self.me, stay.members, self.sets.last)
        self.barrier = Barrier()
        self.inserted = counters
        self.waiting: dict[tuple[NodeId, int], Burst] = {}
        self.held: list[Burst] = []
        self.promise = dict.fromkeys(stay.members, 0)
        self.pending: dict[NodeId, tuple[int, int]] = {}
        self.ack = {node: dict(counters) for node in stay.members}
        self.closed: set[NodeId] = set()
        self.delivered = 0
        self.frozen: tuple[tuple[tuple[NodeId, int], ...], int] | None = None
        self.in_stage_1 = False
        self.waited = 0

    # --- data path --------------------------------------------------------------------------------------------------

    def send(self, *, is_safe: bool) -> None:
        if self.frozen:
            return
        self.sent += 1
        self.clock += 1
        burst = Burst(self.stay.tag, self.me, self.sent, self.clock, is_safe, self._recv())
        self.all_sent.append(burst)
        self.world.cast(self, burst)
        self._insert(burst)
        self.deliver()

    def _recv(self) -> tuple[tuple[NodeId, int], ...]:
        return tuple(sorted(self.inserted.items()))

    def alive(self) -> None:
        recv, clock = self.frozen or (self._recv(), self.clock)
        self.world.cast(self, Alive(self.stay.tag, self.me, self.sent, clock, recv))

    def on_burst(self, burst: Burst) -> None:
        if burst.tag == self.stay.tag and burst.counter > self.inserted[burst.sender]:
            self.waiting[burst.sender, burst.counter] = burst
            while ready := [one for one in self.waiting.values() if self._is_insertable(one)]:
                self._insert(self.waiting.pop((ready[0].sender, ready[0].counter)))
            self.deliver()
            self.try_flush()

    def _is_insertable(self, burst: Burst) -> bool:
        return burst.counter == self.inserted[burst.sender] + 1 and all(self.inserted[node] >= last for node, last in burst.past)

    def _insert(self, burst: Burst) -> None:
        self.inserted[burst.sender] = burst.counter
        self.held.append(burst)
        self.clock = max(self.clock, burst.timestamp)
        self.promise[burst.sender] = max(self.promise[burst.sender], burst.timestamp)
        for node, (sent, clock) in self.pending.items():
            if self.inserted[node] >= sent:
                self.promise[node] = max(self.promise[node], clock)

    def on_alive(self, alive: Alive) -> None:
        if alive.tag == self.stay.tag and alive.sender not in self.closed:
            row = self.ack[alive.sender]
            row.update({node: max(row[node], last) for node, last in alive.recv})
            self.pending[alive.sender] = alive.sent, alive.clock
            if self.inserted[alive.sender] >= alive.sent:
                self.promise[alive.sender] = max(self.promise[alive.sender], alive.clock)
            self.deliver()

    def deliver(self) -> None:
        """All-ack: the head of the key order leaves when everybody has promised to send nothing below it."""
        if self.frozen:
            return
        self.promise[self.me] = self.clock
        self.ack[self.me] = dict(self.inserted)
        for burst in sorted(self.held, key=lambda one: one.key):
            if burst.key > self.delivered:
                is_stable = all(row[burst.sender] >= burst.counter for row in self.ack.values())
                if min(self.promise.values()) < burst.timestamp or (burst.is_safe and not is_stable):
                    return
                self.stay.regular.append(burst)
                self.delivered = burst.key

    def answer(self, other: Machine) -> None:
        """Send a member again the next burst of each sender that it lacks."""
        if other.stay.id == self.stay.id:
            for burst in self.held:
                if other.inserted[burst.sender] + 1 == burst.counter:
                    self.world.put(self, other, burst)

    # --- membership: the glue of agreeing.py, flush.py and install.py -----------------------------------------------

    def invite(self, nodes: frozenset[NodeId]) -> None:
        """Stage 0 to Stage 1: somebody else was heard."""
        if self.sets.mine is None and not nodes <= self.sets.j:
            self.in_stage_1 = True
            self.sets.invite(nodes)
            self.world.cast(self, self._statement(Attempt))

    def on_attempt(self, said: Statement) -> None:
        if self.sets.mine is None and not (said.sender in self.stay.members and said.view != self.stay.id):
            self.invite(said.j | {said.sender})

    def alpha(self) -> None:
        if self.in_stage_1 and self.sets.mine is None:
            self.restate()

    def break_with(self, node: NodeId) -> None:
        if self.sets.break_with(node):
            self.restate()

    def restate(self) -> None:
        if self.frozen is None:
            self.frozen = self._recv(), self.clock
        self.version += 1
        self.waited = 0
        mine = self._statement(Joining if self.sets.has_strangers else Faults)
        self.sets.last[self.me] = mine
        self.barrier.assented = None
        self.world.cast(self, mine)
        self.try_assent()

    def _statement(self, kind: type[Statement]) -> Statement:
        change = self.sets
        return kind(
            self.me, "", b"", self.version, self.stay.id, self.view_seq, change.j, change.f_before, change.f_after,
            self._recv(), self.delivered, self.clock, CAUSE, False, DIGEST, (1, 1),
        )  # fmt: skip

    def on_statement(self, said: Statement) -> None:
        if said.sender in self.stay.members and said.view != self.stay.id:
            self._of_another_view(said)
            return
        if said.view == self.stay.id:
            self.closed.add(said.sender)
        is_stranger = said.sender not in self.stay.members
        if is_stranger and self.sets.mine is None and (self.me not in said.accept or said.f & self.sets.ccs):
            return
        verdict = self.sets.take(said, has_flushed=self.barrier.flushed is not None)
        if verdict in GROWN or (verdict is Opinion.KEPT and self.sets.mine is None):
            self.restate()
        elif verdict is Opinion.KEPT:
            self.try_assent()

    def _of_another_view(self, said: Statement) -> None:
        if said.view.seq < self.stay.id.seq:
            self.alive()
        elif not self._may_be_mine(said.view):
            self.break_with(said.sender)

    def _may_be_mine(self, view: RingId) -> bool:
        """The view that I promised to install, or one with its id: its ALIVE will tell."""
        return self.barrier.flushed is not None and view == self.barrier.flushed.id

    def try_assent(self) -> None:
        statements = self.sets.assent()
        if statements is None or (self.barrier.assented is not None and statements == self.barrier.assented.statements):
            return
        proposal = propose(statements)
        if proposal.id.rep == self.me and proposal.id.seq <= self.view_seq:
            self.restate()
            return
        self.barrier.assented = proposal
        self.waited = 0
        self.try_flush()

    def try_flush(self) -> None:
        proposal = self.barrier.assented
        if proposal is None or not self.holds(self.parting(proposal)):
            return
        if self.barrier.flushed is not proposal:
            if self.barrier.flushed is not None:
                self.world.counts["abandoned"] += 1
            self.barrier.flush(self.me)
            self.view_seq = max(self.view_seq, proposal.id.seq)
        self.say_flushed()
        self.try_install()

    def parting(self, proposal: Proposal) -> ViewEnd:
        return part(proposal, self.stay.id, self.stay.members)

    def holds(self, parting: ViewEnd) -> bool:
        return all(self.inserted[node] >= last for node, last in parting.pre.items())

    def say_flushed(self) -> None:
        flushed = self.barrier.flushed
        if flushed is not None:
            self.world.cast(self, Flushed(self.me, "", self.stay.id, flushed.digest, flushed.id))

    def on_flushed(self, said: Flushed) -> None:
        if said.sender in self.stay.members and said.view.seq < self.stay.id.seq:
            self.alive()
        elif said.sender in self.sets.j:
            self.barrier.heard(said)
            self.try_install()

    def try_install(self) -> None:
        if (proposal := self.barrier.installable()) is not None:
            self.install(proposal)

    def hearsay(self, tag: RingTag) -> bool:
        proposal = self.barrier.hearsay(tag)
        if proposal is None:
            return False
        self.world.counts["hearsay"] += 1
        self.install(proposal)
        return True

    def install(self, proposal: Proposal) -> None:
        parting = self.parting(proposal)
        for burst in sorted(self.held, key=lambda one: one.key):
            if self.delivered < burst.key and burst.counter <= parting.pre[burst.sender]:
                (self.stay.regular if burst.key <= parting.delivered else self.stay.transitional).append(burst)
        self.stay.trans = tuple(said.sender for said in parting.trans)
        self.stay.next = proposal.id
        self.world.counts["installed"] += 1
        self.clock = max(self.clock, proposal.base)
        counters = {node: first - 1 for node, first in zip(proposal.members, proposal.expected(), strict=True)}
        self._enter(Stay(proposal.digest, proposal.id, proposal.tag, proposal.members), counters)
        self.alive()

    def receive(self, packet: Packet) -> None:
        match packet:
            case Burst() | Alive():
                if packet.tag != self.stay.tag and not self.hearsay(packet.tag):
                    return
                self.on_burst(packet) if isinstance(packet, Burst) else self.on_alive(packet)
            case Attempt():
                self.on_attempt(packet)
            case Statement():
                self.on_statement(packet)
            case Flushed():
                self.on_flushed(packet)

    def repeat(self) -> None:
        """What the timers of a real engine do again and again."""
        if self.sets.mine is not None:
            self.world.cast(self, self.sets.mine)
            self.say_flushed()
        elif self.in_stage_1:
            self.world.cast(self, self._statement(Attempt))
        self.alive()

    def lose_patience(self) -> None:
        """AGREE and FLUSH_LATE: break with whoever keeps me waiting."""
        if self.sets.mine is None:
            return
        proposal = self.barrier.assented
        late = [node for node in sorted(self.sets.accept) if not self.sets.agrees(node)]
        if proposal is not None:
            late = [node for node in self.barrier.lacking(proposal) if node != self.me]
        for node in late:
            self.break_with(node)


class World:
    def __init__(self, seed: int, kind: type[Machine] = Machine) -> None:
        self._kind = kind
        self.random = random = Random(seed)
        self.counts: Counter[str] = Counter()
        self.net: list[tuple[Machine, Machine, Packet]] = []
        self.part: dict[str, int] = {}
        self.deaf: tuple[str, str] | None = None
        names = "abcde"[: random.choice((2, 3, 3, 4, 4, 5))]
        self.machines = [kind(NodeId(name, 1, ord(name)), self) for name in names]
        self.everybody = list(self.machines)
        self.drop = random.choice((0.0, 0.1, 0.3, 0.6))
        self.mix = random.choice((0.1, 0.3, 0.9))
        self.breaks = random.choice((0.0, 0.002, 0.01, 0.04))
        self.deaths = random.choice((0.0, 0.0, 0.003))

    # --- network ----------------------------------------------------------------------------------------------------

    def cast(self, source: Machine, packet: Packet) -> None:
        for target in self.machines:
            if target is not source:
                self.put(source, target, packet)

    def put(self, source: Machine, target: Machine, packet: Packet) -> None:
        self.net.append((source, target, packet))

    def _passes(self, source: Machine, target: Machine) -> bool:
        one, other = source.me.name, target.me.name
        if target.dead or self.part.get(one, 0) != self.part.get(other, 0) or (one, other) == self.deaf:
            return False
        return self.random.random() >= self.drop

    def carry(self, count: int) -> None:
        for _ in range(min(count, len(self.net))):
            at = self.random.randrange(len(self.net)) if self.random.random() < self.mix else 0
            source, target, packet = self.net.pop(at)
            if self._passes(source, target):
                target.receive(packet)

    # --- a run ------------------------------------------------------------------------------------------------------

    def storm(self, steps: int) -> None:
        random = self.random
        for _ in range(steps):
            self._weather()
            machine = random.choice(self.machines)
            dice = random.random()
            if dice < 0.10:
                machine.send(is_safe=random.random() < 0.6)
            elif dice < 0.18:
                machine.alive()
            elif dice < 0.26:
                machine.repeat()
            elif dice < 0.34:
                machine.answer(random.choice(self.machines))
            elif dice < 0.37:
                other = random.choice(self.machines)
                machine.invite(frozenset(other.stay.members) | {other.me})
            elif dice < 0.40:
                machine.alpha()
            elif dice < 0.40 + self.breaks:
                machine.break_with(random.choice(self.machines).me)
            elif dice < 0.45:
                if random.random() < 0.1:
                    machine.lose_patience()
            else:
                self.carry(random.choice((1, 3, 8, 20)))
            del self.net[:-400]

    def _weather(self) -> None:
        random = self.random
        dice = random.random()
        if dice < 0.004:
            self.part = {machine.me.name: random.randrange(2) for machine in self.machines}
        elif dice < 0.010:
            self.part = {}
        elif dice < 0.013:
            self.deaf = (random.choice(self.machines).me.name, random.choice(self.machines).me.name)
        elif dice < 0.02:
            self.deaf = None
        elif dice < 0.02 + self.deaths:
            self._reborn(random.choice(self.machines))

    def _reborn(self, machine: Machine) -> None:
        """A crash, and a new life of the name with nothing but its higher incarnation."""
        self.counts["crashed"] += 1
        machine.dead = True
        me = machine.me
        life = self._kind(NodeId(me.name, me.incarnation + 1, me.boot + 1000), self)
        self.machines[self.machines.index(machine)] = life
        self.everybody.append(life)

    def calm(self) -> bool:
        """The network is well again: does everybody come together, and stay so?"""
        self.part, self.deaf, self.drop, self.mix, self.net = {}, None, 0.0, 0.0, []
        for _ in range(CALM_ROUNDS):
            self._round()
            if len({machine.stay.id for machine in self.machines}) == 1 and self._is_one_view():
                return True
        return False

    def _is_one_view(self) -> bool:
        return all(machine.stay.members == tuple(one.me for one in self.machines) for machine in self.machines)

    def _round(self) -> None:
        for machine in self.machines:
            machine.repeat()
            self.carry(len(self.net))
            for other in self.machines:
                machine.answer(other)
                if other.stay.id != machine.stay.id:
                    self._notice(machine, other)
            self.carry(len(self.net))
            machine.alpha()
        for machine in self.machines:
            machine.waited += 1
            if machine.waited >= PATIENCE:
                machine.lose_patience()
        while self.net:
            self.carry(len(self.net))

    def _notice(self, machine: Machine, other: Machine) -> None:
        """A beacon of another view: a stranger is invited; a member that has gone to a later view is gone."""
        if other.me not in machine.stay.members:
            machine.invite(frozenset(other.stay.members) | {other.me})
            for node in machine.stay.members:
                if node.name == other.me.name:
                    machine.break_with(node)
        elif other.stay.id.seq > machine.stay.id.seq and not machine.hearsay(other.stay.tag):
            machine.break_with(other.me)
