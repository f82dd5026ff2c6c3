"""`transis demo`: five nodes through a crash, a partition, a merge and a restart, explained, judged and drawn.

Real daemons play the story (real_demo.py), or simulated nodes in virtual time: no network, no privileges, the same every time. A
step is a paragraph for a person and what happens to the cluster.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import typer
from rich.console import Console

from transis.audit.draw.spacetime import write_diagram
from transis.audit.guarantees.property import Findings, Verdict
from transis.cli.local_cluster import ClusterDirectory, ClusterError
from transis.cli.options import PROBLEM, UNABLE, EngineOption, complain, one_of, picture_file, say, stdout, trace_directory, wrong
from transis.sim.cluster import SimulatedCluster
from transis.sim.picture import picture_of
from transis.sim.plan import Plan, agreement_us, with_setting
from transis.sim.real_demo import DemoResult, drawn, play_real
from transis.sim.words import print_outcome, print_step, print_summary, witness_lines
from transis.trace.events import History
from transis.trace.reader import Finding
from transis.types.config import ENGINES, MS
from transis.types.errors import MissingExtra, TransisError
from transis.types.ids import Service

# --- story ------------------------------------------------------------------------------------------------------------

NAMES: Final = ("a", "b", "c", "d", "e")
SEED: Final = 5
PACE_US: Final = 4 * MS
"""Between two rounds of messages."""


class DemoStep(NamedTuple):
    heading: str
    paragraph: str
    act: Callable[[SimulatedCluster], None]


def plan(engine: str = "totem") -> Plan:
    return with_setting(Plan(SEED, NAMES), "config.engine", engine)


def _talk(cluster: SimulatedCluster, names: str, rounds: int, service: Service = Service.AGREED) -> None:
    """Everybody named sends a message in each round, and a little time passes."""
    for _ in range(rounds):
        for name in names:
            cluster.submit(name, service)
        cluster.run(PACE_US)


def _start(cluster: SimulatedCluster) -> None:
    cluster.settle()


def _send(cluster: SimulatedCluster) -> None:
    _talk(cluster, "abcde", 2)
    _talk(cluster, "bd", 2, Service.SAFE)
    cluster.settle()


def _crash(cluster: SimulatedCluster) -> None:
    """The crash comes while messages are under way: some of c's last ones may have reached nobody."""
    for name in "abcde":
        cluster.submit(name, Service.SAFE, 2)
    cluster.run(1 * MS)
    cluster.crash("c")
    _talk(cluster, "ae", 1)
    cluster.settle()


def _partition(cluster: SimulatedCluster) -> None:
    """Both sides are left alone until each has its own view; only then do they talk."""
    for name in "abde":
        cluster.submit(name, Service.SAFE)
    cluster.run(1 * MS)
    cluster.partition("ab", "de")
    cluster.run(_until_apart_us(cluster))
    _talk(cluster, "abde", 2)
    cluster.run(20 * MS)


def _until_apart_us(cluster: SimulatedCluster) -> int:
    """Long enough to miss the others, to agree on who is left, and to recover."""
    config = cluster.plan.config
    return 2 * (config.detection_us + agreement_us(config))


def _merge(cluster: SimulatedCluster) -> None:
    cluster.heal()
    cluster.settle()
    _talk(cluster, "abde", 1)
    cluster.settle()


def _restart(cluster: SimulatedCluster) -> None:
    cluster.restart("c")
    cluster.settle()
    _talk(cluster, "abcde", 1)
    _talk(cluster, "c", 1, Service.SAFE)
    cluster.settle()


STEPS: Final = (
    DemoStep(
        "Five nodes start",
        "Each node starts alone, in a view of one (R0). They hear each other's beacons, agree on who is there, and "
        "install one view of five. A view is a list of members that all of them agree on.",
        _start,
    ),
    DemoStep(
        "Everybody sends",
        "All five send agreed messages at the same time; b and d also send safe ones, which are delivered only when every "
        "member is known to have them. Everybody delivers the same messages in the same order.",
        _send,
    ),
    DemoStep(
        "c crashes",
        "c dies in the middle of traffic. The others notice its silence, agree who is left, and recover what any of them "
        "has of the old view. A transitional view (T) tells them: what you deliver in it is certain only among these. Then "
        "a new regular view of four begins.",
        _crash,
    ),
    DemoStep(
        "The network splits: a and b here, d and e there",
        "Neither side can know whether the other died. Both go on, each in a view of two, each with its own order. "
        "Messages sent now are delivered only on the side where they were sent. A safe message under way when the net split may "
        "be delivered in the old view on one side and in the transitional view on the other: that side could not confirm it.",
        _partition,
    ),
    DemoStep(
        "The network heals: the two sides merge",
        "The sides hear each other's beacons and form one view again. Each member says from which view it comes, so an "
        "application knows with whom it shares its past and with whom it must exchange state.",
        _merge,
    ),
    DemoStep(
        "c comes back",
        "c starts again from its disk. It is a new incarnation, c/2: nothing it said in its first life can be mistaken for "
        "what it says now. It starts alone, is heard, and joins.",
        _restart,
    ),
)


