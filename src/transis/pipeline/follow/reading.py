"""How far a follower has read: of every life, which of its numbered files. Spark keeps it between batches, so it is small:

    {"life-ann-1-00000000000000a7": "1-8640 8642"}

Spark's own source of files remembers the name of every file that it has ever read, and writes all of them anew every few batches.
A file that comes late (copies come in any order) is read when it comes.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable
from operator import itemgetter
from typing import Final, NamedTuple

from transis.trace.segment import DIGESTS

GAPS_MAX: Final = 16_384
"""Of one life: numbers that never came, for their files were deleted first. Beyond them the oldest are given up."""
LIVES_MAX: Final = 4096
"""Then those are forgotten of which there are no files any more."""

Offset = dict[str, str]
Range = tuple[int, int]

_NAME: Final = re.compile(rf"(?P<life>{re.escape(DIGESTS.prefix)}.+)-(?P<number>\d{{6,18}}){re.escape(DIGESTS.suffix)}")


class Sealed(NamedTuple):
    """A sealed file, by its name."""

    life: str
    number: int


def sealed_of(name: str) -> Sealed | None:
    """None for a name that no node gives."""
    match = _NAME.fullmatch(name)
    return None if match is None else Sealed(match["life"], int(match["number"]))


class Progress:
    """An offset, to ask and to add to."""

    def __init__(self, offset: Offset) -> None:
        self._ranges = {life: _ranges_of(text) for life, text in offset.items()}

    def has(self, file: Sealed) -> bool:
        ranges = self._ranges.get(file.life, [])
        at = bisect_right(ranges, file.number, key=itemgetter(0))
        return at > 0 and file.number <= ranges[at - 1][1]

    def add(self, files: Iterable[Sealed]) -> None:
        numbers: dict[str, list[int]] = {}
        for file in files:
            numbers.setdefault(file.life, []).append(file.number)
        for life, found in numbers.items():
            joined = _joined([*self._ranges.get(life, ()), *((number, number) for number in found)])
            excess = max(0, len(joined) - 1 - GAPS_MAX)
            self._ranges[life] = [(joined[0][0], joined[excess][1]), *joined[excess + 1 :]]

    def forget_all_but(self, lives: set[str]) -> None:
        if len(self._ranges) > LIVES_MAX:
            self._ranges = {life: ranges for life, ranges in self._ranges.items() if life in lives}

    def offset(self) -> Offset:
        return {life: " ".join(map(_text_of, ranges)) for life, ranges in sorted(self._ranges.items())}


def _joined(ranges: list[Range]) -> list[Range]:
    found: list[Range] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(last, found[-1][1]))
        else:
            found.append((first, last))
    return found


def _ranges_of(text: str) -> list[Range]:
    found = (part.partition("-") for part in text.split())
    return [(int(first), int(last or first)) for first, _, last in found]


def _text_of(one: Range) -> str:
    first, last = one
    return str(first) if first == last else f"{first}-{last}"
