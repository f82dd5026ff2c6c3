"""The received store: numbered datagrams of one ring or one sender that this node holds, as intervals over bursts.

Invariants
1. The intervals are disjoint and sorted by sequence number.
2. Every number above the start and up to `aru` is held, or was discarded after it had become safe everywhere.
3. `aru` + 1 is not held. 4. `discarded` <= `aru` <= `highest`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from transis.wire.burst import Burst


class DatagramStore:
    def __init__(self, start: int = 0) -> None:
        """Numbers up to `start` are none of this store's: they count as had and discarded."""
        self._firsts: list[int] = []
        self._bursts: list[Burst] = []
        self.aru = start
        self.highest = start
        self.discarded = start

    def insert(self, burst: Burst) -> list[Burst]:
        """Keep what is new of a burst; return the parts that were new, in order."""
        if burst.first_seq > self.highest:
            fresh = [burst]
            self._firsts.append(burst.first_seq)
            self._bursts.append(burst)
            self.highest = burst.last_seq
        else:
            fresh = [_part(burst, first, last) for first, last in self._absent(burst.first_seq, burst.last_seq)]
            for part in fresh:
                at = bisect_right(self._firsts, part.first_seq)
                self._firsts.insert(at, part.first_seq)
                self._bursts.insert(at, part)
            self.highest = max(self.highest, burst.last_seq)
        if fresh:
            self._advance_aru()
        return fresh

    def _advance_aru(self) -> None:
        at = bisect_right(self._firsts, self.aru + 1) - 1
        while 0 <= at < len(self._bursts) and self._firsts[at] <= self.aru + 1:
            self.aru = max(self.aru, self._bursts[at].last_seq)
            at += 1

    def _absent(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """The ranges within [first, last] that are not held and were not discarded."""
        next_seq = max(first, self.discarded + 1)
        at = max(0, bisect_right(self._firsts, next_seq) - 1)
        while at < len(self._bursts) and self._firsts[at] <= last:
            burst = self._bursts[at]
            if burst.first_seq > next_seq:
                yield next_seq, burst.first_seq - 1
            next_seq = max(next_seq, burst.last_seq + 1)
            at += 1
        if next_seq <= last:
            yield next_seq, last

    def missing(self, upto: int, most: int) -> list[tuple[int, int]]:
        """At most `most` ranges above aru that are not held, up to and including `upto`."""
        ranges: list[tuple[int, int]] = []
        for gap in self._absent(self.aru + 1, upto):
            if len(ranges) == most:
                break
            ranges.append(gap)
        return ranges

    def at(self, seq: int) -> Burst | None:
        """The rest of the burst from `seq` on, or None if `seq` is not held."""
        index = bisect_right(self._firsts, seq) - 1
        if index < 0 or self._bursts[index].last_seq < seq:
            return None
        burst = self._bursts[index]
        return burst.slice(seq, burst.last_seq)

    def after(self, seq: int) -> Iterator[Burst]:
        """Everything held above `seq`, in order."""
        index = max(0, bisect_right(self._firsts, seq + 1) - 1)
        for burst in self._bursts[index:]:
            if burst.last_seq > seq:
                yield burst.slice(max(burst.first_seq, seq + 1), burst.last_seq)

    def between(self, first: int, last: int) -> Iterator[Burst]:
        """What is held of [first, last], in order."""
        for burst in self.after(first - 1):
            if burst.first_seq > last:
                return
            yield burst.slice(burst.first_seq, min(burst.last_seq, last))

    def discard(self, upto: int) -> None:
        """Forget whole bursts up to `upto`: they are safe and delivered, nobody will ask for them."""
        upto = min(upto, self.aru)
        count = 0
        while count < len(self._bursts) and self._bursts[count].last_seq <= upto:
            self.discarded = self._bursts[count].last_seq
            count += 1
        if count:
            del self._bursts[:count]
            del self._firsts[:count]

    @property
    def held(self) -> int:
        """Datagrams held now: bounded by the window, and a figure for the statistics."""
        return sum(len(burst) for burst in self._bursts)

    def check(self) -> None:
        assert self.discarded <= self.aru <= self.highest
        assert self.at(self.aru + 1) is None
        assert self._firsts == [burst.first_seq for burst in self._bursts]
        for before, after in zip(self._bursts, self._bursts[1:], strict=False):
            assert before.last_seq < after.first_seq


def _part(burst: Burst, first: int, last: int) -> Burst:
    """To be kept: all of it as it is, less of it by itself."""
    part = burst.slice(first, last)
    return part if part is burst else part.by_itself()
