"""Positions of one stream at which several parties reported digests, and where these first differ; the rows of what was found.

1. A digest is of everything up to its position. Parties that are equal at one were equal at all before it, or they differed and
   came back, which digests of prefixes never do.
2. Memory is bounded, and both ends stay in sight. When there are too many positions, the newest half stays, for parties that
   are a little late. The older ones are thinned out to multiples of a higher power of two, at which others will report, too
   (trace/tape.py). So a day of one party that comes before a day of the next is still compared from end to end, at fewer
   places.
3. The highest position of every party stays, and the lowest at which they differ: they say how far anything is known.
4. What all agreed on is forgotten but for a few places, at which a party that reports much later is still compared.
5. Rows are plain values: the fold needs neither Spark nor files.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec

from transis.trace.events import Event
from transis.types.ids import NodeId, ViewId

# --- telling ----------------------------------------------------------------------------------------------------------

ONE_SEQUENCE: Final = "one_sequence"
ATOMICITY: Final = "failure_atomicity_4"
AGREEMENT: Final = "agreement_on_views"
REPLICAS: Final = "replicas_agree"
JUDGED: Final = (ONE_SEQUENCE, ATOMICITY, AGREEMENT, REPLICAS)
"""What digests can say something about; the audit of traces judges all the others, and these too."""


class DigestFile(NamedTuple):
    """The events of one file of digests."""

    cluster: str
    mode: str
    node: NodeId
    modified_us: int
    """When the file was sealed, by the clock of its file system."""
    events: Sequence[Event]


class Trouble(NamedTuple):
    """A file that cannot be read, or not to its end, and why."""

    path: str
    why: str
    may_pass: bool = False
    """The disk, the network or a permission refused it: it is worth another try."""


class Divergence(NamedTuple):
    """A guarantee is broken: the sides say different things of one configuration."""

    cluster: str
    property: str
    conf: ViewId
    regular: ViewId
    """Its regular one, by which flight recorders find it."""
    equal_at: int
    """Behind so many messages all of them still said the same; of the group's view where replicas are compared."""
    differs_at: int
    sides: tuple[tuple[str, ...], ...]
    """The largest first."""
    explanation: str
    before: int = 0
    """Messages of the regular configuration, where this one is its transitional successor and counts from 0 again."""


class FollowVerdict(NamedTuple):
    cluster: str
    property: str
    verdict: str
    """One of the words of audit/guarantees/property.py."""
    checked: int
    violations: int
    pending: int


def named(lives: Sequence[str]) -> str:
    """As people name several: a, b and c."""
    return lives[0] if len(lives) == 1 else f"{', '.join(lives[:-1])} and {lives[-1]}"


# --- positions --------------------------------------------------------------------------------------------------------

Party = TypeVar("Party")
Value = TypeVar("Value")


class Seen(msgspec.Struct, Generic[Value, Party]):
    """A value that these parties told at one position."""

    value: Value
    parties: list[Party]


class FirstDifference(NamedTuple, Generic[Value, Party]):
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

    def parting(self) -> FirstDifference[Value, Party] | None:
        differing = self._differing()
        if not differing:
            return None
        sides = self.at[differing[0]]
        side_of = {party: number for number, side in enumerate(sides) for party in side.parties}
        for position in sorted((at for at in self.at if at < differing[0]), reverse=True):
            here = {side_of[party] for one in self.at[position] for party in one.parties if party in side_of}
            if len(here) > 1:
                return FirstDifference(position, differing[0], sides)
        return FirstDifference(None, differing[0], sides)

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
