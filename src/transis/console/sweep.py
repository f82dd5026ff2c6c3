"""`transis sweep`: simulations by the hundred thousand, on Spark, in a table that goes on where it stopped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from transis.cli.admin import INTERRUPTED, unable
from transis.cli.options import complain, local_directory, nodes_of, wrong
from transis.console.as_json import written
from transis.console.reconcile import MasterOption, UiOption
from transis.console.runs import Tally, Wish, note_failure
from transis.console.sim_options import broken_of, complete_broken, seeds_of, tried_of
from transis.console.simulate import Engine, Judge, Mode, Order, Partitions, sums, tell_failures, tell_tables
from transis.console.sweep_build import build_id
from transis.console.tables import say, stdout
from transis.sim.broken import GROUP_DEFECTS
from transis.sim.seedrows import CRASHED, TIMED_OUT, SeedRow, result_from
from transis.sim.sweep import Job
from transis.sim.tried import TOTEM
from transis.types.errors import MissingExtra, TransisError

if TYPE_CHECKING:
    from transis.console.sweep_table import SweepTable

SWEEP_EXAMPLES = """Examples:

transis sweep --engine totem --seeds 0:100000 --table sweeps --master spark://host:7077

transis sweep --engine totem --seeds 0:100000 --table sweeps [dim]# again: goes on where it stopped[/dim]

transis sweep --engine lansis --groups --seeds 0:5000 --table sweeps --json > sweep.json
"""

VIOLATED: Final = 1
TIMEOUT_MAX: Final = 86_400
SEEDS_SHOWN_MAX: Final = 20
"""Seeds without a verdict that are named one by one."""

SeedsOption = Annotated[str, typer.Option(metavar="A:B", help="Run the seeds A to B-1.")]
TableOption = Annotated[
    str, typer.Option(metavar="DIR", help="A row for every seed is kept here; seeds that have one are not run.")
]
TimeoutOption = Annotated[
    int, typer.Option(metavar="SECONDS", help="A seed that takes longer, of a processor, is ended, and told.")
]
TracesOption = Annotated[int, typer.Option(metavar="N", help="Traces are kept of so many failed seeds, in DIR/failed.")]
GroupsOption = Annotated[bool, typer.Option("--groups", help="Nodes with process groups and their clients.")]
NodesOption = Annotated[int | None, typer.Option(help="How many nodes; otherwise each seed draws it.")]
BrokenOption = Annotated[str, typer.Option(help="Run an engine with a deliberate defect.", autocompletion=complete_broken)]


@dataclass(slots=True)
class Swept:
    """All that the table says of the wanted seeds, and what this call added to it."""

    tally: Tally = field(default_factory=Tally)
    without_verdict: list[SeedRow] = field(default_factory=list)
    """Seeds that timed out, or whose process ended."""
    ran_now: int = 0
    seconds: float = 0.0

    @property
    def is_fine(self) -> bool:
        return not self.tally.failures and not self.without_verdict

    @property
    def runs_per_minute(self) -> float:
        return 60 * self.ran_now / self.seconds if self.seconds else 0.0

    def seeds_that(self, outcome: str) -> list[int]:
        return [row.seed for row in self.without_verdict if row.outcome == outcome]


class Limits(NamedTuple):
    timeout_s: int
    traces_max: int


def sweep(
    seeds: SeedsOption,
    table: TableOption,
    engine: Engine = TOTEM.engine,
    order: Order = TOTEM.order,
    mode: Mode = TOTEM.mode,
    partitions: Partitions = True,
    judge: Judge = TOTEM.judge,
    groups: GroupsOption = False,
    nodes: NodesOption = None,
    broken: BrokenOption = "",
    timeout: TimeoutOption = 300,
    keep_traces: TracesOption = 100,
    master: MasterOption = None,
    ui: UiOption = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Simulate many seeds as a job of Spark, and keep a row of each in a table.

    Every seed is simulated and judged where it runs, as `transis simulate` does it. The table is keyed by build, configuration
    and seed: the same command again goes on where the last one stopped, and if nothing is left tells what is there.

    Exit code 1 if a guarantee was broken, or a seed timed out or crashed.
    """
    tried = tried_of(engine, order, mode, partitions, judge)
    wish = Wish(
        tried=tried,
        seeds=seeds_of(None, seeds),
        nodes=nodes_of(nodes),
        jobs=1,
        broken=broken_of(broken, tried),
        trace=None,
        groups=groups,
    )
    if broken in GROUP_DEFECTS and not groups:
        raise wrong("--broken", repr(broken), "this defect is one of the groups, so give --groups too")
    limits = _limits(timeout, keep_traces)
    directory = local_directory("--table", table)
    try:
        swept = _carry_out_sweep(wish, limits, directory, master, ui)
    except KeyboardInterrupt:
        complain("sweep", "interrupted; seeds that have a row keep it, and the same command goes on with the others")
        raise typer.Exit(INTERRUPTED) from None
    except TransisError as error:
        raise unable("sweep", error) from None
    if json:
        print(written(wish, swept.tally, _more(swept)))
    else:
        _print_sweep(stdout(), wish, swept, directory)
    raise typer.Exit(0 if swept.is_fine else VIOLATED)


