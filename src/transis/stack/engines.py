"""The engines there are: the one place that knows them by name, and which kinds of packets are whose."""

from __future__ import annotations

from typing import Final

from transis.engine.base import Engine
from transis.lansis.engine import Engine as Lansis
from transis.lansis.packets import KIND_ALIVE, KIND_ATTEMPT, KIND_FAULTS, KIND_FLUSHED, KIND_JOINING, KIND_QUERY
from transis.totem.engine import Engine as Totem
from transis.totem.packets import KIND_COMMIT, KIND_JOIN, KIND_TOKEN, KIND_WAKE
from transis.types.config import Config
from transis.types.ids import NodeId

KINDS: Final = {
    "totem": frozenset({KIND_TOKEN, KIND_JOIN, KIND_COMMIT, KIND_WAKE}),
    "lansis": frozenset({KIND_ALIVE, KIND_ATTEMPT, KIND_JOINING, KIND_FAULTS, KIND_FLUSHED, KIND_QUERY}),
}
"""Kinds of packets that only one engine sends. Data, Beacons and questions about names are everybody's."""


def engine_of(config: Config, me: NodeId, ring_seq: int) -> Engine:
    """`ring_seq` is the highest sequence of a view that an earlier life of this node made durable."""
    if config.engine == "lansis":
        return Lansis(config, me, ring_seq)
    return Totem(config, me, ring_seq)


def foreign_kinds(engine: str) -> frozenset[int]:
    """Kinds that an engine has no use for: who sends them runs another one."""
    return frozenset().union(*(kinds for name, kinds in KINDS.items() if name != engine))
