"""`transis audit`, `report` and `package-job`: whether every guarantee held, read from what nodes recorded.

`audit` judges traces or, with `--follow`, the digests that the nodes of a running cluster seal every few seconds. `report` adds
measures and makes one page of it. `package-job` writes what `spark-submit` needs to run the audit on a cluster.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from json import dumps
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import Console

from transis.audit.guarantees import ALL_MEANINGS
from transis.audit.guarantees.property import BROKEN
from transis.audit.words import COLOURS
from transis.cli.options import local_directory, plain_table, printable, say, stdout, unable, wrong
from transis.spark.cli import MasterOption, UiOption
from transis.types.errors import PipelineError, TransisError

if TYPE_CHECKING:
    from transis.audit.follow.follower import FollowedBatch, Outcome
    from transis.audit.report.content import Content


# --- audit ------------------------------------------------------------------------------------------------------------

AUDIT_EXAMPLES = """Examples:
  transis audit traces/ [dim]# a verdict per guarantee, and every violation with the events that show it[/dim]
  transis audit traces/ --json | jq .properties
  transis audit hdfs://host/traces --store kept/ [dim]# tables stay there; what was read once is not read again[/dim]
  transis audit traces/ --only total_order_6_1 --only safe_7_1 [dim]# only these two, which is quicker[/dim]
  transis audit traces/ --master spark://host:7077
  transis simulate --seeds 0:20 --trace runs && transis audit runs
  transis audit --follow /srv/flight --ledger kept --metrics 127.0.0.1:9478 [dim]# a running cluster[/dim]
