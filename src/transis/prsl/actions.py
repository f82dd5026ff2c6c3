"""Actions: what a replica posts in one piece. The unit of order, of the log and of colour.

1. An action has one id for all time. Numbers are dense from 1 for each creator over all its lives. Changes of membership are
   numbered apart from messages (their own *lane*), so that one that is held back holds up no message.
2. A creator is the number of a replica in the membership record and not its name: a replica that was replaced counts from 1
   again under another number (R29). Creator 0 is the group itself, which founds itself (record.py).
3. `deps` says what the poster's application could have seen: for each creator the highest number, where it has grown since the
   poster's action before. With the order of each creator that is everything (R4, R12).
4. Sorting by `key` keeps the order of each creator and causality: `lts` is above that of all the poster knew.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import Annotated, Final, NamedTuple

import msgspec

from transis.types.limits import (
    ACTION_BYTES_MAX,
    ACTION_MESSAGES_MAX,
    DEPENDENCIES_MAX,
    MESSAGE_MAX,
    RETRANSMITTED_MAX,
)

COUNTER_MAX: Final = 1 << 62
"""Numbers stay below it, so that one may always be added."""

KEY_SIZE: Final = 16
"""Bytes of a client key, by which a retry is known."""

OVERHEAD: Final = 64
"""Bytes that an action takes beside its data, roughly: so that many empty ones count as well."""

Counter = Annotated[int, msgspec.Meta(ge=0, lt=COUNTER_MAX)]


class Lane(IntEnum):
    """What is numbered together."""

    MESSAGES = 0
    CHANGES = 1


class ActionId(NamedTuple):
    creator: Counter
    lane: Lane
    number: Counter

    def __str__(self) -> str:
        return f"{self.creator}:{'change ' if self.lane else ''}{self.number}"


class Kind(IntEnum):
    """What an action is for. Kinds are only ever appended."""

    DATA = 0
    MARK = 1
    """Has a place and no content: a linear read waits for its own."""
    CHANGE = 2
    """A change of membership (record.py)."""


Key = tuple[int, int, int, int]


class Action(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """1. `lengths` cut `data` into messages.
    2. `at` goes with `key`: an offset that was green when the key was first used (R25).
    """

    id: ActionId
    kind: Kind
    lts: Counter
    deps: Annotated[tuple[tuple[Counter, Counter], ...], msgspec.Meta(max_length=DEPENDENCIES_MAX)]
    lengths: Annotated[tuple[Counter, ...], msgspec.Meta(max_length=ACTION_MESSAGES_MAX)]
    data: Annotated[bytes, msgspec.Meta(max_length=MESSAGE_MAX)]
    key: bytes = b""
    at: Counter = 0
    posted: Counter = 0
    """Microseconds since 1970 by the poster's clock, 0 if it did not say. Nothing is decided by it."""

    @property
    def count(self) -> int:
        return len(self.lengths)

    @property
    def size(self) -> int:
        return len(self.data) + OVERHEAD

    @property
    def sort_key(self) -> Key:
        creator, lane, number = self.id
        return (self.lts, creator, lane, number)

    def messages(self) -> list[bytes]:
        cut, start = [], 0
        for length in self.lengths:
            cut.append(self.data[start : start + length])
            start += length
        return cut


def wrong_with(action: Action) -> str:
    """What its layout cannot say: empty if the action is fit to be taken."""
    creator, lane, number = action.id
    if number < 1:
        return "an action without a number"
    if (lane == Lane.CHANGES) != (action.kind == Kind.CHANGE) or (creator == 0 and lane != Lane.CHANGES):
        return f"an action of kind {action.kind.name} numbered among the {lane.name.lower()}"
    if sum(action.lengths) != len(action.data) and action.kind == Kind.DATA:
        return "lengths that do not add up to the data"
    if action.key and len(action.key) != KEY_SIZE:
        return f"a key of {len(action.key)} bytes, not {KEY_SIZE}"
    creators = [creator for creator, _ in action.deps]
    return "" if creators == sorted(set(creators)) else "dependencies out of order"


def batches(actions: list[Action]) -> Iterator[list[Action]]:
    """Cut so that each message is bounded; an action larger than that is alone."""
    batch: list[Action] = []
    size = 0
    for action in actions:
        if batch and (size + action.size > ACTION_BYTES_MAX or len(batch) == RETRANSMITTED_MAX):
            yield batch
            batch, size = [], 0
        batch.append(action)
        size += action.size
    if batch:
        yield batch
