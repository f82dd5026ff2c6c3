"""Do a property of the audit and the checker of that name say the same of every history?

Equal must be: the verdict, whether anything was checked, and the set of offending messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from transis.audit.guarantees import check
from transis.audit.guarantees.property import BROKEN, HELD, NOT_EXERCISED, PENDING, Verdict
from transis.audit.plans.finding import Result
from transis.trace.events import History
from transis.trace.tables import RunKeys

ALL = 1 << 30


class Said(NamedTuple):
    """What one of the two says of one property of one history."""

    verdict: str
    exercised: bool
    messages: frozenset[tuple[int, int]]


def run_key(name: str) -> int:
    return RunKeys("simulated", name).run


def said_by_checkers(name: str, history: History) -> dict[str, Said]:
    keys = RunKeys("simulated", name)

    def said(verdict: Verdict) -> Said:
        messages = {message for violation in verdict.violations for message in violation.messages}
        return Said(verdict.verdict, verdict.checked > 0, frozenset((keys.process(one.process), one.counter) for one in messages))

    return {verdict.property: said(verdict) for verdict in check(history, keep=ALL).verdicts.values()}


def said_by_audit(found: Result) -> dict[tuple[int, str], Said]:
    """By (run, property); a property that says nothing of a run is not in it."""
    sums: dict[tuple[int, str], list[int]] = {}
    for row in found.checked.collect():
        total = sums.setdefault((row.run, row.property), [0, 0])
        total[0] += row.checked
        total[1] += row.pending
    messages: dict[tuple[int, str], set[tuple[int, int]]] = {}
    for row in found.broken.select("run", "property", "messages").collect():
        sums.setdefault((row.run, row.property), [0, 0])
        messages.setdefault((row.run, row.property), set()).update((one.process, one.counter) for one in row.messages)
    return {
        key: Said(
            BROKEN if key in messages else PENDING if pending else HELD if checked else NOT_EXERCISED,
            checked > 0,
            frozenset(messages.get(key, ())),
        )
        for key, (checked, pending) in sums.items()
    }


NOTHING = Said(NOT_EXERCISED, False, frozenset())


def disagreements(histories: Mapping[str, History], found: Result, properties: Iterable[str]) -> list[str]:
    """One line for each property of a history on which the two differ."""
    return [line for lines in disagreements_by_property(histories, found, properties).values() for line in lines]


def disagreements_by_property(histories: Mapping[str, History], found: Result, properties: Iterable[str]) -> dict[str, list[str]]:
    """The same for each of the properties, for tests that tell them one by one."""
    audit = said_by_audit(found)
    lines: dict[str, list[str]] = {one: [] for one in properties}
    for name, history in histories.items():
        checkers = said_by_checkers(name, history)
        for one, said in lines.items():
            expected, got = checkers.get(one, NOTHING), audit.get((run_key(name), one), NOTHING)
            if expected != got:
                apart = sorted(expected.messages ^ got.messages)[:4]
                said.append(f"{name} {one}: checkers {expected[:2]}, audit {got[:2]}, messages apart: {apart}")
    return lines