"""

Inputs = Annotated[list[str], typer.Argument(metavar="DIR...", help="Directories of traces: local, or any Hadoop path.")]
StoreOption = Annotated[
    str | None, typer.Option("--store", metavar="DIR", help="Keep the tables here, as Parquet, and add to what is there.")
]
OnlyOption = Annotated[
    list[str] | None,
    typer.Option("--only", metavar="NAME", help="Judge only this guarantee, and the evidence; repeatable. Keeps nothing."),
]
FollowOption = Annotated[bool, typer.Option("--follow", help="Compare what nodes report while they run, until Ctrl-C.")]
LedgerOption = Annotated[
    Path | None, typer.Option("--ledger", metavar="DIR", help="With --follow: keep verdicts, violations and evidence here.")
]
EveryOption = Annotated[
    int | None, typer.Option("--every", metavar="SECONDS", help="With --follow: how often to look (default 15).")
]
MetricsOption = Annotated[
    str | None, typer.Option("--metrics", metavar="HOST:PORT", help="With --follow: serve metrics for Prometheus there.")
]
OnceOption = Annotated[bool, typer.Option("--once", help="With --follow: judge what is sealed by now, then end.")]
StrictOption = Annotated[bool, typer.Option("--strict", help="Pending counts as broken: exit code 1.")]


def audit(
    inputs: Inputs,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
    report: Annotated[Path | None, typer.Option("--report", metavar="FILE", help="Write the report to this file, too.")] = None,
    store: StoreOption = None,
    master: MasterOption = None,
    ui: UiOption = False,
    only: OnlyOption = None,
    strict: StrictOption = False,
    follow: FollowOption = False,
    ledger: LedgerOption = None,
    every: EveryOption = None,
    metrics: MetricsOption = None,
    once: OnceOption = False,
) -> None:
    """Judge every guarantee from the traces of a cluster's nodes.

    Exit code 0 if all held (what a live cluster still owes may be pending), 1 if one was broken, 2 if evidence is missing.

    With --follow, name the directories to which nodes write digests: these are compared while the nodes run, until Ctrl-C
    (docs/watching.md). With --once, exit code 2 also means that nothing could be judged.
    """
    if follow or ledger is not None or every is not None or metrics is not None or once:
        apart = {"--store": store, "--report": report, "--only": only, "--strict": strict, "--ui": ui}
        raise typer.Exit(followed(tuple(inputs), follow, ledger, every, metrics, once, master, as_json, apart))
    content = judged("audit", tuple(inputs), store, master, ui, report, tuple(only or ()))
    from transis.audit.job import exit_code

    if as_json:
        from transis.audit.report.collect import json_text

        print(json_text(content))
    else:
        from transis.audit.words import print_audit

        print_audit(stdout(), content)
        if report is not None:
            say(stdout(), f"The report: {report}")
    raise typer.Exit(exit_code(content, strict))


def judged(
    command: str,
    inputs: tuple[str, ...],
    store: str | None,
    master: str | None,
    ui: bool,
    report: Path | None,
    only: tuple[str, ...] = (),
) -> Content:
    """The audit, with measures and the page if a report is wanted. Failures are one sentence and exit code 2."""
    try:
        from transis.spark.progress import require_spark

        require_spark()
        from transis.audit.job import AuditRequest
        from transis.audit.job import audit as audited
        from transis.audit.report.page import write_report
        from transis.spark.progress import StepTimer

        content = audited(AuditRequest(inputs, store, master, ui, measure=report is not None, only=only), StepTimer())
        if report is not None:
            write_report(content, report)
    except TransisError as error:
        raise unable(command, error) from None
    return content


# --- follow -----------------------------------------------------------------------------------------------------------

EVERY_S: Final = 15
EVERY_MAX: Final = 3600
BAD: Final = 1


def followed(
    inputs: tuple[str, ...],
    follow: bool,
    ledger: Path | None,
    every: int | None,
    metrics: str | None,
    once: bool,
    master: str | None,
    as_json: bool,
    apart: Mapping[str, object],
) -> int:
    """The exit code: 1 if anything is broken, now or earlier, 2 if nothing could be judged. `apart` has the options that only an
    audit of traces takes, with their values."""
    every_s = EVERY_S if every is None else every
    _require_fitting(follow, ledger, every_s, apart)
    assert ledger is not None
    endpoint = _endpoint(metrics) if metrics is not None else None
    output = _FollowOutput(as_json)
    try:
        from transis.spark.progress import require_spark

        require_spark()
        from transis.audit.follow.follower import FollowRequest
        from transis.audit.follow.follower import follow as run

        with _ended_by_signals() as (enough, listen):
            outcome = run(FollowRequest(inputs, ledger, every_s, endpoint, once, master), output, enough, listen)
        output.end(outcome, ledger)
        if outcome.lacking is not None and not outcome.is_broken:
            raise PipelineError(outcome.lacking)
    except TransisError as error:
        raise unable("audit", error) from None
    return BAD if outcome.is_broken else 0


def _require_fitting(follow: bool, ledger: Path | None, every: int, apart: Mapping[str, object]) -> None:
    if not follow:
        raise wrong("--ledger, --every, --metrics, --once", "without --follow", "they belong to --follow, so give that too")
    for option, given in apart.items():
        if given:
            raise wrong(option, "with --follow", f"--follow keeps a ledger and judges all that it can, so omit {option}")
    if ledger is None:
        raise wrong("--ledger", "nothing", "--follow needs a directory for what it finds, such as --ledger kept")
    local_directory("--ledger", str(ledger))
    if not 1 <= every <= EVERY_MAX:
        raise wrong("--every", every, f"must be 1 to {EVERY_MAX}")


def _endpoint(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not (port.isascii() and port.isdigit()) or int(port) > 65_535:
        raise wrong("--metrics", repr(text), "must be HOST:PORT, such as 127.0.0.1:9478")
    return host.strip("[]"), int(port)


@contextmanager
def _ended_by_signals() -> Iterator[tuple[Event, Callable[[], None]]]:
    """Ctrl-C and a supervisor's SIGTERM end the command in order, with what it found, even while Java starts: a Java process
    whose start is interrupted would stay behind. The second value sets the handlers again."""
    enough = Event()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def listen() -> None:
        for number in before:
            signal.signal(number, lambda _number, _frame: enough.set())

    listen()
    try:
        yield enough, listen
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@dataclass
class _FollowOutput:
    """Output while it runs, for a person or with --json for a machine: a line for every batch that changed something."""

    as_json: bool
    out: Console = field(default_factory=stdout)
    words: dict[tuple[str, str], str] = field(default_factory=dict)

    def __call__(self, what: FollowedBatch | str) -> None:
        if isinstance(what, str):
            self._line({"note": what}, f"{_now()} {what}")
            return
        changed = [one for one in what.verdicts if self.words.get((one.cluster, one.property)) != one.verdict]
        self.words |= {(one.cluster, one.property): one.verdict for one in what.verdicts}
        if self.as_json:
            self._line(_as_dict(what), "")
            return
        for one in changed:
            say(
                self.out,
                printable(f"{_now()} {one.cluster}: {one.property} {one.verdict}, {one.checked:,} checks"),
                COLOURS[one.verdict],
            )
        for divergence in what.divergences:
            say(
                self.out,
                printable(f"{_now()} {divergence.cluster}: {divergence.property}: {divergence.explanation}"),
                COLOURS[BROKEN],
            )
        for trouble in what.troubles:
            say(self.out, printable(f"{_now()} {trouble.why}"), "yellow")

    def _line(self, found: dict[str, Any], words: str) -> None:
        if self.as_json:
            print(dumps(found, ensure_ascii=False), flush=True)
        else:
            say(self.out, printable(words))

    def end(self, outcome: Outcome, ledger: Path) -> None:
        """Print the verdicts, whether anything was new or not."""
        if self.as_json:
            self._line(_timed() | {"ledger": str(ledger), "verdicts": [one._asdict() for one in outcome.verdicts]}, "")
            return
        table = plain_table(
            "cluster", "guarantee", "verdict", "checks made", "violations", "pending", title="Verdict per guarantee"
        )
        table.add_column("in words")
        for one in outcome.verdicts:
            counts = (f"{count:,}" if count else "" for count in (one.checked, one.violations, one.pending))
            table.add_row(one.cluster, one.property, one.verdict, *counts, ALL_MEANINGS.get(one.property, ""))
        self.out.print(table)
        say(self.out, f"The ledger: {ledger}")


def _as_dict(batch: FollowedBatch) -> dict[str, Any]:
    return _timed() | {
        "batch": batch.number,
        "files": batch.files,
        "seconds": round(batch.seconds, 3),
        "verdicts": [one._asdict() for one in batch.verdicts],
        "violations": [one._asdict() | {"conf": str(one.conf), "regular": str(one.regular)} for one in batch.divergences],
        "unreadable": [one._asdict() for one in batch.troubles],
    }


def _timed() -> dict[str, Any]:
    return {"time": datetime.now(UTC).isoformat(timespec="milliseconds")}


def _now() -> str:
    return datetime.now().strftime("%H:%M:%S")


# --- report -----------------------------------------------------------------------------------------------------------

REPORT_EXAMPLES = """Examples:
  transis report traces/ -o report.html [dim]# one file, readable offline, light and dark, printable[/dim]
  transis report old/ new/ -o report.html [dim]# two builds side by side, if the traces are of two[/dim]
  transis report traces/ --store kept/ -o report.html
