"""The trace of one life of a replica's directory, for the checkers: what was posted, ordered, synced and called stable."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from transis.prsl.actions import ActionId
from transis.prsl.outputs import Ordered
from transis.sim.replicas.directory import Directory
from transis.sim.replicas.ledger import STATE_SIZE
from transis.sim.world import World
from transis.trace.events import End, Event, NodeTrace, ReplicaStep
from transis.types.ids import NodeId


class ReplicaRecord:
    def __init__(self, world: World, group: str, directory: Directory, boot: int) -> None:
        self.node = NodeId(f"{directory.name}@{group}", directory.life, boot)
        self.events: list[Event] = []
        self._world = world
        self._about = (group, directory.name, directory.config.directory)
        self.step("opened", place=directory.stored.end)

    def step(self, what: str, **fields: Any) -> None:
        self.events.append(ReplicaStep(len(self.events) + 1, self._world.now, *self._about, what, **fields))

    def posted(self, action: ActionId, count: int, key: bytes, seen: Sequence[ActionId]) -> None:
        highest: dict[int, int] = {}
        for creator, lane, number in seen:
            if not lane:
                highest[creator] = max(number, highest.get(creator, 0))
        self.step("posted", **plain(action), count=count, key=key, seen=tuple(sorted(highest.items())))

    def ordered(self, ordered: Ordered, state: int) -> None:
        place, offset, action, effect, _ = ordered
        placed = {"place": place, "offset": offset, "effect": effect.name.lower(), "key": action.key}
        self.step("ordered", **plain(action.id), count=action.count, **placed, state=state.to_bytes(STATE_SIZE, "big"))

    def end(self, how: str) -> None:
        self.events.append(End(len(self.events) + 1, self._world.now, how))

    def trace(self) -> NodeTrace:
        return NodeTrace(self.node, self.events)


def plain(action: ActionId) -> dict[str, int]:
    """The id as fields of a step."""
    return {"creator": action.creator, "lane": int(action.lane), "number": action.number}
