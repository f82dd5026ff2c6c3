"""`transis simulate` and `transis sweep`: clusters under faults, and whether a guarantee was broken.

The first runs a few seeds here, the second hundreds of thousands on Spark, in a table that resumes where it stopped.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer
from rich.console import Console
from rich.text import Text

from transis.audit.draw.layout import Picture
from transis.audit.draw.spacetime import write_diagram
from transis.cli.options import (
    INTERRUPTED,
    LAYERS_HELP,
    PROBLEM,
    EngineOption,
    choice,
    complain,
    counted,
    layers_of,
    local_directory,
    nodes_of,
    picture_file,
    plain_table,
    say,
    stdout,
    trace_directory,
    unable,
    wrong,
)
from transis.sim.defects import GROUP_DEFECTS, defects_of
from transis.sim.network import WireLog
from transis.sim.picture import Drawing, picture_of
from transis.sim.plan import JUDGES, ORDERINGS, TOTEM, Scenario, plan_text
from transis.sim.replicas.defects import REPLICA_DEFECTS
from transis.sim.run import RunOutcome, beyond_promise, draw_run
from transis.sim.run import simulate as simulate_plan
from transis.sim.runs import (
    LAYERS,
    SimulateRequest,
    Tally,
    broken_of,
    complete_broken,
    jobs_of,
    note_failure,
    run,
    scenario_of,
    seed_bar,
    seeds_of,
    trace_of,
    with_layer,
)
from transis.sim.shrink import Shrunk
from transis.sim.shrink import shrink as shrink_plan
from transis.sim.sweep import CRASHED, TIMED_OUT, SeedJob, SeedRow, build_id
from transis.sim.words import coverage_tables, fault_line, json_text, story_table, verdict_table, witness_lines
from transis.spark.cli import MasterOption, UiOption
from transis.types.config import MODES, ORDERS
from transis.types.errors import MissingExtra, TransisError

if TYPE_CHECKING:
    from transis.sim.spark_sweep import SweepTable


# --- simulate ---------------------------------------------------------------------------------------------------------

SIMULATE_EXAMPLES = """Examples:
  transis simulate --seed 7 [dim]# one run, in full[/dim]
  transis simulate --seed 7 --show run.html [dim]# the same run, drawn[/dim]
  transis simulate --seed 7 --plan [dim]# and what the seed drew[/dim]
  transis simulate --seeds 0:2000 --jobs 2 [dim]# seeds 0 to 1999[/dim]
  transis simulate --seeds 0:500 --json > out.json
  transis simulate --groups --seeds 0:300 [dim]# client processes that join, leave and send[/dim]
  transis simulate --groups --nodes 128 --seed 1
  transis simulate --layer prsl --seeds 0:2000 [dim]# replicas that survive everything[/dim]
  transis simulate --engine lansis --seeds 0:2000
  transis simulate --engine lansis --order toto --no-partitions --seeds 0:500
  transis simulate --engine lansis --order toto --judge evs --seed 74 [dim]# why toto is not evs[/dim]
  transis simulate --seeds 0:200 --broken safe_one_rotation_early --shrink
"""

FAILURES_SHOWN_MAX: Final = 3
"""Failing seeds that are explained in full; each of the others has its replay line."""

LIST: Final = "list"
"""Instead of a defect's name: list the defects."""

Order = Annotated[str, choice(ORDERS, "How lansis orders.")]
Mode = Annotated[str, choice(MODES, "What lansis promises.")]
Partitions = Annotated[
    bool,
    typer.Option(
        " /--no-partitions", show_default=False, help="Nodes crash, but the network never parts: toto then promises one order."
    ),
]

Judge = Annotated[str, choice(JUDGES, "Judge by what is promised, or by evs, which shows runs in which toto has two orders.")]
Broken = Annotated[
    str,
    typer.Option(
        metavar="DEFECT",
        help="Run an engine with a deliberate defect; `--broken list` names them.",
        autocompletion=complete_broken,
    ),
]


