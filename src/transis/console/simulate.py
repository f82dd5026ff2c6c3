"""`transis simulate`: clusters that crash, partition and merge, and whether a single guarantee was broken."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from transis.cli.admin import INTERRUPTED, unable
from transis.cli.options import complain, complete_engine, counted, nodes_of, picture_file, trace_directory, wrong
from transis.console.as_json import written
from transis.console.diagram.file import write_diagram
from transis.console.diagram.picture import Picture, picture_of
from transis.console.runs import Tally, Wish, run, trace_of
from transis.console.sim_options import (
    broken_of,
    complete_broken,
    complete_judge,
    complete_mode,
    complete_order,
    jobs_of,
    seeds_of,
    tried_of,
)
from transis.console.tables import coverage_tables, fault_line, say, stdout, verdict_table
from transis.console.words import witness_lines
from transis.sim.broken import GROUP_DEFECTS
from transis.sim.plan import plan_text
from transis.sim.promises import beyond_promise
from transis.sim.run import Outcome
from transis.sim.run import simulate as simulate_plan
from transis.sim.shrink import Shrunk
from transis.sim.shrink import shrink as shrink_plan
from transis.sim.swarm import draw, draw_groups
from transis.sim.tried import TOTEM
from transis.types.errors import TransisError

SIMULATE_EXAMPLES = """Examples:

transis simulate --seed 7 [dim]# one run, told in full[/dim]

transis simulate --seed 7 --show run.html [dim]# the same run, drawn[/dim]

transis simulate --seeds 0:2000 --jobs 2 [dim]# seeds 0 to 1999[/dim]

transis simulate --seeds 0:500 --json > out.json

transis simulate --groups --seeds 0:300 [dim]# client processes that join, leave and send[/dim]

transis simulate --groups --nodes 128 --seed 1

transis simulate --engine lansis --seeds 0:2000

transis simulate --engine lansis --order toto --no-partitions --seeds 0:500

transis simulate --engine lansis --order toto --judge evs --seed 74 [dim]# why toto is not evs[/dim]

