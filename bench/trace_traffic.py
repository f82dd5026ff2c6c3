"""The messages of a generated trace: what is sent in each ring, and what of its end a component still gets.

A ring's order is made of visits of the token: the node that has it sends a few datagrams, each a run of messages of one process.
Who goes on in a component delivers everything up to the first datagram that is lost, and behind it only what its own members
sent (D20, docs/protocol.md); a safe message that not everybody is known to have waits for the transitional configuration.
"""

from __future__ import annotations

from random import Random
from typing import Final, NamedTuple

from bench.trace_groups import ADDRESSES, CLIENTS
from bench.trace_plan import START_US, VISIT, VISIT_US, Plan, Ring
from transis.types.ids import NodeId, Place, ProcessId, Service

EMBEDDED: Final = (0, 7)
"""Processes that send to no group: the node itself, and one more."""

SENDERS: Final = (*EMBEDDED, *EMBEDDED, *EMBEDDED, *CLIENTS)
SERVICES: Final = (*[Service.AGREED] * 5, *[Service.SAFE] * 3, Service.CAUSAL, Service.BASIC)
BYTES: Final = 64


class Datagram(NamedTuple):
    """A run of messages on its way."""

    process: ProcessId
    first: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody wants of a datagram
    service: Service
    address: bytes
    place: Place
    origin_us: int
    timestamp: int
    size: int


class Traffic:
    """Draws the visits of one ring after the other; counters go on from ring to ring."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._counters: dict[ProcessId, int] = {}
        self._draw = Random(0)
        self._now = 0

    def enter(self, ring: Ring) -> dict[NodeId, int]:
        """Start a ring: each member is given one message that will be refused; its counter."""
        self._draw = Random(f"{self._plan.shape.seed}:{ring.number}:traffic")
        return {node: self._take(ProcessId(node, 0), 1) for node in ring.nodes}

    def visit(self, ring: Ring, number: int) -> list[Datagram]:
        """What the node that has the token sends."""
        node = ring.nodes[number % len(ring.nodes)]
        origin_us = self._plan.clocks[node.name].local(ring.start_us + number * VISIT_US)
        first_seq = 1 + number * (VISIT + 1)
        return [self._datagram(node, origin_us, first_seq + offset) for offset in range(VISIT)]

    def _datagram(self, node: NodeId, origin_us: int, seq: int) -> Datagram:
        draw = self._draw
        number, service = draw.choice(SENDERS), draw.choice(SERVICES)
        count = draw.randint(1, 2 * self._plan.shape.run_length - 1)
        address = draw.choice(ADDRESSES) if number in CLIENTS else b""
        process = ProcessId(node, number)
        first = self._take(process, count)
        timestamp = origin_us - START_US
        return Datagram(process, first, count, service, address, Place(seq, 0), origin_us, timestamp, count * BYTES)

    def _take(self, process: ProcessId, count: int) -> int:
        first = self._counters.get(process, 0) + 1
        self._counters[process] = first + count - 1
        return first


def control_place(number: int) -> Place:
    """Where a visit leaves room for a request about groups, behind its datagrams."""
    return Place((number + 1) * (VISIT + 1), 0)


class Ending(NamedTuple):
    """What a component delivers of a ring's tail, before and in the transitional configuration."""

    regular: list[Datagram]
    transitional: list[Datagram]


def ending(plan: Plan, ring: Ring, nodes: tuple[NodeId, ...], tail: list[Datagram]) -> Ending:
    """For the members of the ring that go on together, or for one that fails on its own."""
    members = frozenset(nodes)
    reach = Random(f"{plan.shape.seed}:{ring.number}:{nodes[0].name}:ending").randint(0, len(tail) // 2)
    cut = next((place for place, one in enumerate(tail) if one.service is Service.SAFE or place >= reach), len(tail))
    lost = (place for place, one in enumerate(tail) if place >= reach and one.process.node not in members)
    gap = next(lost, len(tail))
    behind = [one for one in tail[gap:] if one.process.node in members]
    return Ending(tail[:cut], tail[cut:gap] + behind)
