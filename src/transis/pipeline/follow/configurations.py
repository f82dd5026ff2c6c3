"""One configuration as its members tell of it: their digests at positions, how each left it, and whom each counted as a member.

1. Rows may come in any order and any number of times: what is known already changes nothing.
2. Digests are of whole prefixes. Where all members that live have told the same, everything before is the same, too, and is
   forgotten. Where one owes a word, what others told is thinned out: multiples of a higher power of two stay, at which it will
   speak, too (trace/prefix.py). So a day of one node that comes before a day of the next is still compared from end to end.
3. Who is a number here is a life of a node; `ClusterFold` knows which.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from transis.model.ids import NodeId, ViewId

POSITIONS_MAX: Final = 4096
"""Positions that are remembered of one configuration; then they are thinned out."""

Sums = tuple[int, int, int]
"""Messages, and the two sums of trace/prefix.py over them."""
Amount = tuple[int, int]
"""Messages, and the sum that does not mind their order: which they were."""


class Seen(msgspec.Struct):
    """Sums that these lives told at one position."""

    a: int
    b: int
    lives: list[int]


class MemberList(msgspec.Struct):
    """Whom these lives counted as members."""

    members: tuple[NodeId, ...]
    lives: list[int]


class Configuration(msgspec.Struct):
    id: ViewId
    regular: ViewId
    mode: str
    began_us: int
    """When it was first told of,"""
    touched_us: int = 0
    """and last."""
    lists: list[MemberList] = []
    positions: dict[int, list[Seen]] = {}
    ends: dict[int, Sums] = {}
    """Lives that left it, with all that they delivered in it."""
    onward: dict[int, ViewId] = {}
    """Which configuration came next for whom."""
    after: dict[int, ViewId] = {}
    """Which regular one came next for whom, where this one is regular."""
    settled: int = 0
    """Up to here all that live agree."""
    compared: list[int] = []
    """Lives whose digests were held against those of another."""
    checked: int = 0
    """Digests that were."""
    broken: list[str] = []
    """Properties of which it was said already that they are broken here."""

    def members_by(self, life: int, members: tuple[NodeId, ...]) -> bool:
        """A life installed it with these members; True if that is another list than somebody else's."""
        known = next((one for one in self.lists if one.members == members), None)
        if known is None:
            self.lists.append(known := MemberList(members, []))
        if life not in known.lives:
            known.lives.append(life)
        return len(self.lists) > 1

    def told(self, life: int, sums: Sums, last: bool) -> bool:
        """A life told its digest; True if another life has another one at that position."""
        if last:
            self.ends[life] = sums
        position, a, b = sums
        if position <= self.settled:
            return False
        seen = self.positions.setdefault(position, [])
        same = next((one for one in seen if (one.a, one.b) == (a, b)), None)
        if same is None:
            seen.append(same := Seen(a, b, []))
        if life not in same.lives:
            same.lives.append(life)
            self._count(life, seen)
        return len(seen) > 1

    def _count(self, life: int, seen: list[Seen]) -> None:
        others = [other for one in seen for other in one.lives if other != life]
        if others:
            self.checked += 1
            self.compared = sorted({*self.compared, *others, life})

    def settle(self, members: Iterable[int], ended: set[int]) -> None:
        """Forget what all members that live agree on. Who left earlier, or ended, has nothing to say about what came later."""
        living = [life for life in members if life not in ended]
        for position in sorted(self.positions, reverse=True):
            seen = self.positions[position]
            needed = {life for life in living if life not in self.ends or self.ends[life][0] >= position}
            if len(seen) == 1 and len(seen[0].lives) > 1 and needed <= set(seen[0].lives):
                self._forget(upto=position)
                self.settled = position
                return

    def bound(self) -> None:
        """Every life's highest position stays, and the lowest that is not equal: they say how far one can say something."""
        if len(self.positions) <= POSITIONS_MAX:
            return
        highest = {life: at for at in sorted(self.positions) for one in self.positions[at] for life in one.lives}
        stays, step = {*highest.values(), *self._differing()[:1]}, 1
        while len(self.positions) > POSITIONS_MAX // 2 + len(stays):
            step *= 2
            self.positions = {at: seen for at, seen in self.positions.items() if at % step == 0 or at in stays}

    def _forget(self, upto: int) -> None:
        self.positions = {position: seen for position, seen in self.positions.items() if position > upto}

    def parting(self) -> tuple[int, int, list[list[int]]] | None:
        """The highest position that is equal, the lowest that is not, and who is on which side there. Of a
        transitional one only ends are compared, for the property is about regular ones."""
        if not self.id.is_regular:
            return None
        differing = self._differing()
        if not differing:
            return None
        differs = differing[0]
        sides = self.positions[differs]
        both = {life for side in sides for life in side.lives}
        shared = (at for at, seen in self.positions.items() if at < differs and len(both & set(seen[0].lives)) > 1)
        return max(shared, default=self.settled), differs, [side.lives for side in sides]

    def _differing(self) -> list[int]:
        return sorted(position for position, seen in self.positions.items() if len(seen) > 1)

    def went_apart(self) -> tuple[ViewId, list[tuple[Amount, list[int]]]] | None:
        """The next configuration that lives entered together with different ends of this one, and who ended how."""
        for target, lives in self._together().items():
            ends: dict[Amount, list[int]] = {}
            for life in lives:
                ends.setdefault(self.ends[life][:2], []).append(life)
            if len(ends) > 1:
                return target, sorted(ends.items(), key=lambda one: (-len(one[1]), one[0]))
        return None

    def moves_compared(self) -> int:
        """Lives whose end was held against that of another who went on with them."""
        return sum(len(lives) - 1 for lives in self._together().values())

    def _together(self) -> dict[ViewId, list[int]]:
        found: dict[ViewId, list[int]] = {}
        for life, target in sorted(self.onward.items()):
            if life in self.ends:
                found.setdefault(target, []).append(life)
        return found