# --- simulated demo ---------------------------------------------------------------------------------------------------


def play_simulated(console: Console | None, engine: str) -> SimulatedCluster:
    """Without a console nothing is printed."""
    if console is not None:
        console.print(f"Transis: five simulated nodes, ordered by {engine}, in virtual time.", style="bold")
    cluster = SimulatedCluster(plan(engine))
    for number, step in enumerate(STEPS, 1):
        _play(console, cluster, number, step)
    return cluster


def _play(console: Console | None, cluster: SimulatedCluster, number: int, step: DemoStep) -> None:
    since_us = cluster.world.now
    step.act(cluster)
    if console is not None:
        print_step(console, number, step.heading, step.paragraph, (since_us, cluster.world.now))
        print_outcome(console, cluster.history(), since_us)


def verdicts_of(cluster: SimulatedCluster) -> list[Verdict]:
    """The checkers' verdicts, and what the harness itself saw: no node raised, every byte arrived as it was sent."""
    integrity, no_crash = Findings("integrity"), Findings("no_crash")
    integrity.checked, no_crash.checked = cluster.world.verified, cluster.world.turns
    for mishap in cluster.world.mishaps:
        (integrity if mishap.property == "integrity" else no_crash).broken(mishap.explanation)
    return [*cluster.check().verdicts.values(), integrity.verdict(), no_crash.verdict()]


# --- demo -------------------------------------------------------------------------------------------------------------

DEMO_EXAMPLES = """Examples:
  transis demo [dim]# five real daemons, about ten seconds; then the audit of their traces on Spark, about a minute[/dim]
  transis demo --no-audit [dim]# without the audit, for people in a hurry[/dim]
  transis demo --out story.svg
  transis demo --dir /tmp/demo [dim]# keep traces, logs and settings[/dim]
  transis demo --simulated [dim]# the same every time, in virtual time[/dim]
  transis demo --engine lansis --no-audit [dim]# ordered by acknowledgements, without a token[/dim]
"""

DEFAULT_FILE: Final = Path("transis-demo.html")


