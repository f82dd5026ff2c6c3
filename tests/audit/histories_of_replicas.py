"""Histories for the properties of replicas: good ones, one that is not at rest, and bad ones of every kind."""

from __future__ import annotations

from collections.abc import Iterator

from tests.guarantees.histories_of_replicas import SEEDS, of_replicas
from tests.guarantees.mutants import REPLICA_MUTANTS
from tests.guarantees.wounds import wounded
from transis.trace.events import History, NodeTrace, ReplicaStep


def cut_short(history: History) -> History:
    """Read while it went on: nobody has come to rest, and half of each life is there."""
    halves = [NodeTrace(node, events[: len(events) // 2] if _is_replica(events[0]) else events) for node, events in history.nodes]
    return history._replace(nodes=halves, closed=False)


def _is_replica(event: object) -> bool:
    return isinstance(event, ReplicaStep)


def histories() -> Iterator[tuple[str, History]]:
    for seed in SEEDS[:2]:
        yield f"good-{seed}", of_replicas(seed)
    yield "open", cut_short(of_replicas(SEEDS[0]))
    for mutant in REPLICA_MUTANTS:
        yield mutant.name, wounded(mutant, of_replicas, SEEDS, 1)[0]