def simulate(
    engine: EngineOption = TOTEM.engine,
    order: Order = TOTEM.order,
    mode: Mode = TOTEM.mode,
    partitions: Partitions = True,
    judge: Judge = TOTEM.judge,
    groups: Annotated[
        bool, typer.Option("--groups", help="With process groups: client processes join, leave, disconnect and send.")
    ] = False,
    layer: Annotated[str, choice(LAYERS, "What runs above the engine: nothing, groups as with --groups, or replicas.")] = "nodes",
    ordering: Annotated[str, choice(ORDERINGS, "How replicas order.")] = "corel",
    nodes: Annotated[int | None, typer.Option(help="Number of nodes; drawn by each seed if not given.")] = None,
    seed: Annotated[int | None, typer.Option(help="Run one seed (0 if neither --seed nor --seeds is given).")] = None,
    seeds: Annotated[str | None, typer.Option(metavar="A:B", help="Run the seeds A to B-1.")] = None,
    jobs: Annotated[int | None, typer.Option(help="Processes for many seeds; one per processor if not given.")] = None,
    trace: Annotated[Path | None, typer.Option(metavar="DIR", help="Write the trace of each run to DIR/seed-N.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
    show: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Draw a run as a space-time diagram, FILE.html or FILE.svg; of several the first that failed."
        ),
    ] = None,
    layers: Annotated[str, typer.Option(metavar="LAYERS", help=LAYERS_HELP)] = "",
    broken: Broken = "",
    shrink: Annotated[
        bool, typer.Option("--shrink", help="Shrink the first failing run and print it as a script; --show then draws that one.")
    ] = False,
    plan: Annotated[bool, typer.Option("--plan", help="Also print what the seed of a single run drew, and its budgets.")] = False,
) -> None:
    """Simulate clusters under faults and check every guarantee.

    A seed draws a cluster, its traffic, its network and its faults; the same seed is always the same run. With --groups it also
    draws client processes, on the same cluster under the same faults, and the guarantees of groups are checked as well. With
    --layer prsl it draws replicas with disks: they crash in the middle of a write, and lose power all at once.

    The summary also says how much was tested: the faults that struck, the states and events reached and never reached.
    """
    scenario, has_groups = with_layer(scenario_of(engine, order, mode, partitions, judge), layer, ordering, groups)
    if broken == LIST:
        print_defects(stdout(), scenario)
        return
    request = SimulateRequest(
        scenario=scenario,
        seeds=seeds_of(seed, seeds),
        nodes=nodes_of(nodes),
        jobs=jobs_of(jobs),
        broken=broken_of(broken, scenario),
        trace=trace_directory(trace),
        groups=has_groups,
    )
    if broken in GROUP_DEFECTS and not has_groups:
        raise wrong("--broken", repr(broken), "this is a defect of process groups, so give --groups too")
    drawing = Drawing(picture_file(show, "--show"), layers_of(layers, show))
    try:
        failed = _carry_out_simulate(request, drawing, json, shrink, plan)
    except (OSError, TransisError) as error:
        raise unable("simulate", error) from None
    raise typer.Exit(PROBLEM if failed else 0)


def _carry_out_simulate(request: SimulateRequest, drawing: Drawing, json: bool, want_small: bool, want_plan: bool) -> bool:
    """Run, print, draw; True if a guarantee was broken."""
    tally = run(request)
    was_interrupted = tally.summary.runs < len(request.seeds)
    small = _shrunk(request, tally) if want_small and not was_interrupted else None
    drawn = _draw(request, tally, small, drawing) if drawing.file is not None else ""
    if json:
        print(json_text(request, tally, {"shrunk": small.script()} if small is not None else {}))
    else:
        _print_simulate(stdout(), request, tally, small, drawn, want_plan=want_plan)
    if was_interrupted:
        complain("simulate", f"interrupted: this is what {tally.summary.runs:,} of {len(request.seeds):,} seeds showed")
        raise typer.Exit(INTERRUPTED)
    return bool(tally.failures)


def _shrunk(request: SimulateRequest, tally: Tally) -> Shrunk | None:
    if not tally.failures:
        return None
    return shrink_plan(draw_run(tally.failures[0].seed, request.nodes, request.groups, request.scenario), request.broken)


def _draw(request: SimulateRequest, tally: Tally, small: Shrunk | None, drawing: Drawing) -> str:
    """Draw the shrunk run, the single one, or the first of several that failed; returns what was drawn.

    It is run again, because the network is watched only when a picture is wanted: the same plan is always the same run."""
    assert drawing.file is not None, "there is a file to draw"
    if small is not None:
        plan = small.plan
    elif tally.outcome is not None:
        plan = tally.outcome.plan
    elif tally.failures:
        plan = draw_run(tally.failures[0].seed, request.nodes, request.groups, request.scenario)
    else:
        return f"Nothing failed, so {drawing.file} was not drawn"
    wire = WireLog()
    outcome = simulate_plan(plan.seed, plan, request.broken, watchers=(wire,))
    write_diagram(drawing.file, _picture(request, outcome, small, wire, drawing.layers))
    return f"Drawn: {drawing.file}" + ("" if request.is_single else f", seed {outcome.seed}")


