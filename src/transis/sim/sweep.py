"""Many seeds on several processors, added up the same way whichever process ran which.

1. A seed's result depends on the seed alone; results are added in order of seeds.
2. What travels between processes is small: verdicts and counters, never a history. It is one row. A seed that did not end in
   time, or whose process crashed, has a row too, without a run.
3. The wall clock only measures how long a run took; nothing depends on it.
4. A build is the version and a digest of the rooms that a simulated run consists of. Workers compute it where a seed runs, so
   that one with another version of this package is noticed rather than believed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable
from multiprocessing import get_context, resource_tracker
from pathlib import Path
from signal import SIG_BLOCK, SIG_SETMASK, SIGINT, pthread_sigmask
from time import perf_counter
from typing import Final, NamedTuple, TypeVar

import msgspec

from transis import __version__
from transis.audit.guarantees.property import WEIGHT
from transis.sim.coverage import Coverage
from transis.sim.plan import TOTEM, Scenario
from transis.sim.run import RunOutcome, describe, simulate
from transis.trace.events import History
from transis.trace.segment import Header, SegmentWriter

# --- sweep ------------------------------------------------------------------------------------------------------------

EXPLANATIONS_MAX: Final = 20
"""Failing seeds that a summary explains in full."""

J = TypeVar("J")
R = TypeVar("R")


class SeedJob(NamedTuple):
    seed: int
    nodes: int | None
    broken: str
    digests: bool = False
    groups: bool = False
    scenario: Scenario = TOTEM


class SeedResult(msgspec.Struct, frozen=True):
    """What remains of one run, as numbers and names. Coverage is counted by name; the parts of a name are joined by a tab."""

    seed: int
    explanation: str
    replay: str
    nodes: int
    verdicts: tuple[tuple[str, str, int, int], ...]
    """(property, verdict, checks made, violations)."""
    broken: tuple[str, ...]
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
    replicas: dict[str, int]
    digest: str

    @property
    def coverage(self) -> Coverage:
        coverage = Coverage()
        coverage.events = Counter({(state, event): n for (state, event), n in _parts(self.events)})
        coverage.transitions = Counter({(old, event, new): n for (old, event, new), n in _parts(self.transitions)})
        coverage.faults = Counter({(kind, state): n for (kind, state), n in _parts(self.fault_states)})
        coverage.traps, coverage.notes = Counter(self.traps), Counter(self.notes)
        coverage.groups, coverage.replicas = Counter(self.groups), Counter(self.replicas)
        return coverage


@dataclass(slots=True)
class PropertyTotals:
    verdict: str = WEIGHT[0]
    """The heaviest of all runs; the first of them is heavier than none."""
    checked: int = 0
    violations: int = 0


@dataclass(slots=True)
class SweepSummary:
    """A sweep added up; `failing` holds (seed, broken properties, explanation with replay line)."""

    runs: int = 0
    violations: int = 0
    deliveries: int = 0
    views: int = 0
    turns: int = 0
    virtual_us: int = 0
    wall_s: float = 0.0
    liveness_permille_max: int = 0
    """The largest part of its liveness budget that any run used."""
    faults: Counter[str] = field(default_factory=Counter)
    nodes: Counter[int] = field(default_factory=Counter)
    properties: dict[str, PropertyTotals] = field(default_factory=dict)
    coverage: Coverage = field(default_factory=Coverage)
    failing: list[tuple[int, tuple[str, ...], str]] = field(default_factory=list)
    digests: list[tuple[int, str]] = field(default_factory=list)

    def add(self, result: SeedResult) -> None:
        self.runs += 1
        self.violations += sum(count for _, _, _, count in result.verdicts)
        self.deliveries += result.deliveries
        self.views += result.views
        self.turns += result.turns
        self.virtual_us += result.virtual_us
        self.wall_s += result.wall_s
        self.faults.update(result.faults)
        self.nodes[result.nodes] += 1
        self.coverage.merge(result.coverage)
        if result.settled_us is not None:
            self.liveness_permille_max = max(self.liveness_permille_max, result.settled_us * 1000 // max(1, result.budget_us))
        if result.digest:
            self.digests.append((result.seed, result.digest))
        if result.broken:
            explanation = result.explanation if len(self.failing) < EXPLANATIONS_MAX else result.replay
            self.failing.append((result.seed, result.broken, explanation))
        for name, verdict, checked, count in result.verdicts:
            self._add_verdict(name, verdict, checked, count)

    def _add_verdict(self, name: str, verdict: str, checked: int, count: int) -> None:
        known = self.properties.setdefault(name, PropertyTotals())
        known.verdict = max(known.verdict, verdict, key=WEIGHT.index)
        known.checked += checked
        known.violations += count


def run_job(job: SeedJob) -> SeedResult:
    """One seed, in whichever process this is."""
    return run_whole(job)[1]


def run_whole(job: SeedJob) -> tuple[RunOutcome, SeedResult]:
    """One seed, with its history beside what remains of it."""
    started = perf_counter()
    outcome = simulate(job.seed, broken=job.broken, nodes=job.nodes, groups=job.groups, scenario=job.scenario)
    digest = outcome.digest() if job.digests else ""
    return outcome, result_of(outcome, perf_counter() - started, digest)


def result_of(outcome: RunOutcome, wall_s: float = 0.0, digest: str = "") -> SeedResult:
    report, coverage = outcome.report, outcome.coverage
    return SeedResult(
        seed=outcome.seed,
        explanation=describe(outcome) if report.broken else "",
        replay=outcome.replay,
        nodes=len(outcome.plan.names),
        verdicts=tuple((one.property, one.verdict, one.checked, one.count) for one in report.verdicts.values()),
        broken=report.broken,
        deliveries=outcome.deliveries,
        views=outcome.views,
        turns=outcome.turns,
        faults=outcome.faults,
        virtual_us=outcome.virtual_us,
        settled_us=outcome.settled_us,
        budget_us=outcome.budget_us,
        wall_s=wall_s,
        events=_joined(coverage.events),
        transitions=_joined(coverage.transitions),
        fault_states=_joined(coverage.faults),
        traps=_sorted(coverage.traps),
        notes=_sorted(coverage.notes),
        groups=_sorted(coverage.groups),
        replicas=_sorted(coverage.replicas),
        digest=digest,
    )


Name = TypeVar("Name", tuple[str, str], tuple[str, str, str])
_BETWEEN: Final = "\t"
"""Separates the parts of a counted name; no state, event or fault contains it."""


def _joined(counts: Mapping[Name, int]) -> dict[str, int]:
    return {_BETWEEN.join(parts): count for parts, count in sorted(counts.items())}


def _sorted(counts: Mapping[str, int]) -> dict[str, int]:
    return dict(sorted(counts.items()))


def _parts(counts: Mapping[str, int]) -> list[tuple[list[str], int]]:
    return [(name.split(_BETWEEN), count) for name, count in counts.items()]


def sweep(
    seeds: Sequence[int],
    jobs: int = 1,
    broken: str = "",
    progress: Callable[[SeedResult], None] | None = None,
    nodes: int | None = None,
    digests: bool = False,
    stop_at_first: bool = False,
    groups: bool = False,
    scenario: Scenario = TOTEM,
) -> SweepSummary:
    """Run all seeds and add them up; `progress` is called with each result, in order of seeds."""
    work = [SeedJob(seed, nodes, broken, digests, groups, scenario) for seed in seeds]
    summary = SweepSummary()
    for result in in_workers(run_job, work, jobs):
        summary.add(result)
        if progress is not None:
            progress(result)
        if stop_at_first and result.broken:
            break
    return summary


def in_workers(run: Callable[[J], R], work: Iterable[J], jobs: int) -> Iterator[R]:
    """Results in the order of the work. Ctrl-C is for this process: workers are born with it blocked, and end with the pool."""
    if jobs <= 1:
        yield from map(run, work)
        return
    resource_tracker.ensure_running()  # Starting it unblocks signals, so it must run before they are blocked.
    before = pthread_sigmask(SIG_BLOCK, {SIGINT})
    try:
        with get_context("spawn").Pool(jobs) as pool:
            pthread_sigmask(SIG_SETMASK, before)
            yield from pool.imap(run, work, chunksize=4)
    finally:
        pthread_sigmask(SIG_SETMASK, before)


# --- rows of a table --------------------------------------------------------------------------------------------------

RAN: Final = "ran"
TIMED_OUT: Final = "timed out"
CRASHED: Final = "crashed"


class SeedRow(msgspec.Struct, frozen=True):
    """One seed of one configuration, by one build."""

    build: str
    configuration: str
    seed: int
    outcome: str
    timeout_s: int
    """The time it was given; a seed that timed out may be worth another try with more."""
    explanation: str
    replay: str
    ran: SeedResult | None = None
    traces: dict[str, bytes] = {}
    """The trace files of a run that failed, by name; they are kept beside the table, not in it."""


# --- run traces -------------------------------------------------------------------------------------------------------


def write_trace(history: History, directory: Path, name: str, order: str = "") -> None:
    """The history as segments, one chain a life. Raises OSError if the disk refuses them."""
    directory.mkdir(parents=True, exist_ok=True)
    for trace in history.nodes:
        header = Header(
            "simulated", name, trace.node, engine=history.engine, mode=history.promises, build=__version__, order=order
        )
        writer = SegmentWriter(directory, header)
        if not writer.write(trace.events):
            raise OSError(f"the trace of {trace.node} could not be written")
        writer.close(history.closed)


def order_of(scenario: Scenario) -> str:
    """As in a segment's header: empty for the ring, which has one order only."""
    return scenario.order if scenario.engine == "lansis" else ""


# --- build ------------------------------------------------------------------------------------------------------------

ROOMS: Final = (
    *("types", "wire", "engine", "totem", "lansis", "groups", "node", "sessions", "prsl"),
    *("trace", "sim", "audit/guarantees"),
)
DIGITS: Final = 12


@cache
def build_id() -> str:
    """The version and a digest of the rooms: the same whether the package lies in a directory or, as on a cluster, in a zip."""
    digest = sha256()
    for room in ROOMS:
        for name, source in _sources(files("transis") / room, room):
            digest.update(f"{name} {len(source)}\n".encode())
            digest.update(source)
    return f"{__version__}-{digest.hexdigest()[:DIGITS]}"


def _sources(directory: Traversable, path: str) -> Iterator[tuple[str, bytes]]:
    for entry in sorted(directory.iterdir(), key=lambda one: one.name):
        inside = f"{path}/{entry.name}"
        if entry.is_dir():
            yield from _sources(entry, inside)
        elif entry.name.endswith(".py"):
            yield inside, entry.read_bytes()
