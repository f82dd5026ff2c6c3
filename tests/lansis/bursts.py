"""Bursts of Lansis made by hand, and views without a network: what the tests of single files share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from transis.lansis.dag import Dag, DagNode
from transis.lansis.packets import Nack, encode_acks
from transis.types.ids import DatagramClass, RingTag
from transis.wire.burst import Burst, DataHeader, encode_data

TAG = RingTag(4, 7)
BASE = 1000


class Said(NamedTuple):
    """A burst as its sender made it."""

    rank: int
    first: int
    last: int
    ts: int
    klass: DatagramClass
    acks: tuple[tuple[int, int], ...]
    dep: int

    @property
    def key(self) -> int:
        return (self.ts - BASE) << 7 | self.rank


def burst_of(said: Said, *, nacks: Sequence[Nack] = (), prefix: bytes | None = None) -> Burst:
    """Its datagrams. The acknowledgements are in the first, unless there are two or more: then they straddle."""
    stream = encode_acks(said.dep, said.acks, nacks) if prefix is None else prefix
    count = said.last - said.first + 1
    cut = len(stream) if count == 1 else min(len(stream), 12)
    bodies = [stream[:cut], stream[cut:], *([b""] * (count - 2))][:count]
    header = DataHeader(said.klass, TAG, said.rank, said.first, 0, said.ts, 5, 0, count == 1, False)
    datagrams = [
        encode_data(header._replace(seq=said.first + at, index=at, last=at == count - 1), body) for at, body in enumerate(bodies)
    ]
    return Burst(header, datagrams)


def said(
    rank: int,
    first: int,
    ts: int,
    *acks: tuple[int, int],
    last: int | None = None,
    klass: DatagramClass = DatagramClass.ORDERED,
    dep: int = 0,
) -> Said:
    """`ts` counts from the base of the view."""
    return Said(rank, first, first if last is None else last, BASE + ts, klass, tuple(sorted(acks)), dep)


def enter(graph: Dag, *bursts: Said, me: int = -1) -> list[DagNode]:
    """Give whole bursts to a graph; what entered the DAG."""
    entered: list[DagNode] = []
    for one in bursts:
        graph.receive(burst_of(one), own=one.rank == me)
        entered += graph.insert_ready()
    return entered


def single(one: Said) -> DagNode:
    """A node as a graph makes it that has collected all that it follows."""
    before = {one.rank: one.first - 1} | dict(one.acks)
    expected = [1 + before.get(rank, 0) for rank in range(1 + max(before))]
    graph = Dag(-1, expected, BASE)
    (node,) = enter(graph, one)
    return node