transis simulate --seeds 0:200 --broken safe_one_rotation_early --shrink
"""

FAILURES_SHOWN_MAX: Final = 3
"""Failing seeds that are explained in full; each of the others has its replay line."""

VIOLATED: Final = 1

Engine = Annotated[str, typer.Option(help="Ordering engine: totem or lansis.", autocompletion=complete_engine)]
Order = Annotated[str, typer.Option(help="How lansis orders: all-ack or toto.", autocompletion=complete_order)]
Mode = Annotated[str, typer.Option(help="What lansis promises: evs or transis.", autocompletion=complete_mode)]
Partitions = Annotated[
    bool,
    typer.Option(
        " /--no-partitions", show_default=False, help="Let nodes crash, but cut no living node off: toto then promises one order."
    ),
]

Judge = Annotated[
    str,
    typer.Option(
        help="Hold runs to what is promised, or to evs: finds runs in which toto has two orders.",
        autocompletion=complete_judge,
    ),
]


def simulate(
    engine: Engine = TOTEM.engine,
    order: Order = TOTEM.order,
    mode: Mode = TOTEM.mode,
    partitions: Partitions = True,
    judge: Judge = TOTEM.judge,
    groups: Annotated[
        bool, typer.Option("--groups", help="Nodes with process groups: client processes join, leave, go and send.")
    ] = False,
    nodes: Annotated[int | None, typer.Option(help="How many nodes; otherwise each seed draws it.")] = None,
    seed: Annotated[int | None, typer.Option(help="Run one seed (0 if neither --seed nor --seeds is given).")] = None,
    seeds: Annotated[str | None, typer.Option(metavar="A:B", help="Run the seeds A to B-1.")] = None,
    jobs: Annotated[int | None, typer.Option(help="Processes for many seeds; one per processor if not given.")] = None,
    trace: Annotated[Path | None, typer.Option(metavar="DIR", help="Write the trace of each run to DIR/seed-N.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
    show: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw a single run as a space-time diagram: FILE.html or FILE.svg.")
    ] = None,
    broken: Annotated[
        str,
        typer.Option(help="Run an engine with a deliberate defect; `--broken list` names them.", autocompletion=complete_broken),
    ] = "",
    shrink: Annotated[
        bool, typer.Option("--shrink", help="Make the first failing run small and print it as a script; --show then draws it.")
    ] = False,
) -> None:
    """Simulate clusters under faults and check every guarantee.

    A seed draws a cluster, its traffic, its network and its faults; the same seed is always the same run. With --groups it also
    draws client processes, on the same cluster under the same faults, and what groups promise them is checked as well.

    The verdict comes with how wild the weather was: faults that struck, states and events reached and never reached.
    """
    tried = tried_of(engine, order, mode, partitions, judge)
    wish = Wish(
        tried=tried,
        seeds=seeds_of(seed, seeds),
        nodes=nodes_of(nodes),
        jobs=jobs_of(jobs),
        broken=broken_of(broken, tried),
        trace=trace_directory(trace),
        groups=groups,
    )
    if broken in GROUP_DEFECTS and not groups:
        raise wrong("--broken", repr(broken), "this defect is one of the groups, so give --groups too")
    file = picture_file(show, "--show")
    if file is not None and not wish.is_single:
        raise wrong("--show", repr(str(file)), "it draws a single run, so give --seed instead of --seeds")
    try:
        failed = _carry_out_simulate(wish, file, json, shrink)
    except (OSError, TransisError) as error:
        raise unable("simulate", error) from None
    raise typer.Exit(VIOLATED if failed else 0)


def _carry_out_simulate(wish: Wish, file: Path | None, json: bool, want_small: bool) -> bool:
    """Run, tell, draw; True if a guarantee was broken."""
    tally = run(wish)
    was_interrupted = tally.summary.runs < len(wish.seeds)
    small = _shrunk(wish, tally) if want_small and not was_interrupted else None
    if file is not None:
        write_diagram(file, _picture(wish, tally, small))
    if json:
        print(written(wish, tally, {"shrunk": small.script()} if small is not None else {}))
    else:
        _print_simulate(stdout(), wish, tally, small, file)
    if was_interrupted:
        complain("simulate", f"interrupted: this is what {tally.summary.runs:,} of {len(wish.seeds):,} seeds showed")
        raise typer.Exit(INTERRUPTED)
    return bool(tally.failures)


def _shrunk(wish: Wish, tally: Tally) -> Shrunk | None:
    if not tally.failures:
        return None
    drawn = draw_groups if wish.groups else draw
    return shrink_plan(drawn(tally.failures[0].seed, wish.nodes, wish.tried), wish.broken)


def _picture(wish: Wish, tally: Tally, small: Shrunk | None) -> Picture:
    outcome = tally.outcome if small is None else simulate_plan(small.plan.seed, small.plan, wish.broken)
    assert outcome is not None, "a single run keeps its outcome"
    what = f"seed {outcome.seed}" + (", made small" if small is not None else "")
    verdict = f"broken: {', '.join(outcome.report.broken)}" if outcome.report.broken else "every guarantee held"
    counts = f"{len(outcome.plan.names)} nodes, {outcome.views:,} view installations, {outcome.deliveries:,} deliveries"
    facts = (f"{counts}, {outcome.virtual_us / 1e6:.2f} s of virtual time · {verdict}",)
    return picture_of(outcome.history, outcome.log, f"Transis, {wish.engine} engine, {what}", facts, outcome.violations)


def _print_simulate(out: Console, wish: Wish, tally: Tally, small: Shrunk | None, file: Path | None) -> None:
    if tally.outcome is not None:
        _tell_plan(out, tally.outcome)
    tell_tables(out, wish, tally)
    say(out, _totals(wish, tally))
    tell_failures(out, tally)
    if small is not None:
        say(out, f"\nMade small in {small.runs} runs; as a script for tests/scripts:\n")
        say(out, small.script())
    if file is not None:
        say(out, f"Drawn: {file}")
    if wish.trace is not None:
        where = trace_of(wish.trace, wish.seeds[0]) if wish.is_single else f"{wish.trace}, a directory per seed"
        say(out, f"Traces: {where}")


def tell_tables(out: Console, wish: Wish, tally: Tally) -> None:
    """Verdicts, faults, and what was reached."""
    out.print(verdict_table(tally.summary.properties))
    out.print()
    say(out, fault_line(tally.summary.faults))
    out.print()
    out.print(coverage_tables(tally.summary.coverage, tally.summary.runs, wish.engine))
    out.print()


def _tell_plan(out: Console, outcome: Outcome) -> None:
    """The plan and the budgets of a single run: what its seed drew."""
    plan = outcome.plan
    say(out, f"Plan of seed {plan.seed}", "bold")
    say(out, plan_text(plan))
    say(out, f"\nEvent budget: {plan.turns_max:,} turns of nodes under faults; {outcome.turns:,} turns were taken in all.")
    used = "it did not come to rest" if outcome.settled_us is None else f"{outcome.settled_us / 1e6:.3f} s were needed"
    say(out, f"Liveness budget: {outcome.budget_us / 1e6:.3f} s of virtual time after the last fault; {used}.\n")


def _totals(wish: Wish, tally: Tally) -> str:
    summary = tally.summary
    lines = [
        sums(tally),
        f"{summary.virtual_us / 1e6:,.1f} s of virtual time in {tally.wall_s:,.1f} s, {tally.runs_per_minute:,.0f} runs a minute",
    ]
    if not wish.tried.partitions:
        notes = summary.coverage.notes
        lines.append(", ".join(f"{what}: {notes[what]:,}" for what in ("parted without a partition", "died ahead of the others")))
    if wish.broken:
        lines.append(f"The engine was broken on purpose: {wish.broken}")
    return "\n".join(lines)


def sums(tally: Tally) -> str:
    summary = tally.summary
    runs, violations = counted(summary.runs, "run"), counted(summary.violations, "violation")
    views, deliveries = counted(summary.views, "view installation"), counted(summary.deliveries, "delivery", "deliveries")
    return f"{runs}, {violations}, {views}, {deliveries}"


def tell_failures(out: Console, tally: Tally) -> None:
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
