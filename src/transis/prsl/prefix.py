"""A prefix of the order as it is remembered without its content: how far it goes, what is in it, and who was a replica there.

1. The log keeps one at its base, one at its green line, and one behind what was delivered; a snapshot carries one.
2. What is in a prefix is known by numbers: messages of a creator without a gap, so the highest is enough; changes may leave gaps,
   because one that is held back stays red while later ones get their place (R24), so they are a set.
3. The digest is one of the whole order up to here. Two replicas with different digests at one place have diverged, which is never
   repaired: they stop.
4. A message of a creator that is no member at its place keeps the place and is void; offsets count it all the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Annotated

import msgspec

from transis.prsl.actions import Action, ActionId, Counter, Kind
from transis.prsl.record import Record, fold
from transis.types.limits import CHANGES_MAX, REPLICAS_MAX

Pairs = tuple[tuple[Counter, Counter], ...]
Digest = Annotated[bytes, msgspec.Meta(min_length=8, max_length=8)]
NO_DIGEST = bytes(8)


class NumbersLayout(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Highest number of messages for each creator; creator and number of every change."""

    messages: Annotated[Pairs, msgspec.Meta(max_length=REPLICAS_MAX)] = ()
    changes: Annotated[Pairs, msgspec.Meta(max_length=CHANGES_MAX)] = ()


class Numbers:
    """Which actions are in a prefix, or in a view's sequence."""

    __slots__ = ("changes", "highest")

    def __init__(self, layout: NumbersLayout) -> None:
        self.highest: dict[int, int] = dict(layout.messages)
        self.changes: set[tuple[int, int]] = set(layout.changes)

    def __contains__(self, action: ActionId) -> bool:
        creator, lane, number = action
        if lane:
            return (creator, number) in self.changes
        return number <= self.highest.get(creator, 0)

    def add(self, action: ActionId) -> None:
        creator, lane, number = action
        if lane:
            self.changes.add((creator, number))
        elif number > self.highest.get(creator, 0):
            self.highest[creator] = number

    def with_added(self, actions: Iterable[ActionId]) -> Numbers:
        more = Numbers(NumbersLayout())
        more.highest, more.changes = dict(self.highest), set(self.changes)
        for action in actions:
            more.add(action)
        return more

    def layout(self) -> NumbersLayout:
        return NumbersLayout(tuple(sorted(self.highest.items())), tuple(sorted(self.changes)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Numbers) and self.highest == other.highest and self.changes == other.changes

    __hash__ = None  # type: ignore[assignment]  # it changes


class Base(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A prefix at rest: `offset` messages and `size` bytes in `place` actions, `lts` the highest among them."""

    place: Counter
    offset: Counter
    size: Counter
    lts: Counter
    digest: Digest
    numbers: NumbersLayout
    record: Record


def beginning(record: Record) -> Base:
    return Base(0, 0, 0, 0, NO_DIGEST, NumbersLayout(), record)


class Prefix:
    """A prefix that grows."""

    __slots__ = ("digest", "lts", "numbers", "offset", "place", "record", "size")

    def __init__(self, base: Base) -> None:
        self.place, self.offset, self.size, self.lts = base.place, base.offset, base.size, base.lts
        self.digest, self.numbers, self.record = base.digest, Numbers(base.numbers), base.record

    def take(self, action: Action) -> None:
        """Go behind the action, which is the next in the order."""
        creator, lane, number = action.id
        assert lane or number == self.numbers.highest.get(creator, 0) + 1, f"{action.id} leaves a gap in the order"
        assert action.id not in self.numbers, f"{action.id} is in the order twice"
        self.place += 1
        self.offset += action.count
        self.size += action.size
        self.lts = max(self.lts, action.lts)
        self.digest = next_digest(self.digest, action.id)
        self.numbers.add(action.id)
        if lane:
            self.record = fold(self.record, action)

    def is_void(self, action: Action) -> bool:
        """Whether the next action has no effect: its creator is no member here, or it is a change that came too late."""
        if action.kind == Kind.CHANGE:
            return fold(self.record, action) is self.record
        return action.id.creator not in self.record.members

    def base(self) -> Base:
        return Base(self.place, self.offset, self.size, self.lts, self.digest, self.numbers.layout(), self.record)


def next_digest(digest: bytes, action: ActionId) -> bytes:
    creator, lane, number = action
    return blake2b(b"%b%d.%d.%d" % (digest, creator, lane, number), digest_size=8).digest()


def is_sorted(layout: NumbersLayout) -> bool:
    """Whether the tables are sorted and name nothing twice, as all that we send are."""
    creators = [creator for creator, _ in layout.messages]
    return creators == sorted(set(creators)) and list(layout.changes) == sorted(set(layout.changes))
