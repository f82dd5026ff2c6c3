"""`transis demo`: a story played, told, judged and drawn; by real daemons, or in the simulator."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console

from transis.console import arguments
from transis.console.diagram.file import write_diagram
from transis.console.diagram.picture import picture_of
from transis.console.localcluster import ClusterError
from transis.console.printing import complain, say, stdout
from transis.console.real_demo import Played, drawn, play_real
from transis.console.simulated_demo import play_simulated, verdicts_of
from transis.console.telling import sum_up
from transis.console.words import witness_lines
from transis.console.workplace import Workplace
from transis.model.config import ENGINES
from transis.model.errors import MissingExtra, TransisError
from transis.sim.checkers.verdict import Verdict
from transis.trace.events import History

EXAMPLES = """Examples:

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
    out: Annotated[Path, typer.Option(metavar="FILE", help="Where to draw the run: FILE.html or FILE.svg.")] = DEFAULT_FILE,
    simulated: Annotated[bool, typer.Option("--simulated", help="Five simulated nodes instead, in virtual time.")] = False,
    engine: Annotated[
        str, typer.Option(autocompletion=arguments.complete_engine, help=f"Who orders: {', '.join(ENGINES)}.")
    ] = ENGINES[0],
    directory: Annotated[
        Path | None,
        typer.Option("--dir", metavar="DIR", help="Keep traces, logs and settings here (a new directory)."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object and nothing else; for real daemons, without the audit.")
    ] = False,
    with_audit: Annotated[
        bool, typer.Option("--audit/--no-audit", help="Audit the traces on Spark, too, and write a report beside the picture.")
    ] = True,
) -> None:
    """Take five daemons on this machine through kill -9, a partition, a heal and a restart, and tell whether all guarantees held.

    They run on loopback, without privileges, and record what they do; the verdict is made from those records. Exit code 1 if
    a guarantee was broken.
    """
    file = arguments.picture_file(out, "--out")
    assert file is not None
    arguments.one_of("--engine", engine, ENGINES)
    place = arguments.trace_directory(directory, "--dir")
    try:
        broken = _simulated(file, engine) if simulated else _real(file, engine, place, as_json, with_audit)
    except (TransisError, OSError) as error:
        complain("demo", error)
        raise typer.Exit(UNABLE) from None
    raise typer.Exit(VIOLATED if broken else 0)


def _simulated(file: Path, engine: str) -> bool:
    console = stdout()
    cluster = play_simulated(console, engine)
    verdicts, history = verdicts_of(cluster), cluster.history()
    sum_up(console, history, verdicts)
    facts = f"a crash, a partition, a merge and a restart · {_verdict(verdicts)}"
    write_diagram(file, picture_of(history, cluster.world.log, "Transis demo: five simulated nodes", (facts,)))
    return _tell_end(console, file, history, verdicts)


def _real(file: Path, engine: str, directory: Path | None, as_json: bool, with_audit: bool) -> bool:
    console = None if as_json else stdout()
    place = Workplace(directory)
    played = _played(console, place, engine)
    broken = any(verdict.count for verdict in played.verdicts)
    if console is None:
        place.leave(keep=broken)
        print(json.dumps(_object(played), indent=2, ensure_ascii=False))
        return broken
    sum_up(console, played.history, played.verdicts, [played.clients])
    facts = f"kill -9, a partition, a heal and a restart on real sockets · {played.seconds:.1f} s · {_verdict(played.verdicts)}"
    picture = picture_of(drawn(played.history), played.log, "Transis demo: five daemons", (facts,), played.report.violations)
    write_diagram(file, picture)
    for finding in played.findings:
        say(console, f"About the traces: {finding.file}: {finding.what}: {finding.detail}", "yellow")
    _tell_end(console, file, played.history, played.verdicts)
    if with_audit:
        broken = _audited(console, place.path, report_file(file)) or broken
    place.leave(keep=broken)
    if broken or directory is not None:
        say(console, f"Traces, logs and settings: {place.path}")
    return broken


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
    except KeyboardInterrupt:
        place.leave(keep=False)
        raise typer.Abort from None
    except TransisError as error:
        raise ClusterError(f"{error}; logs and traces stay in {place.path}") from error


def _tell_end(console: Console, file: Path, history: History, verdicts: Sequence[Verdict]) -> bool:
    """The verdict in a sentence, with what shows it if it is bad; True if a guarantee was broken."""
    broken = [violation for verdict in verdicts for violation in verdict.violations]
    console.print()
    say(console, _verdict(verdicts).capitalize() + ".", "bold red" if broken else "bold green")
    for line in witness_lines(history, broken):
        say(console, line)
    say(console, f"The whole run as a space-time diagram: {file} (open it in a browser).")
    return bool(broken)


def _verdict(verdicts: Sequence[Verdict]) -> str:
    broken = [verdict.property for verdict in verdicts if verdict.count]
    return f"broken: {', '.join(broken)}" if broken else "every guarantee held"


def _object(played: Played) -> dict[str, Any]:
    verdicts = {
        verdict.property: {"verdict": verdict.verdict, "checked": verdict.checked, "violations": verdict.count}
        for verdict in played.verdicts
    }
    return {
        "seconds": round(played.seconds, 3),
        "broken": [verdict.property for verdict in played.verdicts if verdict.count],
        "done": [{"at_s": round(time_us / 1e6, 3), "what": what} for time_us, what in played.log],
        "verdicts": verdicts,
        "explanations": [f"{one.property}: {one.explanation}" for verdict in played.verdicts for one in verdict.violations],
        "findings": [finding._asdict() for finding in played.findings],
    }
