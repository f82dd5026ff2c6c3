"""Running seeds for a person who waits.

Running seeds for a person who waits: on several processors, with a bar on the terminal, with traces if wanted.

1. The bar is drawn on stderr and only on a terminal, so that stdout can be piped.
2. Traces of a run go to DIR/seed-N, written by the process that ran it.

A simulated run as segments. No typer, no rich: workers of a sweep write traces, too, and need not have them.
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
from transis.sim.plan import Tried
from transis.sim.run import Outcome, simulate
from transis.sim.sweep import Job, Result, Summary, in_workers, result_of, run_job
from transis.trace.events import History
from transis.trace.segment import Header, SegmentWriter

# --- run traces -------------------------------------------------------------------------------------------------------


def write_trace(history: History, directory: Path, name: str, order: str = "") -> None:
    """The history as segments, one chain a life; a disk that does not take them is the caller's to report."""
    directory.mkdir(parents=True, exist_ok=True)
    for trace in history.nodes:
        header = Header(
            "simulated", name, trace.node, engine=history.engine, mode=history.promises, build=__version__, order=order
        )
        writer = SegmentWriter(directory, header)
        if not writer.write(trace.events):
            raise OSError(f"the trace of {trace.node} could not be written")
        writer.close(history.closed)


def order_of(tried: Tried) -> str:
    """As a segment's header has it: empty on the ring, which has no choice."""
    return tried.order if tried.engine == "lansis" else ""


# --- runs -------------------------------------------------------------------------------------------------------------


class Wish(NamedTuple):
    """What the command line asked for."""

    tried: Tried
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
        return self.tried.engine


class Failure(NamedTuple):
    seed: int
    properties: tuple[str, ...]
    explanation: str
    replay: str


@dataclass(slots=True)
class Tally:
    """Everything that was run; `outcome` is kept of a single run only."""

    summary: Summary = field(default_factory=Summary)
    failures: list[Failure] = field(default_factory=list)
    outcome: Outcome | None = None
    wall_s: float = 0.0

    @property
    def runs_per_minute(self) -> float:
        return 60 * self.summary.runs / self.wall_s if self.wall_s > 0 else 0.0


def run(wish: Wish) -> Tally:
    """Run what was wished for and add it up."""
    started = perf_counter()
    tally = _one(wish) if wish.is_single else _many(wish)
    tally.wall_s = perf_counter() - started
    return tally


def _one(wish: Wish) -> Tally:
    outcome = _simulated(wish)
    tally = Tally(outcome=outcome)
    result = result_of(outcome)
    tally.summary.add(result)
    note_failure(tally, wish, result)
    return tally


def _many(wish: Wish) -> Tally:
    """Whoever is tired of waiting gets what there is."""
    tally = Tally()
    with _bar(len(wish.seeds)) as advance, suppress(KeyboardInterrupt):
        for result in _results(wish):
            tally.summary.add(result)
            note_failure(tally, wish, result)
            advance(len(tally.failures))
    return tally


def _results(wish: Wish) -> Iterator[Result]:
    if wish.trace is None:
        work = [Job(seed, wish.nodes, wish.broken, groups=wish.groups, tried=wish.tried) for seed in wish.seeds]
        return in_workers(run_job, work, wish.jobs)
    return in_workers(_run_traced, [wish._replace(seeds=range(seed, seed + 1)) for seed in wish.seeds], wish.jobs)


def _run_traced(order: Wish) -> Result:
    """One seed with its trace, in whichever process this is."""
    return result_of(_simulated(order))


def _simulated(wish: Wish) -> Outcome:
    """The first seed, with its trace written if that was wished for."""
    outcome = simulate(wish.seeds[0], broken=wish.broken, nodes=wish.nodes, groups=wish.groups, tried=wish.tried)
    if wish.trace is not None:
        write_trace(outcome.history, trace_of(wish.trace, outcome.seed), f"seed {outcome.seed}", order_of(wish.tried))
    return outcome


def trace_of(directory: Path, seed: int) -> Path:
    return directory / f"seed-{seed}"


def note_failure(tally: Tally, wish: Wish, result: Result) -> None:
    if result.broken:
        replay = replay_line(result.replay, wish.broken)
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
