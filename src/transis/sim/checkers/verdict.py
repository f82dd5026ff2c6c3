"""What a checker says: violations with a witness, and one verdict per property.

A verdict is broken before pending before held; with nothing checked it is `not exercised` (traces 5). Violations are
capped so that one bug does not fill a page, but `count` is the true number.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from transis.model.guarantees import BROKEN, HELD, NOT_EXERCISED, PENDING
from transis.types.ids import MessageId, NodeId

VIOLATIONS_MAX: Final = 10
"""Violations kept per property: the first few explain, the rest only count."""

Witness = tuple[tuple[NodeId, int], ...]
"""Events that together show a violation, each as (node, lseq)."""


class Violation(NamedTuple):
    property: str
    explanation: str
    witness: Witness
    messages: tuple[MessageId, ...]


class Verdict(NamedTuple):
    property: str
    verdict: str
    checked: int
    violations: tuple[Violation, ...] = ()
    count: int = 0  # type: ignore[assignment]  # A tuple has a method of this name; nobody counts in a verdict.
    pending: int = 0


class Findings:
    """Collects what one checker finds; becomes its verdict."""

    def __init__(self, name: str, keep: int = VIOLATIONS_MAX) -> None:
        self.name = name
        self.keep = keep
        self.checked = 0
        self.pending = 0
        self.count = 0
        self._kept: list[Violation] = []

    def broken(self, explanation: str, witness: Witness = (), messages: tuple[MessageId, ...] = ()) -> None:
        self.count += 1
        if len(self._kept) < self.keep:
            self._kept.append(Violation(self.name, explanation, witness, messages))

    def verdict(self) -> Verdict:
        return Verdict(self.name, self._word(), self.checked, self._shortest_first(), self.count, self.pending)

    def _word(self) -> str:
        if self.count:
            return BROKEN
        if self.pending:
            return PENDING
        return HELD if self.checked else NOT_EXERCISED

    def _shortest_first(self) -> tuple[Violation, ...]:
        return tuple(sorted(self._kept, key=lambda violation: len(violation.witness)))


class Report:
    """The verdicts of one history, in the order in which the checkers are listed."""

    def __init__(self, verdicts: list[Verdict]) -> None:
        self.verdicts: dict[str, Verdict] = {verdict.property: verdict for verdict in verdicts}

    @property
    def broken(self) -> tuple[str, ...]:
        return tuple(name for name, verdict in self.verdicts.items() if verdict.verdict == BROKEN)

    @property
    def pending(self) -> tuple[str, ...]:
        return tuple(name for name, verdict in self.verdicts.items() if verdict.verdict == PENDING)

    @property
    def violations(self) -> tuple[Violation, ...]:
        return tuple(violation for verdict in self.verdicts.values() for violation in verdict.violations)