def _limits(timeout: int, traces_max: int) -> Limits:
    if not 1 <= timeout <= TIMEOUT_MAX:
        raise wrong("--timeout", timeout, f"must be 1 to {TIMEOUT_MAX}")
    if traces_max < 0:
        raise wrong("--keep-traces", traces_max, "must be 0 or more")
    return Limits(timeout, traces_max)


def configuration_of(wish: Wish) -> str:
    """The options that decide a run, as `transis simulate` has them."""
    groups = " --groups" if wish.groups else ""
    nodes = "" if wish.nodes is None else f" --nodes {wish.nodes}"
    broken = f" --broken {wish.broken}" if wish.broken else ""
    return f"{wish.tried.options}{groups}{nodes}{broken}"


def _carry_out_sweep(wish: Wish, limits: Limits, directory: Path, master: str | None, ui: bool) -> Swept:
    try:
        from transis.console.sweep_table import SweepTable
    except ImportError as error:
        raise MissingExtra("transis sweep", "spark") from error
    table = SweepTable(directory, build_id(), configuration_of(wish))
    swept = Swept()
    with table.written_here():
        pending = table.pending(wish.seeds, limits.timeout_s)
        if pending:
            _run(wish, limits, table, pending, master, ui, swept)
        for row in table.rows(wish.seeds):
            _add(wish, swept, row)
    swept.tally.wall_s = swept.seconds
    return swept


def _run(wish: Wish, limits: Limits, table: SweepTable, pending: list[int], master: str | None, ui: bool, swept: Swept) -> None:
    from transis.pipeline.failures import require_spark

    require_spark()
    from transis.console.sweep_job import run_pending
    from transis.console.sweep_task import Order as TaskOrder
    from transis.pipeline.session import spark_session, ui_address
    from transis.pipeline.spread import Executors

    job = Job(0, wish.nodes, wish.broken, digests=True, groups=wish.groups, tried=wish.tried)
    order = TaskOrder(table.configuration, job, limits.timeout_s)
    started = perf_counter()
    with spark_session(master, ui=ui, app="transis sweep") as spark:
        if ui:
            say(Console(stderr=True), f"Spark's own page: {ui_address(spark)}")
        with _bar(len(wish.seeds), len(wish.seeds) - len(pending)) as tell:
            run_pending(Executors(spark), order, table, pending, limits.traces_max, tell)
    swept.ran_now = len(pending)
    swept.seconds = perf_counter() - started


def _add(wish: Wish, swept: Swept, row: SeedRow) -> None:
    result = result_from(row)
    if result is None:
        swept.without_verdict.append(row)
        return
    swept.tally.summary.add(result)
    note_failure(swept.tally, wish, result)


def _more(swept: Swept) -> dict[str, Any]:
    """What the JSON of a sweep says beside that of `transis simulate`; its speed is that of the seeds that ran now."""
    return {
        "build": build_id(),
        "ran_now": swept.ran_now,
        "runs_per_minute": round(swept.runs_per_minute, 1),
        "timed_out": swept.seeds_that(TIMED_OUT),
        "crashed": swept.seeds_that(CRASHED),
    }


def _print_sweep(out: Console, wish: Wish, swept: Swept, directory: Path) -> None:
    tell_tables(out, wish, swept.tally)
    say(out, sums(swept.tally))
    if swept.ran_now:
        speed = f"{swept.ran_now:,} seeds in {swept.seconds:,.1f} s, {swept.runs_per_minute:,.0f} a minute"
        say(out, f"{speed}; of the others the table had rows" if swept.ran_now < len(wish.seeds) else speed)
    else:
        say(out, "Nothing was left to run: all of this was in the table")
    say(out, f"Build {build_id()}, {configuration_of(wish)}; the table: {directory}")
    for row in swept.without_verdict[:SEEDS_SHOWN_MAX]:
        say(out, f"seed {row.seed} {row.outcome}: {row.explanation}\nreplay: {row.replay}", "red")
    if len(swept.without_verdict) > SEEDS_SHOWN_MAX:
        say(out, f"and {len(swept.without_verdict) - SEEDS_SHOWN_MAX:,} more seeds without a verdict", "red")
    if swept.tally.summary.runs:
        tell_failures(out, swept.tally)
    if swept.tally.failures:
        say(out, f"Traces of failed seeds: {directory / 'failed'}")


@contextmanager
def _bar(total: int, there: int) -> Iterator[Callable[[SeedRow], None]]:
    """On stderr, and only on a terminal; calls of the yielded function move it on by one seed."""
    console = Console(stderr=True)
    words = TextColumn("{task.fields[failing]} failing, {task.fields[ended]} timed out or crashed")
    columns = (TextColumn("sweeping"), BarColumn(), MofNCompleteColumn(), words, TimeRemainingColumn())
    failing = ended = 0
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as progress:
        task = progress.add_task("seeds", total=total, completed=there, failing=failing, ended=ended)

        def tell(row: SeedRow) -> None:
            nonlocal failing, ended
            ended += row.ran is None
            failing += row.ran is not None and bool(row.ran.broken)
            progress.update(task, advance=1, failing=failing, ended=ended)

        yield tell
