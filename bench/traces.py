"""A large and correct trace, as the nodes of one cluster would write it: real segment files of a run that came to rest.

    python -m bench.traces DIR --deliveries 10000000 [--nodes 8] [--views 20] [--run-length 8] [--seed 1] [--broken KIND]

Configurations split, merge, lose a node and get its next life; at the end of each some messages reach one component only, as they
may. The same arguments give the same bytes, whatever the number of processes. With --broken one node does one thing wrong, once,
in the middle of it all.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter
from typing import Final, NamedTuple

from bench.trace_groups import GroupPlan
from bench.trace_life import Life
from bench.trace_plan import VISIT_US, Plan, Ring, Shape
from bench.trace_traffic import Datagram, Traffic, control_place, ending
from transis.trace.segment import Header
from transis.types.ids import NodeId, Place, Service

Visit = list[Datagram]


class Written(NamedTuple):
    """What is in the files."""

    deliveries: int
    events: int


# -- what --broken does ------------------------------------------------------------------------------------------------


def _swap(visit: Visit, place: int) -> Visit:
    return [*visit[:place], visit[place + 1], visit[place], *visit[place + 2 :]]


def _duplicate(visit: Visit, place: int) -> Visit:
    return [*visit[: place + 1], *visit[place:]]


def _leave_out(visit: Visit, place: int) -> Visit:
    return [*visit[:place], *visit[place + 1 :]]


def _create(visit: Visit, place: int) -> Visit:
    """Behind it another run of the same process, of counters that nobody was ever given."""
    like = visit[place]
    forged = like._replace(first=like.first + (1 << 40), place=Place(like.place.seq, like.count))
    return [*visit[: place + 1], forged, *visit[place + 1 :]]


def _misplace(visit: Visit, place: int) -> Visit:
    wrong = visit[place]._replace(place=Place(visit[place].place.seq, 1))
    return [*visit[:place], wrong, *visit[place + 1 :]]


BROKEN: Final[dict[str, tuple[Callable[[Visit, int], Visit], tuple[Service, ...]]]] = {
    "swap": (_swap, (Service.AGREED, Service.AGREED)),
    "duplicate": (_duplicate, (Service.AGREED,)),
    "missing-safe": (_leave_out, (Service.SAFE,)),
    "creation": (_create, (Service.AGREED,)),
    "misplaced": (_misplace, (Service.AGREED,)),
}
"""What a node delivers in place of a visit, and the services of the datagrams that it needs for it."""


def broken_visit(kind: str, visit: Visit) -> Visit | None:
    """None if this visit has nothing that can be broken so; what is for clients is left alone, so that one thing breaks."""
    change, services = BROKEN[kind]
    for place in range(len(visit) - len(services) + 1):
        some = visit[place : place + len(services)]
        if tuple(one.service for one in some) == services and not any(one.address for one in some):
            return change(visit, place)
    return None


# -- writing -----------------------------------------------------------------------------------------------------------


class Scribe:
    """Writes the traces of the nodes with these names; of the others it knows what they send."""

    def __init__(self, directory: Path, shape: Shape, names: Sequence[str]) -> None:
        self._directory = directory
        self._plan = Plan(shape)
        self._names = frozenset(names)
        self._traffic = Traffic(self._plan)
        self._groups = GroupPlan(self._plan)
        self._lives: dict[NodeId, Life] = {}
        self._to_break = shape.broken
        self._in_the_middle = _middle(self._plan.rings)
        self._victim = self._in_the_middle.nodes[1]

    def write(self) -> Written:
        for ring in self._plan.rings:
            self._write_ring(ring)
        if self._to_break and self._victim.name in self._names:
            raise SystemExit(f"--broken {self._to_break}: the trace is too small for it; ask for more deliveries")
        lives = self._lives.values()
        for life in lives:
            life.close()
        return Written(sum(life.deliveries for life in lives), sum(life.events for life in lives))

    def _write_ring(self, ring: Ring) -> None:
        self._enter(ring)
        lives, settled, tail = self._lives_in(ring), ring.settled, Visit()
        for number in range(ring.visits):
            visit, now_us = self._traffic.visit(ring, number), ring.start_us + number * VISIT_US
            for life in lives:
                if life.node == visit[0].process.node:
                    life.send(now_us, visit)
                if number < settled:
                    life.deliver(now_us + life.latency_us(), self._as_delivered(ring, number, life, visit))
            if number >= settled:
                tail += visit
            elif number in (settled // 4, settled // 2):
                self._change_group(ring, number, now_us + VISIT_US)
        self._leave(ring, tail)

    def _enter(self, ring: Ring) -> None:
        refused = self._traffic.enter(ring)
        given = self._groups.start(ring)
        for node in ring.nodes:
            if node.name in self._names:
                life = self._lives.get(node) or self._born(node)
                life.configure(ring.start_us, ring.view, given[node])
                life.refuse(ring.start_us, refused[node])

    def _born(self, node: NodeId) -> Life:
        header = Header("bench", str(self._plan.shape.seed), node, build="bench.traces")
        self._lives[node] = Life(self._directory, header, self._plan.clocks[node.name])
        return self._lives[node]

    def _leave(self, ring: Ring, tail: Visit) -> None:
        """Those who go on together deliver the same of the tail; who fails, delivers what it likes and nothing more."""
        now_us = ring.start_us + ring.visits * VISIT_US
        for step in ring.steps:
            views = self._groups.leave(ring, step)
            rest = ending(self._plan, ring, step.view.nodes, tail)
            for life in self._lives_in(ring):
                if life.node in step.view.nodes:
                    life.deliver(now_us, rest.regular)
                    life.configure(now_us, step.view, views)
                    life.deliver(now_us, rest.transitional)
        for life in self._lives_in(ring):
            if ring.fails(life.node):
                life.deliver(now_us, ending(self._plan, ring, (life.node,), tail).regular)
                life.end(now_us)

    def _lives_in(self, ring: Ring) -> list[Life]:
        return [self._lives[node] for node in ring.nodes if node.name in self._names]

    def _change_group(self, ring: Ring, number: int, now_us: int) -> None:
        """Somebody leaves a group, or who left it comes back."""
        view = self._groups.toggle(ring, control_place(number))
        if view is not None:
            for life in self._lives_in(ring):
                life.show(now_us, view)

    def _as_delivered(self, ring: Ring, number: int, life: Life, visit: Visit) -> Visit:
        """A visit as this node delivers it, which is another only once, if something shall be broken."""
        if not self._to_break or life.node != self._victim or ring is not self._in_the_middle or number < ring.settled // 2:
            return visit
        changed = broken_visit(self._to_break, visit)
        if changed is None:
            return visit
        self._to_break = ""
        return changed


def _middle(rings: Sequence[Ring]) -> Ring:
    """Of the rings with the most members, the one next to the middle of the trace."""
    return max(rings, key=lambda ring: (len(ring.nodes), -abs(ring.number - len(rings) // 2)))


def write_trace(directory: Path, shape: Shape, jobs: int = 1) -> Written:
    """The whole trace, by several processes if they are asked for."""
    names = [f"n{number:02d}" for number in range(1, shape.nodes + 1)]
    shares = [names[first::jobs] for first in range(min(jobs, shape.nodes))]
    if len(shares) == 1:
        return Scribe(directory, shape, names).write()
    with ProcessPoolExecutor(len(shares), mp_context=get_context("spawn")) as pool:
        parts = list(pool.map(_write_share, [(directory, shape, share) for share in shares]))
    return Written(*(sum(counts) for counts in zip(*parts, strict=True)))


def _write_share(share: tuple[Path, Shape, Sequence[str]]) -> Written:
    return Scribe(*share).write()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, help="where to write; no segments may be there yet")
    parser.add_argument("--deliveries", type=int, required=True, help="messages times nodes that deliver them, about")
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--views", type=int, default=20, help="regular configurations")
    parser.add_argument("--run-length", type=int, default=8, help="messages of a run, on average")
    parser.add_argument("--seed", type=int, default=1, help="also the name of the run")
    parser.add_argument("--broken", choices=BROKEN, default="", help="one thing that one node does wrong")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    if not 3 <= given.nodes <= 99 or min(given.views, given.run_length, given.deliveries, given.jobs) < 1:
        parser.error("at least 3 and at most 99 nodes, and one of everything else")
    shape = Shape(given.deliveries, given.nodes, given.views, given.run_length, given.seed, given.broken)
    started = perf_counter()
    written = write_trace(given.directory, shape, given.jobs)
    print(json.dumps(written._asdict() | {"seconds": round(perf_counter() - started, 1)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