def _picture(
    request: SimulateRequest, outcome: RunOutcome, small: Shrunk | None, wire: WireLog, layers: tuple[str, ...]
) -> Picture:
    what = f"seed {outcome.seed}" + (", made small" if small is not None else "")
    verdict = f"broken: {', '.join(outcome.report.broken)}" if outcome.report.broken else "every guarantee held"
    counts = f"{len(outcome.plan.names)} nodes, {outcome.views:,} view installations, {outcome.deliveries:,} deliveries"
    facts = (f"{counts}, {outcome.virtual_us / 1e6:.2f} s of virtual time · {verdict}",)
    title = f"Transis, {request.engine} engine, {what}"
    return picture_of(outcome.history, outcome.log, title, facts, outcome.violations, wire, layers)


def _print_simulate(
    out: Console, request: SimulateRequest, tally: Tally, small: Shrunk | None, drawn: str, *, want_plan: bool
) -> None:
    """For a single run: its verdict, its story, the tables and, if wanted, its plan. For many the tables come first."""
    if tally.outcome is not None:
        _print_single(out, request, tally, tally.outcome, want_plan=want_plan)
    else:
        print_tables(out, request, tally)
        say(out, _totals(request, tally))
        print_failures(out, tally)
    if small is not None:
        say(out, f"\nShrunk in {small.runs} runs, to a script for `transis play`:\n")
        say(out, small.script())
    if drawn:
        say(out, drawn)
    if request.trace is not None:
        where = trace_of(request.trace, request.seeds[0]) if request.is_single else f"{request.trace}, a directory per seed"
        say(out, f"Traces: {where}")


def _print_single(out: Console, request: SimulateRequest, tally: Tally, outcome: RunOutcome, *, want_plan: bool) -> None:
    say(out, f"Seed {outcome.seed}: {request.engine}, {counted(len(outcome.plan.names), 'node')}", "bold")
    say(out, _totals(request, tally))
    print_failures(out, tally)
    out.print()
    out.print(story_table(outcome))
    out.print()
    print_tables(out, request, tally)
    if want_plan:
        _print_plan(out, outcome)


def print_defects(out: Console, scenario: Scenario) -> None:
    """The defects that an engine can be given, each with what it does."""
    table = plain_table("defect", "")
    table.columns[1].justify = "left"
    known = defects_of(scenario.engine) | (REPLICA_DEFECTS if scenario.replicas else {})
    for name, defect in known.items():
        needs = " (needs --groups)" if name in GROUP_DEFECTS else " (needs --order toto)" if name.startswith("toto") else ""
        harmless = f"\nbreaks nothing: {defect.harmless}" if defect.harmless else ""
        table.add_row(name, Text(defect.why) + Text(needs + harmless, style="dim"))
    out.print(table)
    say(out, f"transis simulate {scenario.options} --seeds 0:200 --broken NAME --shrink shows one being caught")


def print_tables(out: Console, request: SimulateRequest, tally: Tally) -> None:
    """Verdicts, faults, and what was reached."""
    out.print(verdict_table(tally.summary.properties))
    out.print()
    say(out, fault_line(tally.summary.faults))
    out.print()
    out.print(coverage_tables(tally.summary.coverage, tally.summary.runs, request.engine))
    out.print()


def _print_plan(out: Console, outcome: RunOutcome) -> None:
    """The plan and the budgets of a single run: what its seed drew."""
    plan = outcome.plan
    say(out, f"Plan of seed {plan.seed}", "bold")
    say(out, plan_text(plan))
    say(out, f"\nEvent budget: {plan.turns_max:,} turns of nodes under faults; {outcome.turns:,} turns were taken in all.")
    used = "it did not come to rest" if outcome.settled_us is None else f"{outcome.settled_us / 1e6:.3f} s were needed"
    say(out, f"Liveness budget: {outcome.budget_us / 1e6:.3f} s of virtual time after the last fault; {used}.\n")


def _totals(request: SimulateRequest, tally: Tally) -> str:
    summary = tally.summary
    lines = [
        sums(tally),
        f"{summary.virtual_us / 1e6:,.1f} s of virtual time in {tally.wall_s:,.1f} s, {tally.runs_per_minute:,.0f} runs a minute",
    ]
    if not request.scenario.partitions:
        notes = summary.coverage.notes
        lines.append(", ".join(f"{what}: {notes[what]:,}" for what in ("parted without a partition", "died ahead of the others")))
    if request.broken:
        lines.append(f"The engine was broken on purpose: {request.broken}")
    return "\n".join(lines)


