"""Running seeds for a person who waits: what was asked for, then runs on several processors, with a bar and, if wanted, traces.

1. Options are turned into what the simulator needs, or into one sentence of error.
2. The bar is drawn on stderr and only on a terminal, so that stdout can be piped.
3. Traces of a run go to DIR/seed-N, written by the process that ran it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Final, NamedTuple

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from transis.cli.options import one_of, wrong
from transis.sim.defects import DEFECTS, defects_of
from transis.sim.plan import JUDGES, ORDERINGS, TOTEM, Scenario
from transis.sim.replicas.defects import REPLICA_DEFECTS
from transis.sim.run import RunOutcome, simulate
from transis.sim.sweep import SeedJob, SeedResult, SweepSummary, in_workers, order_of, result_of, run_job, write_trace
from transis.types.config import ENGINES, MODES, ORDERS

# --- options ----------------------------------------------------------------------------------------------------------

SEED_MAX: Final = (1 << 63) - 1
SEEDS_AT_ONCE: Final = 10_000_000
"""The most seeds of one call, which remembers each while it runs."""
_SEEDS: Final = re.compile(r"(\d{1,19}):(\d{1,19})")


def scenario_of(engine: str, order: str, mode: str, partitions: bool, judge: str) -> Scenario:
    """The engine and what it is asked to do; only Lansis has a choice there."""
    scenario = Scenario(
        one_of("--engine", engine, ENGINES),
        one_of("--order", order, ORDERS),
        one_of("--mode", mode, MODES),
        partitions,
        one_of("--judge", judge, JUDGES),
    )
    if engine != "lansis" and (order, mode) != (TOTEM.order, TOTEM.mode):
        option, given = ("--order", order) if order != TOTEM.order else ("--mode", mode)
        raise wrong(option, repr(given), "only the engine lansis has a choice, so give --engine lansis too")
    return scenario


LAYERS: Final = ("nodes", "groups", "prsl")
"""What runs above the engines: nothing, client processes in groups, or replicas."""


def with_layer(scenario: Scenario, layer: str, ordering: str, groups: bool) -> tuple[Scenario, bool]:
    """The scenario with its replicas, and whether there are client processes; `--groups` is short for one of the layers."""
    one_of("--ordering", ordering, ORDERINGS)
    if one_of("--layer", layer, LAYERS) == "prsl" and (scenario.order, scenario.mode) != (TOTEM.order, TOTEM.mode):
        option, given = ("--order", scenario.order) if scenario.order != TOTEM.order else ("--mode", scenario.mode)
        raise wrong(option, repr(given), "replicas need views that promise evs, and these do not, so leave it out")
    if groups and layer == "prsl":
        raise wrong("--groups", "--layer prsl", "replicas are the client processes of their runs, so leave --groups out")
    return scenario._replace(replicas=ordering if layer == "prsl" else ""), groups or layer == "groups"


def seeds_of(seed: int | None, seeds: str | None) -> range:
    """The seeds to run: one, or A to B-1."""
    if seed is not None and seeds is not None:
        raise wrong("--seeds", repr(seeds), "give --seed or --seeds, not both")
    if seeds is not None:
        return _range_of(seeds)
    first = 0 if seed is None else seed
    if not 0 <= first <= SEED_MAX:
        raise wrong("--seed", first, f"must be 0 to {SEED_MAX}")
    return range(first, first + 1)


def _range_of(text: str) -> range:
    match = _SEEDS.fullmatch(text)
    if match is None:
        raise wrong("--seeds", repr(text), "must be A:B, such as 0:2000 for the seeds 0 to 1999")
    first, end = map(int, match.groups())
    if not first < end <= SEED_MAX:
        raise wrong("--seeds", repr(text), "A must be less than B, and the seeds run from A to B-1")
    if end - first > SEEDS_AT_ONCE:
        raise wrong("--seeds", repr(text), f"these are {end - first} seeds, and one call takes at most {SEEDS_AT_ONCE}")
    return range(first, end)


def jobs_of(jobs: int | None) -> int:
    if jobs is None:
        return max(1, os.cpu_count() or 1)
    if jobs < 1:
        raise wrong("--jobs", jobs, "must be at least 1")
    return jobs


def broken_of(name: str, scenario: Scenario) -> str:
    known = defects_of(scenario.engine) | (REPLICA_DEFECTS if scenario.replicas else {})
    if name in REPLICA_DEFECTS and not scenario.replicas:
        raise wrong("--broken", repr(name), "this defect is one of replicas, so give --layer prsl too")
    if name in DEFECTS and name not in known:
        others = " and ".join(DEFECTS[name].engines)
        raise wrong("--broken", repr(name), f"this is a defect of {others}; {scenario.engine} has {', '.join(known)}")
    if name.startswith("toto") and name in DEFECTS and scenario.order != "toto":
        raise wrong("--broken", repr(name), "this is a defect of the order toto, so give --order toto too")
    if name.startswith("transis") and name in DEFECTS and scenario.mode != "transis":
        raise wrong("--broken", repr(name), "this is a defect of the mode transis, so give --mode transis too")
    return one_of("--broken", name, tuple(known)) if name else name


def complete_broken(incomplete: str) -> list[tuple[str, str]]:
    return [(name, defect.why) for name, defect in (DEFECTS | REPLICA_DEFECTS).items() if name.startswith(incomplete)]


# --- runs -------------------------------------------------------------------------------------------------------------


class SimulateRequest(NamedTuple):
    """What the command line asked for."""

    scenario: Scenario
    seeds: range
    nodes: int | None
    jobs: int
    broken: str
    trace: Path | None
    groups: bool = False

    @property
    def is_single(self) -> bool:
        return len(self.seeds) == 1

    @property
    def engine(self) -> str:
        return self.scenario.engine


class Failure(NamedTuple):
    seed: int
    properties: tuple[str, ...]
    explanation: str
    replay: str


@dataclass(slots=True)
class Tally:
    """Everything that was run; `outcome` is kept only if that was a single run."""

    summary: SweepSummary = field(default_factory=SweepSummary)
    failures: list[Failure] = field(default_factory=list)
    outcome: RunOutcome | None = None
    wall_s: float = 0.0

    @property
    def runs_per_minute(self) -> float:
        return 60 * self.summary.runs / self.wall_s if self.wall_s > 0 else 0.0


def run(request: SimulateRequest) -> Tally:
    """Run the seeds and add up what they showed."""
    started = perf_counter()
    tally = _one(request) if request.is_single else _many(request)
    tally.wall_s = perf_counter() - started
    return tally


def _one(request: SimulateRequest) -> Tally:
    outcome = _simulated(request)
    tally = Tally(outcome=outcome)
    result = result_of(outcome)
    tally.summary.add(result)
    note_failure(tally, request, result)
    return tally


def _many(request: SimulateRequest) -> Tally:
    """Ctrl-C keeps what has run so far."""
    tally = Tally()
    with seed_bar("simulating", len(request.seeds)) as advance, suppress(KeyboardInterrupt):
        for result in _results(request):
            tally.summary.add(result)
            note_failure(tally, request, result)
            advance(f"{len(tally.failures)} failing")
    return tally


def _results(request: SimulateRequest) -> Iterator[SeedResult]:
    if request.trace is None:
        work = [
            SeedJob(seed, request.nodes, request.broken, groups=request.groups, scenario=request.scenario)
            for seed in request.seeds
        ]
        return in_workers(run_job, work, request.jobs)
    return in_workers(_run_traced, [request._replace(seeds=range(seed, seed + 1)) for seed in request.seeds], request.jobs)


def _run_traced(request: SimulateRequest) -> SeedResult:
    """One seed with its trace, in whichever process this is."""
    return result_of(_simulated(request))


def _simulated(request: SimulateRequest) -> RunOutcome:
    """The first seed, with its trace written if the request has a directory for it."""
    outcome = simulate(
        request.seeds[0], broken=request.broken, nodes=request.nodes, groups=request.groups, scenario=request.scenario
    )
    if request.trace is not None:
        write_trace(outcome.history, trace_of(request.trace, outcome.seed), f"seed {outcome.seed}", order_of(request.scenario))
    return outcome


def trace_of(directory: Path, seed: int) -> Path:
    return directory / f"seed-{seed}"


def note_failure(tally: Tally, request: SimulateRequest, result: SeedResult) -> None:
    if result.broken:
        replay = replay_line(result.replay, request.broken)
        explanation = result.explanation.replace(result.replay, replay)
        tally.failures.append(Failure(result.seed, result.broken, explanation, replay))


def replay_line(line: str, broken: str) -> str:
    return f"{line} --broken {broken}" if broken and "--broken" not in line else line


@contextmanager
def seed_bar(doing: str, total: int, there: int = 0) -> Iterator[Callable[[str], None]]:
    """On stderr, and only on a terminal. Each call of the yielded function moves the bar on by one seed, with these words."""
    console = Console(stderr=True)
    columns = (TextColumn(doing), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[words]}"), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as progress:
        task = progress.add_task("seeds", total=total, completed=there, words="")
        yield lambda words: progress.update(task, advance=1, words=words)
