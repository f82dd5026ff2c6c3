"""The lives of a cluster's nodes, by the small numbers under which configurations know them.

1. A life goes when nobody needs it: no configuration that is remembered names it, and it ended, or its node began another, or
   it is gone. Its number is given again.
2. Who was silent for a day, and is a member of no configuration of that day, is gone for good: nobody waits for its evidence.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from transis.types.ids import NodeId

LIVES_MAX: Final = 1024
"""Then those go that nobody needs."""
GONE_US: Final = 24 * 3600 * 1_000_000


class Lives:
    """Kept in the three containers that it is given."""

    def __init__(self, nodes: list[NodeId | None], heard_us: dict[int, int], ended: set[int]) -> None:
        self._nodes = nodes
        self._heard_us = heard_us
        self.ended = ended
        self._numbers = {node: number for number, node in enumerate(nodes) if node is not None}
        self._free = [number for number, node in enumerate(nodes) if node is None]
        self.newest_us = max(heard_us.values(), default=0)
        """When anybody last sealed a file."""

    def __len__(self) -> int:
        return len(self._numbers)

    def number(self, node: NodeId) -> int:
        if node not in self._numbers:
            if not self._free:
                self._free.append(len(self._nodes))
                self._nodes.append(None)
            self._numbers[node] = self._free.pop()
            self._nodes[self._numbers[node]] = node
        return self._numbers[node]

    def name(self, life: int) -> str:
        return str(self._nodes[life])

    def heard(self, life: int, at_us: int) -> None:
        self._heard_us[life] = max(at_us, self._heard_us.get(life, 0))
        self.newest_us = max(at_us, self.newest_us)

    def heard_us(self, life: int) -> int:
        return self._heard_us.get(life, 0)

    def living(self, members: Collection[NodeId]) -> Iterator[tuple[str, int]]:
        """Nodes whose newest life did not end and is not gone, and when it last sealed a file. Members are those of today."""
        for life in self._newest():
            if life in self._heard_us and life not in self.ended and not self._is_gone(life, members):
                yield self.name(life), self._heard_us[life]

    def forget_all_but(self, needed: set[int], members: Collection[NodeId]) -> None:
        stays = needed | {life for life in self._newest() if life not in self.ended and not self._is_gone(life, members)}
        for node, life in sorted(self._numbers.items()):
            if life not in stays:
                del self._numbers[node]
                self._nodes[life] = None
                self._heard_us.pop(life, None)
                self.ended.discard(life)
                self._free.append(life)

    def _newest(self) -> list[int]:
        """The newest life of each name."""
        newest = {node.name: life for node, life in sorted(self._numbers.items(), key=lambda one: one[0][1:])}
        return [life for _, life in sorted(newest.items())]

    def _is_gone(self, life: int, members: Collection[NodeId]) -> bool:
        return self.newest_us - self.heard_us(life) > GONE_US and self._nodes[life] not in members