def sums(tally: Tally) -> str:
    summary = tally.summary
    runs, violations = counted(summary.runs, "run"), counted(summary.violations, "violation")
    views, deliveries = counted(summary.views, "view installation"), counted(summary.deliveries, "delivery", "deliveries")
    return f"{runs}, {violations}, {views}, {deliveries}"


def print_failures(out: Console, tally: Tally) -> None:
    if not tally.failures:
        say(out, "Every guarantee that was exercised held.", "green")
        return
    say(out, f"\n{len(tally.failures)} of {tally.summary.runs} runs broke a guarantee.", "bold red")
    if tally.outcome is not None:
        for line in witness_lines(tally.outcome.history, tally.outcome.violations):
            say(out, line)
        beyond = beyond_promise(tally.outcome.plan, tally.failures[0].properties)
        if beyond:
            say(out, beyond)
        say(out, f"replay: {tally.failures[0].replay}")
        return
    for failure in tally.failures[:FAILURES_SHOWN_MAX]:
        sentences, _, _ = failure.explanation.partition(failure.replay)
        say(out, f"{sentences}{failure.replay}")
    for failure in tally.failures[FAILURES_SHOWN_MAX:]:
        say(out, f"seed {failure.seed}: {', '.join(failure.properties)}; replay: {failure.replay}")


# --- sweep ------------------------------------------------------------------------------------------------------------

SWEEP_EXAMPLES = """Examples:
  transis sweep --engine totem --seeds 0:100000 --table sweeps --master spark://host:7077
  transis sweep --engine totem --seeds 0:100000 --table sweeps [dim]# again: goes on where it stopped[/dim]
  transis sweep --engine lansis --groups --seeds 0:5000 --table sweeps --json > sweep.json
"""

TIMEOUT_MAX: Final = 86_400
SEEDS_SHOWN_MAX: Final = 20
"""Seeds without a verdict that are named one by one."""

SeedsOption = Annotated[str, typer.Option(metavar="A:B", help="Run the seeds A to B-1.")]
TableOption = Annotated[
    str, typer.Option(metavar="DIR", help="Keep a row for every seed here; seeds that have one are not run again.")
]
TimeoutOption = Annotated[
    int, typer.Option(metavar="SECONDS", help="End a seed that takes more processor time than this, and report it.")
]
TracesOption = Annotated[int, typer.Option(metavar="N", help="Keep the traces of up to N failed seeds, in DIR/failed.")]
GroupsOption = Annotated[bool, typer.Option("--groups", help="With process groups and their clients.")]
NodesOption = Annotated[int | None, typer.Option(help="Number of nodes; drawn by each seed if not given.")]
BrokenOption = Annotated[
    str, typer.Option(metavar="DEFECT", help="Run an engine with a deliberate defect.", autocompletion=complete_broken)
]


@dataclass(slots=True)
class SweepResult:
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


class SweepLimits(NamedTuple):
    timeout_s: int
    traces_max: int


