"""Replicas laid out for checking: what was ordered, posted and synced by each life of each directory.

A *place* is one of the order of a group. What several lives were handed there is compared with the *first* of them, in the order
of the lives; so that of two lives that differ the later one is said to be wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from transis.audit.guarantees.history import LaidHistory
from transis.trace.events import ReplicaStep
from transis.types.ids import NodeId


class ActionName(NamedTuple):
    """An action as people name it: `2:7`, or `2+7` for a change of membership."""

    creator: int
    lane: int
    number: int

    def __str__(self) -> str:
        return f"{self.creator}{'+' if self.lane else ':'}{self.number}"


class LifeStep(NamedTuple):
    """A step, and whose it is."""

    node: NodeId
    step: ReplicaStep

    @property
    def action(self) -> ActionName:
        return ActionName(self.step.creator, self.step.lane, self.step.number)

    @property
    def witness(self) -> tuple[NodeId, int]:
        return self.node, self.step.lseq


class ReplicaHistory:
    def __init__(self, laid: LaidHistory) -> None:
        self.closed = laid.closed
        lives = sorted(laid.lives, key=lambda life: life.node)
        self.steps = [LifeStep(life.node, event) for life in lives for event in life.events if isinstance(event, ReplicaStep)]
        self.rested = {told.step.group for told in self.of("rest")}
        """Groups of which somebody says that all is done: what is not there by then will not come."""

    def of(self, what: str) -> Iterator[LifeStep]:
        return (told for told in self.steps if told.step.what == what)

    def ordered(self) -> Iterator[LifeStep]:
        return self.of("ordered")

    def places(self) -> dict[tuple[str, ActionName], LifeStep]:
        """Where each action of a group was ordered first."""
        found: dict[tuple[str, ActionName], LifeStep] = {}
        for told in self.ordered():
            found.setdefault((told.step.group, told.action), told)
        return found


STEPS: Final = """
    select s.*, n.node_name, struct(n.name, n.incarnation, n.boot) as life,
           concat(s.creator, if(s.lane = 0, ':', '+'), s.number) as action
    from {replica_steps} s join (select node, node_name, name, incarnation, boot from {node_names}) n on s.node = n.node
"""
"""All steps with their lives, in whose order they are looked at, and the names of their actions."""

PLACED: Final = """
    select run, name, creator, lane, number, action, min_by(struct(place, node, node_name, lseq), struct(life, lseq)) as at
    from {told_steps} where what = 'ordered'
    group by all
"""
"""Where each action was ordered first."""

SHARED: Final = {"told_steps": STEPS}
PLACES: Final = {**SHARED, "placed_actions": PLACED}
