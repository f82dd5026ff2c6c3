"""What remains of a seed when it travels or is kept: one row, from which its `Result` comes back without loss.

A seed that did not end in time, or whose process ended before it, has a row too: it says so and has no run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final, TypeVar

import msgspec

from transis.sim.coverage import Coverage
from transis.sim.sweep import Result

RAN: Final = "ran"
TIMED_OUT: Final = "timed out"
CRASHED: Final = "crashed"

Name = TypeVar("Name", tuple[str, str], tuple[str, str, str])
_BETWEEN: Final = "\t"
"""Between the parts of a name that is counted; no state, event or fault has it."""


class RanRow(msgspec.Struct, frozen=True):
    """A run that ended, as numbers and names. Counts of coverage are by names; the parts of a name are joined by a tab."""

    nodes: int
    verdicts: list[tuple[str, str, int, int]]
    broken: list[str]
    deliveries: int
    views: int
    turns: int
    faults: dict[str, int]
    virtual_us: int
    settled_us: int | None
    budget_us: int
    wall_s: float
    events: dict[str, int]
    transitions: dict[str, int]
    fault_states: dict[str, int]
    traps: dict[str, int]
    notes: dict[str, int]
    groups: dict[str, int]
    digest: str


class SeedRow(msgspec.Struct, frozen=True):
    """One seed of one configuration, by one build."""

    build: str
    configuration: str
    seed: int
    outcome: str
    timeout_s: int
    """What it was given; a seed that timed out may be worth another try with more."""
    explanation: str
    replay: str
    ran: RanRow | None = None
    traces: dict[str, bytes] = {}
    """Files of the trace of a run that failed, by their names; they are kept beside the table, not in it."""


def ran_row(result: Result) -> RanRow:
    coverage = result.coverage
    return RanRow(
        result.nodes, list(result.verdicts), list(result.broken), result.deliveries, result.views, result.turns, result.faults,
        result.virtual_us, result.settled_us, result.budget_us, result.wall_s, _joined(coverage.events),
        _joined(coverage.transitions), _joined(coverage.faults), _sorted(coverage.traps), _sorted(coverage.notes),
        _sorted(coverage.groups), result.digest,
    )  # fmt: skip


def result_from(row: SeedRow) -> Result | None:
    """The result that the row was made of; None of a seed that did not end."""
    ran = row.ran
    if ran is None:
        return None
    return Result(
        row.seed, ran.nodes, tuple(ran.verdicts), tuple(ran.broken), row.explanation, row.replay, ran.deliveries, ran.views,
        ran.turns, dict(ran.faults), ran.virtual_us, ran.settled_us, ran.budget_us, ran.wall_s, _coverage(ran), ran.digest,
    )  # fmt: skip


def _coverage(ran: RanRow) -> Coverage:
    coverage = Coverage()
    coverage.events = Counter({(state, event): n for (state, event), n in _parts(ran.events)})
    coverage.transitions = Counter({(old, event, new): n for (old, event, new), n in _parts(ran.transitions)})
    coverage.faults = Counter({(kind, state): n for (kind, state), n in _parts(ran.fault_states)})
    coverage.traps, coverage.notes, coverage.groups = Counter(ran.traps), Counter(ran.notes), Counter(ran.groups)
    return coverage


def _joined(counts: Mapping[Name, int]) -> dict[str, int]:
    return {_BETWEEN.join(parts): count for parts, count in sorted(counts.items())}


def _sorted(counts: Mapping[str, int]) -> dict[str, int]:
    return dict(sorted(counts.items()))


def _parts(counts: Mapping[str, int]) -> list[tuple[list[str], int]]:
    return [(name.split(_BETWEEN), count) for name, count in counts.items()]