def demo(
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help=f"Where to draw the run: FILE.html or FILE.svg; by default {DEFAULT_FILE}, with --json nowhere.",
        ),
    ] = None,
    simulated: Annotated[bool, typer.Option("--simulated", help="Five simulated nodes instead, in virtual time.")] = False,
    engine: EngineOption = ENGINES[0],
    directory: Annotated[
        Path | None,
        typer.Option("--dir", metavar="DIR", help="Keep traces, logs and settings here (a new directory)."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else, without the audit.")] = False,
    with_audit: Annotated[
        bool, typer.Option("--audit/--no-audit", help="Audit the traces on Spark, too, and write a report beside the picture.")
    ] = True,
) -> None:
    """Take five daemons on this machine through kill -9, a partition, a heal and a restart, and check every guarantee.

    They run on loopback, without privileges, and record what they do; the verdict comes from those records. Exit code 1 if a
    guarantee was broken.
    """
    file = picture_file(out if out is not None or as_json else DEFAULT_FILE, "--out")
    one_of("--engine", engine, ENGINES)
    place = trace_directory(directory, "--dir")
    if simulated and place is not None:
        raise wrong("--dir", repr(str(place)), "simulated nodes keep no files, so omit --simulated")
    console = None if as_json else stdout()
    try:
        broken = _simulated(console, file, engine) if simulated else _real(console, file, engine, place, with_audit)
    except (TransisError, OSError) as error:
        complain("demo", error)
        raise typer.Exit(UNABLE) from None
    raise typer.Exit(PROBLEM if broken else 0)


def _simulated(console: Console | None, file: Path | None, engine: str) -> bool:
    cluster = play_simulated(console, engine)
    verdicts, history, log = verdicts_of(cluster), cluster.history(), cluster.world.log
    facts = f"a crash, a partition, a merge and a restart · {_verdict(verdicts)}"
    if file is not None:
        write_diagram(file, picture_of(history, log, f"Transis demo: five simulated nodes, ordered by {engine}", (facts,)))
    if console is None:
        print(_written(cluster.world.now / 1e6, verdicts, log, (), file))
    else:
        print_summary(console, history, verdicts)
        _print_end(console, file, history, verdicts)
    return _is_broken(verdicts)


def _real(console: Console | None, file: Path | None, engine: str, directory: Path | None, with_audit: bool) -> bool:
    place = ClusterDirectory(directory)
    try:
        result = _played(console, place, engine)
        if file is not None:
            _draw(file, engine, result)
        broken = _is_broken(result.verdicts)
        if console is None:
            print(_written(result.seconds, result.verdicts, result.log, result.findings, file))
        else:
            _print_result(console, file, result)
            if with_audit and file is not None:
                broken = _audited(console, place.path, report_file(file)) or broken
    except (KeyboardInterrupt, typer.Exit):  # Ctrl-C, or no audit: nobody needs the traces.
        place.leave(keep=False)
        raise
    place.leave(keep=broken)
    if console is not None and (broken or directory is not None):
        say(console, f"Traces, logs and settings: {place.path}")
    return broken


def _draw(file: Path, engine: str, result: DemoResult) -> None:
    facts = f"kill -9, a partition, a heal and a restart on real sockets · {result.seconds:.1f} s · {_verdict(result.verdicts)}"
    title = f"Transis demo: five daemons, ordered by {engine}"
    write_diagram(file, picture_of(drawn(result.history), result.log, title, (facts,), result.report.violations))


def _print_result(console: Console, file: Path | None, result: DemoResult) -> None:
    print_summary(console, result.history, result.verdicts, [result.clients])
    for finding in result.findings:
        say(console, f"About the traces: {finding.file}: {finding.what}: {finding.detail}", "yellow")
    _print_end(console, file, result.history, result.verdicts)


def report_file(picture: Path) -> Path:
    """The report goes beside the picture and is named after it."""
    return picture.with_name(f"{picture.stem}-report.html")


def _audited(console: Console, traces: Path, file: Path) -> bool:
    """Audit the same traces a second time, on Spark; True if a guarantee was broken."""
    try:
        from transis.spark.progress import require_spark

        require_spark()
    except MissingExtra as error:
        say(console, f"No audit and no report of it: {error}", "yellow")
        return False
    from transis.audit.cli import judged
    from transis.audit.job import BAD, exit_code
    from transis.audit.words import print_audit

    console.print()
    say(console, "Now the audit on Spark: the same traces, judged a second time by code that no daemon runs.", "bold")
    content = judged("demo", (str(traces),), store=None, master=None, ui=False, report=file)
    print_audit(console, content)
    say(console, f"The report, with timeline, latencies and incidents: {file} (open it in a browser).")
    return exit_code(content) == BAD


def _played(console: Console | None, place: ClusterDirectory, engine: str) -> DemoResult:
    try:
        return asyncio.run(play_real(console, place.path, engine))
    except TransisError as error:
        raise ClusterError(f"{error}; logs and traces stay in {place.path}") from error


def _print_end(console: Console, file: Path | None, history: History, verdicts: Sequence[Verdict]) -> None:
    """Print the verdict in a sentence, with the events that show it if a guarantee was broken."""
    broken = [violation for verdict in verdicts for violation in verdict.violations]
    console.print()
    say(console, _verdict(verdicts).capitalize() + ".", "bold red" if broken else "bold green")
    for line in witness_lines(history, broken):
        say(console, line)
    if file is not None:
        say(console, f"The whole run as a space-time diagram: {file} (open it in a browser).")


def _is_broken(verdicts: Sequence[Verdict]) -> bool:
    return any(verdict.count for verdict in verdicts)


def _verdict(verdicts: Sequence[Verdict]) -> str:
    broken = [verdict.property for verdict in verdicts if verdict.count]
    return f"broken: {', '.join(broken)}" if broken else "every guarantee that was exercised held"


def _written(
    seconds: float, verdicts: Sequence[Verdict], log: Sequence[tuple[int, str]], findings: Sequence[Finding], file: Path | None
) -> str:
    """The run as JSON, with the same keys for simulated and real nodes; the picture's file is named if there is one."""
    result = {
        "seconds": round(seconds, 3),
        "broken": [verdict.property for verdict in verdicts if verdict.count],
        "done": [{"at_s": round(time_us / 1e6, 3), "what": what} for time_us, what in log],
        "verdicts": {
            verdict.property: {"verdict": verdict.verdict, "checked": verdict.checked, "violations": verdict.count}
            for verdict in verdicts
        },
        "explanations": [f"{one.property}: {one.explanation}" for verdict in verdicts for one in verdict.violations],
        "findings": [finding._asdict() for finding in findings],
        **({} if file is None else {"drawing": str(file)}),
    }
    return json.dumps(result, indent=2, ensure_ascii=False)
