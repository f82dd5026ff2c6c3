"""What is missing here and elsewhere: when to ask, and when to answer (lansis-1992 3.1). Pure: time comes as an argument.

1. A member that misses something asks everybody (NACK), and any member that has it may answer. So that not all do, its sender
   answers at once; each other member waits for its turn, and drops its answer when it sees another's.
2. Turns go by rank, not by chance: an engine has no randomness.
3. A repeated request shows that the answer did not arrive there, although all others saw it: the next turn begins.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from transis.lansis.dag import Dag
from transis.lansis.packets import NACK_COUNT_MAX, NACK_RANGES_MAX, Nack
from transis.types.outputs import NEVER

PATIENCE_MAX: Final = 8
"""The time between two requests for the same gap grows to at most this many times the first."""


class _OpenRequest:
    __slots__ = ("due", "pause_us", "tries")

    def __init__(self, due: int, pause_us: int) -> None:
        self.due = due
        self.pause_us = pause_us
        self.tries = 0


class MissingRequests:
    """What I ask for. A gap is identified by its sender and its first datagram; when that one comes, the rest is a new gap."""

    def __init__(self, nack_us: int) -> None:
        self._nack_us = nack_us
        self._open: dict[Nack, _OpenRequest] = {}

    def __len__(self) -> int:
        return len(self._open)

    def look(self, dag: Dag, now: int) -> None:
        """Compare with what is missing now. What two members named in their data is lost; other gaps may only be late."""
        if not dag.lacking and not self._open:
            return
        before = {(nack.rank, nack.first): request for nack, request in self._open.items()}
        self._open = {}
        for rank, first, last in dag.missing():
            request = before.get((rank, first)) or _OpenRequest(now + self._nack_us, self._nack_us)
            if not request.tries and last <= dag.confirmed[rank]:
                request.due = min(request.due, now)
            self._open[Nack(rank, first, last)] = request

    def due_at(self) -> int:
        return min((request.due for request in self._open.values()), default=NEVER)

    def take_due(self, now: int) -> tuple[Nack, ...]:
        """What to ask for now, the lowest gap of the lowest rank first. Each waits half as long again for its next request."""
        due = [nack for nack, request in self._open.items() if request.due <= now][:NACK_RANGES_MAX]
        for nack in due:
            request = self._open[nack]
            request.tries += 1
            request.due = now + request.pause_us
            request.pause_us = min(request.pause_us + (request.pause_us >> 1), PATIENCE_MAX * self._nack_us)
        return tuple(Nack(rank, first, min(last, first + NACK_COUNT_MAX - 1)) for rank, first, last in due)


class _Turn:
    __slots__ = ("askers", "began", "number")

    def __init__(self, began: int) -> None:
        self.began = began
        self.number = 0
        self.askers: dict[int, int] = {}
        """By rank of the member that asked: the number of the turn in which it last did."""

    def lacks(self, rank: int) -> bool:
        """Did it ask in this turn or the one before? If it asked earlier, it may have got its answer since."""
        return rank in self.askers and self.askers[rank] >= self.number - 1


class AnswerTurns:
    """Who answers first: the sender, and when a member asks for the same again, the next rank.

    A member that asked in this turn or the one before has nothing to answer with, and is skipped. A turn lasts at least half of
    nack_us: a duplicate of a request comes sooner, and the same member's next request hardly ever does, even if it travels
    faster.
    """

    def __init__(self, nack_us: int) -> None:
        self._nack_us = nack_us
        self._open: dict[tuple[int, int], _Turn] = {}

    def __len__(self) -> int:
        return len(self._open)

    def asked(self, asker: int, nack: Nack, now: int) -> None:
        """Note a request. Others may ask for the same at about the same time; only a second request of one member ends a turn."""
        turn = self._open.setdefault((nack.rank, nack.first), _Turn(now))
        if turn.askers.get(asker) == turn.number and now - turn.began >= self._nack_us // 2:
            turn.number += 1
            turn.began = now
        turn.askers[asker] = turn.number

    def ahead(self, nack: Nack, me: int, count: int, gone: Collection[int]) -> int:
        """How many of `count` members have their turn to answer before I do."""
        turn = self._open[nack.rank, nack.first]
        begins = nack.rank + turn.number
        before = ((begins + step) % count for step in range((me - begins) % count))
        return sum(rank not in gone and not turn.lacks(rank) for rank in before)

    def forget(self, discarded: Sequence[int], now: int) -> None:
        """Forget what nobody can miss any more, and what nobody asked for again although the longest pause is over."""
        since = now - 2 * PATIENCE_MAX * self._nack_us
        self._open = {
            (rank, first): turn for (rank, first), turn in self._open.items() if first > discarded[rank] and turn.began >= since
        }


class PlannedAnswer(NamedTuple):
    at: int
    rank: int
    first: int
    last: int


class PlannedAnswers:
    """What I am going to send again, and what I have just sent again."""

    def __init__(self, nack_us: int, budget: int) -> None:
        self._nack_us = nack_us
        self._budget = budget
        self._waiting: list[PlannedAnswer] = []
        self._given: list[PlannedAnswer] = []
        """Here `at` is when each may be asked for again."""
        self._spent = 0
        self._period_ends = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def schedule(self, asked: Nack, at: int, now: int) -> None:
        """Plan to answer at `at`, except for what is planned already or was just sent: many members miss the same."""
        self._given = [given for given in self._given if given.at > now]
        covered = [answer for answer in (*self._waiting, *self._given) if answer.rank == asked.rank]
        for first, last in _without(asked.first, asked.last, covered):
            self._waiting.append(PlannedAnswer(at, asked.rank, first, last))

    def seen(self, rank: int, first: int, last: int) -> int:
        """Somebody sent these datagrams, so nobody needs them from me. Return how many I was going to send."""
        cancelled = 0
        kept: list[PlannedAnswer] = []
        for answer in self._waiting:
            if answer.rank != rank or answer.last < first or last < answer.first:
                kept.append(answer)
                continue
            cancelled += min(last, answer.last) - max(first, answer.first) + 1
            seen = [PlannedAnswer(0, rank, first, last)]
            kept += (PlannedAnswer(answer.at, rank, *part) for part in _without(answer.first, answer.last, seen))
        self._waiting = kept
        return cancelled

    def due_at(self) -> int:
        return min((answer.at for answer in self._waiting), default=NEVER)

    def take_due(self, now: int) -> list[PlannedAnswer]:
        """What to send again now, earliest first, within the budget for one nack_us."""
        if now >= self._period_ends:
            self._spent, self._period_ends = 0, now + self._nack_us
        due: list[PlannedAnswer] = []
        kept: list[PlannedAnswer] = []
        for answer in sorted(self._waiting):
            if answer.at > now:
                kept.append(answer)
                continue
            allowed = min(answer.last - answer.first + 1, self._budget - self._spent)
            self._spent += allowed
            if allowed:
                due.append(answer._replace(last=answer.first + allowed - 1))
            if answer.first + allowed <= answer.last:
                kept.append(answer._replace(at=self._period_ends, first=answer.first + allowed))
        self._waiting = kept
        self._given += (answer._replace(at=now + self._nack_us) for answer in due)
        return due


def _without(first: int, last: int, covered: Iterable[PlannedAnswer]) -> Iterator[tuple[int, int]]:
    """What is left of first..last without the given ranges."""
    for hole in sorted(covered, key=lambda answer: answer.first):
        if hole.last < first or hole.first > last:
            continue
        if first < hole.first:
            yield first, hole.first - 1
        first = hole.last + 1
    if first <= last:
        yield first, last