def sweep(
    seeds: SeedsOption,
    table: TableOption,
    engine: EngineOption = TOTEM.engine,
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
    """Simulate many seeds as a Spark job, and keep a row for each in a table.

    Each seed is simulated and judged by the worker that runs it, as `transis simulate` would. The table is keyed by build,
    configuration and seed: the same command again goes on where the last one stopped, or shows the results if all are there.

    Exit code 1 if a guarantee was broken, or a seed timed out or crashed.
    """
    scenario = scenario_of(engine, order, mode, partitions, judge)
    request = SimulateRequest(
        scenario=scenario,
        seeds=seeds_of(None, seeds),
        nodes=nodes_of(nodes),
        jobs=1,
        broken=broken_of(broken, scenario),
        trace=None,
        groups=groups,
    )
    if broken in GROUP_DEFECTS and not groups:
        raise wrong("--broken", repr(broken), "this is a defect of process groups, so give --groups too")
    limits = _limits(timeout, keep_traces)
    directory = local_directory("--table", table)
    try:
        swept = _carry_out_sweep(request, limits, directory, master, ui)
    except KeyboardInterrupt:
        complain("sweep", "interrupted; seeds that have a row keep it, and the same command goes on with the others")
        raise typer.Exit(INTERRUPTED) from None
    except TransisError as error:
        raise unable("sweep", error) from None
    if json:
        print(json_text(request, swept.tally, _more(swept)))
    else:
        _print_sweep(stdout(), request, swept, directory)
    raise typer.Exit(0 if swept.is_fine else PROBLEM)


def _limits(timeout: int, traces_max: int) -> SweepLimits:
    if not 1 <= timeout <= TIMEOUT_MAX:
        raise wrong("--timeout", timeout, f"must be 1 to {TIMEOUT_MAX}")
    if traces_max < 0:
        raise wrong("--keep-traces", traces_max, "must be 0 or more")
    return SweepLimits(timeout, traces_max)


def configuration_of(request: SimulateRequest) -> str:
    """The options that decide a run, as `transis simulate` has them."""
    groups = " --groups" if request.groups else ""
    nodes = "" if request.nodes is None else f" --nodes {request.nodes}"
    broken = f" --broken {request.broken}" if request.broken else ""
    return f"{request.scenario.options}{groups}{nodes}{broken}"


def _carry_out_sweep(request: SimulateRequest, limits: SweepLimits, directory: Path, master: str | None, ui: bool) -> SweepResult:
    try:
        from transis.sim.spark_sweep import SweepTable
    except ImportError as error:
        raise MissingExtra("transis sweep", "spark") from error
    table = SweepTable(directory, build_id(), configuration_of(request))
    swept = SweepResult()
    with table.written_here():
        pending = table.pending(request.seeds, limits.timeout_s)
        if pending:
            _run(request, limits, table, pending, master, ui, swept)
        for row in table.rows(request.seeds):
            _add(request, swept, row)
    swept.tally.wall_s = swept.seconds
    return swept


def _run(
    request: SimulateRequest,
    limits: SweepLimits,
    table: SweepTable,
    pending: list[int],
    master: str | None,
    ui: bool,
    swept: SweepResult,
) -> None:
    from transis.spark.progress import require_spark

    require_spark()
    from transis.sim.spark_sweep import Order as TaskOrder
    from transis.sim.spark_sweep import run_pending
    from transis.spark.cluster import Executors
    from transis.spark.session import spark_session, ui_address

    job = SeedJob(0, request.nodes, request.broken, digests=True, groups=request.groups, scenario=request.scenario)
    order = TaskOrder(table.configuration, job, limits.timeout_s)
    started = perf_counter()
    with spark_session(master, ui=ui, app="transis sweep") as spark:
        if ui:
            say(Console(stderr=True), f"Spark's own page: {ui_address(spark)}")
        with seed_bar("sweeping", len(request.seeds), len(request.seeds) - len(pending)) as advance:
            counts = Counter[str]()

            def show(row: SeedRow) -> None:
                counts["ended"] += row.ran is None
                counts["failing"] += row.ran is not None and bool(row.ran.broken)
                advance(f"{counts['failing']} failing, {counts['ended']} timed out or crashed")

            run_pending(Executors(spark), order, table, pending, limits.traces_max, show)
    swept.ran_now = len(pending)
    swept.seconds = perf_counter() - started


def _add(request: SimulateRequest, swept: SweepResult, row: SeedRow) -> None:
    if row.ran is None:
        swept.without_verdict.append(row)
        return
    swept.tally.summary.add(row.ran)
    note_failure(swept.tally, request, row.ran)


def _more(swept: SweepResult) -> dict[str, Any]:
    """What the JSON of a sweep adds to that of `transis simulate`; the speed is that of the seeds that this call ran."""
    return {
        "build": build_id(),
        "ran_now": swept.ran_now,
        "runs_per_minute": round(swept.runs_per_minute, 1),
        "timed_out": swept.seeds_that(TIMED_OUT),
        "crashed": swept.seeds_that(CRASHED),
    }


def _print_sweep(out: Console, request: SimulateRequest, swept: SweepResult, directory: Path) -> None:
    print_tables(out, request, swept.tally)
    say(out, sums(swept.tally))
    if swept.ran_now:
        speed = f"{swept.ran_now:,} seeds in {swept.seconds:,.1f} s, {swept.runs_per_minute:,.0f} a minute"
        say(out, f"{speed}; of the others the table had rows" if swept.ran_now < len(request.seeds) else speed)
    else:
        say(out, "Nothing was left to run: all of this was in the table")
    say(out, f"Build {build_id()}, {configuration_of(request)}; the table: {directory}")
    for row in swept.without_verdict[:SEEDS_SHOWN_MAX]:
        say(out, f"seed {row.seed} {row.outcome}: {row.explanation}\nreplay: {row.replay}", "red")
    if len(swept.without_verdict) > SEEDS_SHOWN_MAX:
        say(out, f"and {len(swept.without_verdict) - SEEDS_SHOWN_MAX:,} more seeds without a verdict", "red")
    if swept.tally.summary.runs:
        print_failures(out, swept.tally)
    if swept.tally.failures:
        say(out, f"Traces of failed seeds: {directory / 'failed'}")