"""

DEFAULT_FILE = Path("transis-report.html")


def report(
    inputs: Inputs,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="Where to write the page.")] = DEFAULT_FILE,
    store: StoreOption = None,
    master: MasterOption = None,
    ui: UiOption = False,
    strict: StrictOption = False,
) -> None:
    """Audit and measure the traces of a cluster's nodes, and write one self-contained page about it.

    Exit codes are those of `transis audit`; the page is written whenever the traces can be read.
    """
    content = judged("report", tuple(inputs), store, master, ui, out)
    from transis.audit.job import exit_code
    from transis.audit.report.verdicts import headline

    _, sentence = headline(content)
    say(stdout(), sentence)
    say(stdout(), f"The report: {out} (open it in a browser).")
    raise typer.Exit(exit_code(content, strict))


# --- package job ------------------------------------------------------------------------------------------------------

PACKAGE_JOB_EXAMPLES = """Examples:
  transis package-job [dim]# transis-job.zip and audit_job.py, here[/dim]
  transis package-job --out job && cd job && spark-submit --master spark://host:7077 --py-files transis-job.zip audit_job.py DIR
"""


def package_job(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where to write the two files; created if missing.")] = Path(),
) -> None:
    """Write the audit as a job for a Spark cluster: a zip of this package and a program that starts it.

    The Python of every machine of the cluster needs msgspec, numpy and pyarrow (docs/pipeline.md).
    """
    from transis.spark.cluster import write_job

    try:
        archive, entry = write_job(out)
    except PipelineError as error:
        raise unable("package-job", error) from None
    print(f"spark-submit --master spark://HOST:7077 --py-files {archive} {entry} DIR")
