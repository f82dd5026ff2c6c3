"""Running seeds for a person who waits: on several processors, with a bar on the terminal and, if wanted, with traces.

1. The bar is drawn on stderr and only on a terminal, so that stdout can be piped.
2. Traces of a run go to DIR/seed-N, written by the process that ran it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from transis import __version__
from transis.sim.plan import Scenario
from transis.sim.run import RunOutcome, simulate
from transis.sim.sweep import SeedJob, SeedResult, SweepSummary, in_workers, result_of, run_job
from transis.trace.events import History
from transis.trace.segment import Header, SegmentWriter

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
    """Everything that was run; `outcome` is kept of a single run only."""

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
    with _bar(len(request.seeds)) as advance, suppress(KeyboardInterrupt):
        for result in _results(request):
            tally.summary.add(result)
            note_failure(tally, request, result)
            advance(len(tally.failures))
    return tally


def _results(request: SimulateRequest) -> Iterator[SeedResult]:
    if request.trace is None:
        work = [
            SeedJob(seed, request.nodes, request.broken, groups=request.groups, scenario=request.scenario)
            for seed in request.seeds
        ]
        return in_workers(run_job, work, request.jobs)
    return in_workers(_run_traced, [request._replace(seeds=range(seed, seed + 1)) for seed in request.seeds], request.jobs)


def _run_traced(order: SimulateRequest) -> SeedResult:
    """One seed with its trace, in whichever process this is."""
    return result_of(_simulated(order))


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
def _bar(total: int) -> Iterator[Callable[[int], None]]:
    """Calls of the yielded function move the bar on by one run."""
    console = Console(stderr=True)
    failing = TextColumn("{task.fields[failing]} failing")
    columns = (TextColumn("simulating"), BarColumn(), MofNCompleteColumn(), failing, TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as progress:
        task = progress.add_task("runs", total=total, failing=0)
        yield lambda failing: progress.update(task, advance=1, failing=failing)
