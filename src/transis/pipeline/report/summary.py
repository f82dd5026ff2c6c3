"""All runs added up, and the order in which things are told: evidence first, then what is broken, pending, held."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from transis.model.guarantees import (
    ALL_MEANINGS,
    BROKEN,
    EVIDENCE,
    HELD,
    NOT_EXERCISED,
    NOT_PROMISED,
    PENDING,
    WEIGHT,
)
from transis.pipeline.report.content import Around, Content, Reason, Violation

_TOLD: Final = {name: place for place, name in enumerate(ALL_MEANINGS)}

Shown = tuple[str, str, int]
"""What names a violation: run, property, rank."""


@dataclass
class Sum:
    """One property in all runs: the heaviest verdict, and how many runs have each."""

    name: str
    verdict: str = NOT_PROMISED
    checked: int = 0
    violations: int = 0
    pending: int = 0
    runs: Counter[str] = field(default_factory=Counter)

    @property
    def meaning(self) -> str:
        return ALL_MEANINGS.get(self.name, "")

    @property
    def is_evidence(self) -> bool:
        return self.name.startswith(EVIDENCE)

    @property
    def is_judged(self) -> bool:
        return self.verdict in (BROKEN, PENDING, HELD)


def sums_of(content: Content) -> dict[str, Sum]:
    """By property, in the order in which properties are told."""
    sums: dict[str, Sum] = {}
    for row in content.verdicts:
        known = sums.setdefault(row.property, Sum(row.property))
        known.verdict = max(known.verdict, row.verdict, key=WEIGHT.index)
        known.checked += row.checked
        known.violations += row.violations
        known.pending += row.pending
        known.runs[row.verdict] += 1
    return {name: sums[name] for name in sorted(sums, key=told_place)}


def told_place(name: str) -> tuple[int, str]:
    """Known properties in their order, then the others by name."""
    return _TOLD.get(name, len(_TOLD)), name


def heaviest_first(sums: Iterable[Sum]) -> list[Sum]:
    """Evidence before guarantees if there is something wrong with it; else broken, pending, held as told."""
    return sorted(sums, key=lambda one: (-WEIGHT.index(one.verdict), not one.is_evidence))


def verdicts_by_run(content: Content) -> dict[str, dict[str, str]]:
    """run -> property -> verdict; broken runs first, then pending ones, then the others, each by name."""
    runs: dict[str, dict[str, str]] = {run.name: {} for run in content.runs}
    for row in content.verdicts:
        runs.setdefault(row.run, {})[row.property] = row.verdict
    return {name: runs[name] for name in sorted(runs, key=lambda name: (*_trouble(runs[name]), name))}


def _trouble(verdicts: dict[str, str]) -> tuple[int, int]:
    counts = Counter(verdicts.values())
    return -counts[BROKEN], -counts[PENDING]


def violations_in_order(content: Content) -> list[Violation]:
    """Evidence first, then property by property, the shortest first."""
    return sorted(
        content.violations,
        key=lambda one: (not one.property.startswith(EVIDENCE), told_place(one.property), one.rank, one.run, one.explanation),
    )


def reasons_in_order(content: Content) -> list[Reason]:
    return sorted(content.reasons, key=lambda one: (told_place(one.property), one.run, one.explanation))


def around_by_violation(content: Content) -> dict[Shown, list[Around]]:
    """The events around each violation, in order of time."""
    found: dict[Shown, list[Around]] = {}
    for event in sorted(content.around, key=lambda one: (one.time_us, one.node, one.lseq)):
        found.setdefault((event.run, event.property, event.rank), []).append(event)
    return found


def witness_events(violation: Violation, around: Iterable[Around]) -> list[tuple[str, int, Around | None]]:
    """(node, lseq, the event) of each witness, in the order of the violation; None if the event is not among those around."""
    known = {(event.node, event.lseq): event for event in around}
    return [(node, lseq, known.get((node, lseq))) for node, lseq in violation.witness]


def starts_us(content: Content) -> dict[str, int]:
    """When each run began: times are told from there. Views and ends say it; without them, the first event that is known."""
    starts: dict[str, int] = {}
    lives = [(stay.run, stay.start_us) for stay in content.stays] + [(end.run, end.time_us) for end in content.ends]
    others = [(event.run, event.time_us) for event in content.around] + [(one.run, one.time_us) for one in content.faults]
    others += [(one.run, one.start_us) for one in content.throughput]
    for run, time_us in lives:
        starts[run] = min(time_us, starts.get(run, time_us))
    fallback: dict[str, int] = {}
    for run, time_us in others:
        fallback[run] = min(time_us, fallback.get(run, time_us))
    return fallback | starts


def headline(content: Content) -> tuple[str, str]:
    """The heaviest verdict of all, and one sentence."""
    sums = list(sums_of(content).values())
    broken, pending = ([one for one in sums if one.verdict == word] for word in (BROKEN, PENDING))
    runs = f" in {_failing(content):,} of {len(content.runs):,} runs" if len(content.runs) > 1 else ""
    guarantees = [one for one in broken if not one.is_evidence]
    told = f"{_several(len(guarantees), 'guarantee')} {'was' if len(guarantees) == 1 else 'were'} broken{runs}."
    if len(guarantees) < len(broken):
        return BROKEN, f"The evidence is not whole: read what was found about it first. {told if guarantees else ''}".rstrip()
    if broken:
        return BROKEN, told
    if pending:
        what = f"{_several(len(pending), 'property', 'properties')} cannot be judged to the end yet"
        return PENDING, f"Nothing is broken; {what}: evidence is missing or still to come."
    if any(one.verdict == HELD for one in sums):
        return HELD, "Every guarantee that was exercised held."
    return NOT_EXERCISED, "Nothing was exercised: there is nothing to judge."


def _failing(content: Content) -> int:
    return len({row.run for row in content.verdicts if row.verdict == BROKEN})


def _several(count: int, one: str, many: str = "") -> str:
    return f"{count:,} {one if count == 1 else many or one + 's'}"
