"""The plan of a generated trace: who is together when, how configurations follow each other, when, and by whose clock.

Small, whatever the size of the trace, and a function of its shape alone: every process that writes a part of the trace makes the
same plan. Memberships go in rounds: all together, two components, all together, one has failed, all together with its next life.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import ceil
from random import Random
from typing import Final, NamedTuple

from transis.types.ids import NodeId, ViewId, ViewKind
from transis.types.views import Cause, Member, View

VISIT: Final = 4
"""Datagrams that a node sends while it has the token."""

VISITS_MIN: Final = 8
"""Visits of a ring, however small the trace: the last ones are its tail, and something must stand before it."""

RING_STEP: Final = 4
"""A new ring's sequence exceeds the last one by this much; its transitional configurations have two less."""

START_US: Final = 1_767_225_600_000_000
"""The first moment of 2026; any other would do."""

VISIT_US: Final = 400
CHANGE_US: Final = 40_000
"""From the end of one configuration to the start of the next."""

OFFSET_US: Final = 3_000
DRIFT_PPM: Final = 40


class Shape(NamedTuple):
    """What is asked for."""

    deliveries: int
    nodes: int = 8
    views: int = 20
    run_length: int = 8
    seed: int = 1
    broken: str = ""


@dataclass(eq=False)
class Ring:
    """A regular configuration, and where its members go from it."""

    number: int
    view: View
    visits: int
    start_us: int
    steps: list[Step] = field(default_factory=list)
    is_last: bool = False
    """Nobody goes anywhere from here, and everything is delivered."""

    @property
    def nodes(self) -> tuple[NodeId, ...]:
        return self.view.nodes

    @property
    def settled(self) -> int:
        """Visits that everybody delivers: all but the tail that a change may cut, one rotation, or half of a short ring."""
        return self.visits if self.is_last else self.visits - min(len(self.nodes), self.visits // 2)

    @property
    def end_us(self) -> int:
        return self.start_us + (self.visits + 2) * VISIT_US

    def fails(self, node: NodeId) -> bool:
        """Is this the last configuration of the node, though not of the trace?"""
        return not self.is_last and all(node not in step.view.nodes for step in self.steps)


class Step(NamedTuple):
    """Members of a ring that go on together, through this transitional configuration."""

    view: View
    following: Ring


@dataclass(frozen=True)
class Clock:
    """A node's clock against the true time."""

    offset_us: int
    drift_ppm: int

    def local(self, true_us: int) -> int:
        return true_us + self.offset_us + (true_us - START_US) * self.drift_ppm // 1_000_000


class Plan:
    """All rings in the order of their start, with the steps between them."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.names = [f"n{number:02d}" for number in range(1, shape.nodes + 1)]
        draw = Random(f"{shape.seed}:plan")
        self.clocks = {name: _clock(draw) for name in self.names}
        self.rings: list[Ring] = []
        self._lives = {name: _life(name, 1) for name in self.names}
        self._here: dict[NodeId, Ring] = {}
        start_us = START_US
        for sequence, components in enumerate(memberships(self.names, shape.views, draw), 1):
            formed = self._form(sequence, components, start_us)
            start_us = max(ring.end_us for ring in formed) + CHANGE_US
        for ring in set(self._here.values()):
            ring.is_last = True

    def _form(self, sequence: int, components: Sequence[Sequence[str]], start_us: int) -> list[Ring]:
        """The rings of one moment. Who is in none of them has failed, and comes back as another."""
        nodes = [tuple(self._lives[name] for name in sorted(component)) for component in components]
        formed = [self._ring(sequence, members, start_us) for members in nodes]
        self.rings += formed
        self._here = {node: ring for ring in formed for node in ring.nodes}
        gone = [name for name in self.names if self._lives[name] not in self._here]
        self._lives |= {name: _life(name, self._lives[name].incarnation + 1) for name in gone}
        return formed

    def _ring(self, sequence: int, nodes: tuple[NodeId, ...], start_us: int) -> Ring:
        id_ = ViewId(ViewKind.REGULAR, RING_STEP * sequence, nodes[0])
        before = [self._here.get(node) for node in nodes]
        members = tuple(
            Member(node, "", None if ring is None else ring.view.id) for node, ring in zip(nodes, before, strict=True)
        )
        cause = _cause(nodes, [ring for ring in before if ring is not None])
        ring = Ring(len(self.rings), View(id_, id_, members, cause, sequence), self._visits(len(nodes)), start_us)
        for old in dict.fromkeys(one for one in before if one is not None):
            together = tuple(member for member in members if member.previous == old.view.id)
            trans = ViewId(ViewKind.TRANSITIONAL, id_.seq - 2, together[0].node)
            old.steps.append(Step(View(trans, old.view.id, together, cause, sequence), ring))
        return ring

    def _visits(self, members: int) -> int:
        """So many that every ring has the same share of all deliveries, and some more for what is lost of the tail."""
        datagrams = self.shape.deliveries / self.shape.views / members / self.shape.run_length
        return max(VISITS_MIN, ceil(datagrams / VISIT) + members // 4)


def memberships(names: Sequence[str], views: int, draw: Random) -> Iterator[list[list[str]]]:
    """The components of each moment, `views` of them in all. The last one is no partition: there a trace comes to rest."""
    everybody = list(names)
    yield [everybody]
    left = views - 1
    while left:
        if left >= 3:
            minority = draw.sample(everybody, draw.randint(1, len(everybody) // 2))
            yield [[name for name in everybody if name not in minority], minority]
            yield [everybody]
            left -= 3
        if left:
            failed = draw.choice(everybody)
            yield [[name for name in everybody if name != failed]]
            left -= 1
        if left:
            yield [everybody]
            left -= 1


def _cause(nodes: tuple[NodeId, ...], before: list[Ring]) -> Cause:
    lost = sorted({node for ring in before for node in ring.nodes}.difference(nodes))
    if lost:
        return Cause("token lost", nodes[0], tuple(lost), "token loss")
    return Cause("foreign join", nodes[-1]) if before else Cause("start")


def _clock(draw: Random) -> Clock:
    return Clock(draw.randint(-OFFSET_US, OFFSET_US), draw.randint(-DRIFT_PPM, DRIFT_PPM))


def _life(name: str, incarnation: int) -> NodeId:
    return NodeId(name, incarnation, incarnation << 32 | int(name[1:]))
