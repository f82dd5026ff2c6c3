"""What several parties told at positions of one stream, and where it is first not the same. Nodes tell digests of what they
delivered (configurations.py), applications of their state (replicas.py).

1. What is told is of everything up to a position: who is equal at one was equal at all before it, or differed and came back,
   which digests of prefixes never do.
2. It is bounded without losing sight: of more than is allowed the newest half stays, for who is a little late, and the older ones
   are thinned out to multiples of a higher power of two, at which others will speak, too (trace/tape.py). So a day of one party
   that comes before a day of the next is still compared from end to end, at fewer places.
3. Every party's highest position stays, and the lowest that is not equal: they say how far one can say something.
4. What all agreed on is forgotten but for a few places, at which whoever speaks much later is still compared.
"""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

import msgspec

Party = TypeVar("Party")
Value = TypeVar("Value")


class Seen(msgspec.Struct, Generic[Value, Party]):
    """A value that these parties told at one position."""

    value: Value
    parties: list[Party]


class Parting(NamedTuple, Generic[Value, Party]):
    equal_at: int | None
    """The highest position before the difference at which parties of two sides told the same; None if there is none."""
    differs_at: int
    sides: list[Seen[Value, Party]]
    """Who told what there."""


class Positions(msgspec.Struct, Generic[Value, Party]):
    at: dict[int, list[Seen[Value, Party]]] = {}

    def tell(self, position: int, value: Value, party: Party) -> list[Party] | None:
        """Who else told anything there; None if this party told the same before."""
        seen = self.at.setdefault(position, [])
        same = next((one for one in seen if one.value == value), None)
        if same is None:
            seen.append(same := Seen(value, []))
        if party in same.parties:
            return None
        same.parties.append(party)
        return [other for one in seen for other in one.parties if other != party]

    def take_back(self, position: int, party: Party, but: Value) -> None:
        """A party said another thing there since: of its words only this value counts."""
        seen = self.at.get(position, [])
        for one in seen:
            one.parties = [each for each in one.parties if each != party or one.value == but]
        self.at[position] = [one for one in seen if one.parties]

    def forget(self, before: int, but: int) -> None:
        """What is told before a position, but for so many multiples of a power of two."""
        stays, step = [position for position in self.at if position < before], 1
        while len(stays) > but:
            step *= 2
            stays = [position for position in stays if position % step == 0]
        kept = {*stays, *self._differing()[:1]}
        self.at = {position: seen for position, seen in self.at.items() if position >= before or position in kept}

    def parting(self) -> Parting[Value, Party] | None:
        differing = self._differing()
        if not differing:
            return None
        sides = self.at[differing[0]]
        side_of = {party: number for number, side in enumerate(sides) for party in side.parties}
        for position in sorted((at for at in self.at if at < differing[0]), reverse=True):
            here = {side_of[party] for one in self.at[position] for party in one.parties if party in side_of}
            if len(here) > 1:
                return Parting(position, differing[0], sides)
        return Parting(None, differing[0], sides)

    def thin_out(self, most: int) -> None:
        if len(self.at) <= most:
            return
        ordered = sorted(self.at)
        highest = {party: position for position in ordered for one in self.at[position] for party in one.parties}
        stays = {*highest.values(), *ordered[-most // 2 :], *self._differing()[:1]}
        step, enough = 1, max(3 * most // 4, len(stays))
        while len(self.at) > enough:
            step *= 2
            self.at = {position: seen for position, seen in self.at.items() if position % step == 0 or position in stays}

    def _differing(self) -> list[int]:
        return sorted(position for position, seen in self.at.items() if len(seen) > 1)
