"""`transis demo`: a story played, told, judged and drawn; by real daemons, or in the simulator."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from transis.cli.local_cluster import ClusterError, Workplace
from transis.cli.options import complain, complete_engine, one_of, picture_file, say, stdout, trace_directory, wrong
from transis.console.diagram.file import write_diagram
from transis.console.diagram.picture import picture_of
from transis.console.real_demo import Played, drawn, play_real
from transis.console.simulated_demo import play_simulated, verdicts_of
from transis.console.telling import sum_up
from transis.console.words import witness_lines
from transis.sim.checkers.verdict import Verdict
from transis.trace.events import History
from transis.trace.reader import Finding
from transis.types.config import ENGINES
from transis.types.errors import MissingExtra, TransisError

DEMO_EXAMPLES = """Examples:

transis demo [dim]# five real daemons, about ten seconds; then the audit of their traces on Spark, about a minute[/dim]

transis demo --no-audit [dim]# without it, for people in a hurry[/dim]

transis demo --out story.svg

transis demo --dir /tmp/demo [dim]# keep traces, logs and settings[/dim]

transis demo --simulated [dim]# the same every time, in virtual time[/dim]

transis demo --engine lansis --no-audit [dim]# ordered by acknowledgements, without a token[/dim]
"""

DEFAULT_FILE: Final = Path("transis-demo.html")
VIOLATED: Final = 1
UNABLE: Final = 2


def demo(
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Where to draw the run: FILE.html or FILE.svg; with --json, drawn only if given.",
            show_default=str(DEFAULT_FILE),
        ),
    ] = None,
    simulated: Annotated[bool, typer.Option("--simulated", help="Five simulated nodes instead, in virtual time.")] = False,
    engine: Annotated[str, typer.Option(autocompletion=complete_engine, help=f"Who orders: {', '.join(ENGINES)}.")] = ENGINES[0],
    directory: Annotated[
        Path | None,
        typer.Option("--dir", metavar="DIR", help="Keep traces, logs and settings here (a new directory)."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else, without the audit.")] = False,
    with_audit: Annotated[
        bool, typer.Option("--audit/--no-audit", help="Audit the traces on Spark, too, and write a report beside the picture.")
    ] = True,
) -> None:
    """Take five daemons on this machine through kill -9, a partition, a heal and a restart, and tell whether all guarantees held.

    They run on loopback, without privileges, and record what they do; the verdict is made from those records. Exit code 1 if
    a guarantee was broken.
    """
    file = picture_file(out if out is not None or as_json else DEFAULT_FILE, "--out")
    one_of("--engine", engine, ENGINES)
    place = trace_directory(directory, "--dir")
    if simulated and place is not None:
        raise wrong("--dir", repr(str(place)), "simulated nodes keep no files, so leave out --simulated")
    console = None if as_json else stdout()
    try:
        broken = _simulated(console, file, engine) if simulated else _real(console, file, engine, place, with_audit)
    except (TransisError, OSError) as error:
        complain("demo", error)
        raise typer.Exit(UNABLE) from None
    raise typer.Exit(VIOLATED if broken else 0)


def _simulated(console: Console | None, file: Path | None, engine: str) -> bool:
    cluster = play_simulated(console, engine)
    verdicts, history, log = verdicts_of(cluster), cluster.history(), cluster.world.log
    facts = f"a crash, a partition, a merge and a restart · {_verdict(verdicts)}"
    if file is not None:
        write_diagram(file, picture_of(history, log, f"Transis demo: five simulated nodes, ordered by {engine}", (facts,)))
    if console is None:
        print(_written(cluster.world.now / 1e6, verdicts, log, (), file))
    else:
        sum_up(console, history, verdicts)
        _tell_end(console, file, history, verdicts)
    return _is_broken(verdicts)


def _real(console: Console | None, file: Path | None, engine: str, directory: Path | None, with_audit: bool) -> bool:
    place = Workplace(directory)
    try:
        played = _played(console, place, engine)
        if file is not None:
            _draw(file, engine, played)
        broken = _is_broken(played.verdicts)
        if console is None:
            print(_written(played.seconds, played.verdicts, played.log, played.findings, file))
        else:
            _tell(console, file, played)
            if with_audit and file is not None:
                broken = _audited(console, place.path, report_file(file)) or broken
    except (KeyboardInterrupt, typer.Exit):  # Ctrl-C, or no audit: nobody was told to look into it.
        place.leave(keep=False)
        raise
    place.leave(keep=broken)
    if console is not None and (broken or directory is not None):
        say(console, f"Traces, logs and settings: {place.path}")
    return broken


def _draw(file: Path, engine: str, played: Played) -> None:
    facts = f"kill -9, a partition, a heal and a restart on real sockets · {played.seconds:.1f} s · {_verdict(played.verdicts)}"
    title = f"Transis demo: five daemons, ordered by {engine}"
    write_diagram(file, picture_of(drawn(played.history), played.log, title, (facts,), played.report.violations))


def _tell(console: Console, file: Path | None, played: Played) -> None:
    sum_up(console, played.history, played.verdicts, [played.clients])
    for finding in played.findings:
        say(console, f"About the traces: {finding.file}: {finding.what}: {finding.detail}", "yellow")
    _tell_end(console, file, played.history, played.verdicts)


def report_file(picture: Path) -> Path:
    """Beside the picture, whatever that is called."""
    return picture.with_name(f"{picture.stem}-report.html")


def _audited(console: Console, traces: Path, file: Path) -> bool:
    """The same traces judged a second time, by the pipeline on Spark; True if it says that a guarantee was broken."""
    try:
        from transis.pipeline.failures import require_spark

        require_spark()
    except MissingExtra as error:
        say(console, f"No audit and no report of it: {error}", "yellow")
        return False
    from transis.console.audit import judged
    from transis.console.audit_words import tell_audit
    from transis.pipeline.jobs import BAD, exit_code

    console.print()
    say(console, "Now the audit on Spark: the same traces, judged a second time by code that no daemon runs.", "bold")
    content = judged("demo", (str(traces),), store=None, master=None, ui=False, report=file)
    tell_audit(console, content)
    say(console, f"The report, with timeline, latencies and incidents: {file} (open it in a browser).")
    return exit_code(content) == BAD


def _played(console: Console | None, place: Workplace, engine: str) -> Played:
    try:
        return asyncio.run(play_real(console, place.path, engine))
    except TransisError as error:
        raise ClusterError(f"{error}; logs and traces stay in {place.path}") from error


def _tell_end(console: Console, file: Path | None, history: History, verdicts: Sequence[Verdict]) -> None:
    """The verdict in a sentence, with what shows it if it is bad."""
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
    """The same of a simulated and of a real run, but for the file if there is one."""
    told = {
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
    return json.dumps(told, indent=2, ensure_ascii=False)
