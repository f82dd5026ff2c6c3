"""ToTo as the paper writes it, slowly: vectors with `*` and infinity, Win and Future as sets, everything from scratch.

It shares nothing with the rule of the engine but the bursts. `Slip` has the mistakes that are easy to make (F10).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from enum import Enum

from tests.lansis.bursts import Said
from tests.lansis.worlds import World

INFINITY = 1 << 62


class Slip(Enum):
    STAR_EQUALS_STAR = "`*` <= `*`"
    AT_LEAST = ">= threshold"
    NOT_INTERNALLY_STABLE = "no internal stability"
    LOWEST_WITH_A_MAJORITY = "the lowest that a majority follows"


class Star:
    """Neither less than, equal to, nor greater than anything: who compares it makes a mistake."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise AssertionError("`*` was compared")


STAR = Star()
Entry = int | Star


class Literal:
    """One machine's view of a world: what it has received, what it has delivered."""

    def __init__(self, world: World, slip: Slip | None = None) -> None:
        self.n = world.members
        self.slip = slip
        self.received: list[Said] = []
        self.delivered: list[Said] = []
        self.defunct: set[int] = set()
        self._past = {one: world.past(one) for one in world.sent}

    def receive(self, one: Said) -> None:
        """The machine has all that it follows."""
        self.received.append(one)
        self.deliver()

    def deliver(self) -> None:
        while sources := self.step():
            self.delivered += sorted(sources, key=lambda one: one.rank)

    def crash(self, ranks: Iterable[int]) -> None:
        self.defunct |= set(ranks)
        self.deliver()

    # --- the formulas of section 4 ----------------------------------------------------------------------------------

    def candidates(self) -> list[Said]:
        pending = [one for one in self.received if one.klass >= 2 and one not in self.delivered]
        return [one for one in pending if not any(other in self._past[one] for other in pending if other != one)]

    def tail(self, m: Said) -> set[int]:
        return {one.rank for one in self.received if m in self._past[one]}

    def vt(self, m: Said, q: int, candidates: Collection[Said]) -> Entry:
        mine = sorted(one.first for one in self.received if one.rank == q and self._past[one] & set(candidates))
        if not mine:
            return INFINITY if q in self.defunct else STAR
        (first,) = [one for one in self.received if one.rank == q and one.first == mine[0]]
        return first.first if m in self._past[first] else INFINITY

    def less(self, a: Entry, b: Entry) -> bool:
        return not isinstance(a, Star) and not isinstance(b, Star) and a < b

    def at_most(self, a: Entry, b: Entry) -> bool:
        if isinstance(a, Star) and isinstance(b, Star):
            return self.slip is Slip.STAR_EQUALS_STAR
        return not isinstance(a, Star) and not isinstance(b, Star) and a <= b

    def step(self) -> list[Said]:
        candidates = self.candidates()
        if not candidates:
            return []
        vectors = {m: [self.vt(m, q, candidates) for q in range(self.n)] for m in candidates}
        n, phi = self.n, self.n / 2
        if self.slip is Slip.LOWEST_WITH_A_MAJORITY:
            return [m for m in sorted(candidates, key=lambda m: m.rank) if len(self.tail(m)) > phi][:1]

        def win(a: Said, b: Said) -> int | None:
            if sum(map(self.less, vectors[a], vectors[b])) > phi:
                return 1
            return 0 if sum(map(self.less, vectors[b], vectors[a])) > phi else None

        def may_win(a: Said, b: Said) -> bool:
            return sum(map(self.at_most, vectors[b], vectors[a])) < n - phi

        def future(a: Said, b: Said) -> set[int | None]:
            found: set[int | None] = {1} if may_win(a, b) else set()
            found |= {0} if may_win(b, a) else set()
            return found | ({None} if win(a, b) is None else set())

        sources = [m for m in candidates if not any(1 in future(other, m) for other in candidates if other != m)]
        beaten = all(any(future(a, m) == {1} for a in candidates if a != m) for m in candidates if m not in sources)
        if not beaten and self.slip is not Slip.NOT_INTERNALLY_STABLE:
            return []
        return sources if self._is_externally_stable(sources, candidates, vectors) else []

    def _is_externally_stable(self, sources: list[Said], candidates: list[Said], vectors: dict[Said, list[Entry]]) -> bool:
        n, phi = self.n, self.n / 2
        nvt = {m: sum(not isinstance(entry, Star) and entry < INFINITY for entry in vectors[m]) for m in candidates}
        enough = (lambda count: count >= n // 2) if self.slip is Slip.AT_LEAST else (lambda count: count > phi)
        if any(enough(nvt[s]) for s in sources) and all(len(self.tail(s)) >= n - phi for s in sources):
            return True
        return len(set[int]().union(self.defunct, *(self.tail(m) for m in candidates))) == n
