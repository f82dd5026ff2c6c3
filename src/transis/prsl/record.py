"""The membership record: which replicas a group has. A function of the log, so every replica has the same one at the same place.

1. The record starts with the founders' names, numbered from 1 in the order of their names. It is *founded* by the first action of
   the order, which fixes each founder's directory. Until that is green the founders count as a majority only all together (R32):
   a replica that lost its disk before anybody else wrote down which directory is whose could not be told from a new one (R18).
2. A change names the version of the record that it is based on, and is void if another came first (R15): of two changes that
   were posted in different partitions one wins, and the other is told.
3. Numbers are never used again, and neither are directories. A lost disk comes back as another directory, by REPLACE (R18, R29).
4. Where changes are open, *every* configuration that counts needs a majority: the one at the green line and each that a yellow
   change makes. Two majorities of consecutive configurations meet, for any number of open changes (R15).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import IntEnum
from typing import Annotated, Final

import msgspec

from transis.prsl.actions import Action, ActionId, Counter, Kind, Lane
from transis.types.limits import NAME_MAX, REPLICAS_MAX

DIRECTORY_SIZE: Final = 16
"""Bytes of a directory's random identity."""

FOUNDING: Final = ActionId(0, Lane.CHANGES, 1)
"""The action that founds a group; all who build it build the same one."""


class What(IntEnum):
    """Kinds of change. Only ever appended."""

    FOUND = 0
    JOIN = 1
    LEAVE = 2
    REPLACE = 3
    """LEAVE of a replica and JOIN of another directory under its name, in one."""


Name = Annotated[str, msgspec.Meta(min_length=1, max_length=NAME_MAX)]
Directory = Annotated[bytes, msgspec.Meta(max_length=DIRECTORY_SIZE)]


class Entry(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A replica's number, name and directory; the directory is empty until the group is founded."""

    number: Counter
    name: Name
    directory: Directory = b""


Entries = Annotated[tuple[Entry, ...], msgspec.Meta(max_length=REPLICAS_MAX)]
Members = Annotated[tuple[Counter, ...], msgspec.Meta(max_length=REPLICAS_MAX)]


class Change(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """`number` leaves, `entries` come. A JOIN's entry has number 0: it gets the next one at its place."""

    what: What
    version: Counter
    number: Counter = 0
    entries: Entries = ()


class Record(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """`entries` has every replica that ever was, by number; `members` those that are replicas now, sorted; `left` the others,
    in the order in which they left."""

    version: Counter
    entries: Entries
    members: Members
    left: Members = ()

    @property
    def is_founded(self) -> bool:
        return self.version > 0

    def entry(self, number: int) -> Entry | None:
        return self.entries[number - 1] if 0 < number <= len(self.entries) else None

    def number_of(self, name: str, directory: bytes) -> int:
        """The number of a replica that was ever in the record, 0 if it was not. Before the founding the name is all there is."""
        for entry in self.entries:
            if entry.name == name and (entry.directory == directory or not self.is_founded):
                return entry.number
        return 0

    def has_majority(self, present: Collection[int]) -> bool:
        here = sum(number in present for number in self.members)
        return 2 * here > len(self.members) if self.is_founded else here == len(self.members)

    def is_well_formed(self) -> bool:
        numbers = [entry.number for entry in self.entries]
        known = set(numbers)
        is_split = sorted((*self.members, *self.left)) == sorted(known)
        return numbers == list(range(1, len(numbers) + 1)) and list(self.members) == sorted(self.members) and is_split


def founders(names: Collection[str]) -> Record:
    entries = tuple(Entry(number, name) for number, name in enumerate(sorted(set(names)), 1))
    return Record(0, entries, tuple(entry.number for entry in entries))


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Change)


def encode_change(change: Change) -> bytes:
    return _encoder.encode(change)


def founding(entries: Sequence[Entry]) -> Action:
    """The action that founds the group with these directories: the same bytes wherever it is built."""
    change = Change(What.FOUND, 0, 0, tuple(sorted(entries, key=lambda entry: entry.number)))
    return Action(FOUNDING, Kind.CHANGE, 1, (), (), encode_change(change))


def change_of(action: Action) -> Change | None:
    """The change that an action asks for, None if it asks for nothing that can be understood: it is void then, everywhere."""
    if action.kind != Kind.CHANGE:
        return None
    try:
        return _decoder.decode(action.data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def fold(record: Record, action: Action) -> Record:
    """The record behind an action: the same object if it changes nothing."""
    change = change_of(action)
    if change is None or change.version != record.version:
        return record
    if (change.what == What.FOUND) != (action.id == FOUNDING) or (change.what != What.FOUND) != record.is_founded:
        return record
    return _APPLY[change.what](record, change)


def _found(record: Record, change: Change) -> Record:
    """A newcomer's record is empty, and takes the founders as they are."""
    if not record.entries:
        record = Record(0, change.entries, tuple(entry.number for entry in change.entries))
    fits = [(entry.number, entry.name) for entry in change.entries] == [(entry.number, entry.name) for entry in record.entries]
    whole = all(len(entry.directory) == DIRECTORY_SIZE for entry in change.entries)
    return Record(1, change.entries, record.members) if fits and whole and record.is_well_formed() else record


def _join(record: Record, change: Change) -> Record:
    if len(change.entries) != 1 or not _is_new(record, change.entries[0], set(record.members)):
        return record
    return _with(record, change.entries[0], record.members, record.left)


def _leave(record: Record, change: Change) -> Record:
    if change.number not in record.members or len(record.members) == 1:
        return record
    rest = tuple(number for number in record.members if number != change.number)
    return Record(record.version + 1, record.entries, rest, (*record.left, change.number))


def _replace(record: Record, change: Change) -> Record:
    rest = tuple(number for number in record.members if number != change.number)
    if len(rest) == len(record.members) or len(change.entries) != 1 or not _is_new(record, change.entries[0], set(rest)):
        return record
    return _with(record, change.entries[0], rest, (*record.left, change.number))


def _is_new(record: Record, entry: Entry, members: set[int]) -> bool:
    """Nobody had the directory yet, and no member has the name."""
    if len(entry.directory) != DIRECTORY_SIZE or len(record.entries) >= REPLICAS_MAX:
        return False
    return all(
        old.directory != entry.directory and (old.name != entry.name or old.number not in members) for old in record.entries
    )


def _with(record: Record, entry: Entry, members: Members, left: Members) -> Record:
    number = len(record.entries) + 1
    entries = (*record.entries, Entry(number, entry.name, entry.directory))
    return Record(record.version + 1, entries, (*members, number), left)


_APPLY: Final = {What.FOUND: _found, What.JOIN: _join, What.LEAVE: _leave, What.REPLACE: _replace}


def configurations(record: Record, actions: Sequence[Action]) -> list[Record]:
    """The record, and each one that the changes among these actions make of it."""
    made = [record]
    for action in actions:
        after = fold(made[-1], action)
        if after is not made[-1]:
            made.append(after)
    return made
