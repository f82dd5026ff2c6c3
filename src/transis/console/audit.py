"""`transis audit`: did every guarantee hold? Read from what the nodes recorded, on Spark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from transis.cli.admin import unable
from transis.cli.options import say, stdout
from transis.console.reconcile import MasterOption, UiOption
from transis.types.errors import TransisError

if TYPE_CHECKING:
    from transis.pipeline.report.content import Content

AUDIT_EXAMPLES = """Examples:

transis audit traces/ [dim]# a verdict per guarantee, and every violation with the events that show it[/dim]

transis audit traces/ --json | jq .properties

transis audit hdfs://host/traces --store kept/ [dim]# tables stay there; what was read once is not read again[/dim]

transis audit traces/ --only total_order_6_1 --only safe_7_1 [dim]# two of them, sooner[/dim]

transis audit traces/ --master spark://host:7077

transis simulate --seeds 0:20 --trace runs && transis audit runs

transis audit --follow /srv/flight --ledger kept --metrics 127.0.0.1:9478 [dim]# a cluster that runs, for as long as it does[/dim]
"""

Inputs = Annotated[list[str], typer.Argument(metavar="DIR...", help="Directories of traces: local, or any Hadoop path.")]
StoreOption = Annotated[
    str | None, typer.Option("--store", metavar="DIR", help="Keep the tables here, as Parquet, and add to what is there.")
]
OnlyOption = Annotated[
    list[str] | None,
    typer.Option("--only", metavar="NAME", help="Judge this guarantee, and the evidence; may be repeated. Nothing is kept."),
]
FollowOption = Annotated[bool, typer.Option("--follow", help="Compare what nodes tell while they run, until Ctrl-C.")]
LedgerOption = Annotated[
    Path | None, typer.Option("--ledger", metavar="DIR", help="With --follow: verdicts, violations and evidence are kept here.")
]
EveryOption = Annotated[
    int | None, typer.Option("--every", metavar="SECONDS", help="With --follow: how often to look, 15 unless told.")
]
MetricsOption = Annotated[
    str | None, typer.Option("--metrics", metavar="HOST:PORT", help="With --follow: figures for Prometheus are served there.")
]
OnceOption = Annotated[bool, typer.Option("--once", help="With --follow: what is sealed by now, then the verdict.")]
StrictOption = Annotated[bool, typer.Option("--strict", help="Pending counts as broken: exit code 1.")]


def audit(
    inputs: Inputs,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
    report: Annotated[Path | None, typer.Option("--report", metavar="FILE", help="Write the report there, too.")] = None,
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

    With --follow the directories are those to which nodes write digests, and what nodes tell is compared while they run, until
    Ctrl-C (docs/watching.md). With --once exit code 2 also says that nothing could be judged at all.
    """
    if follow or ledger is not None or every is not None or metrics is not None or once:
        from transis.console.follow import followed

        apart = {"--store": store, "--report": report, "--only": only, "--strict": strict, "--ui": ui}
        raise typer.Exit(followed(tuple(inputs), follow, ledger, every, metrics, once, master, as_json, apart))
    content = judged("audit", tuple(inputs), store, master, ui, report, tuple(only or ()))
    from transis.pipeline.jobs import exit_code

    if as_json:
        from transis.pipeline.report.as_json import written

        print(written(content))
    else:
        from transis.console.audit_words import tell_audit

        tell_audit(stdout(), content)
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
    """The audit, with measures and the page if a report is wanted; what goes wrong is one sentence, and exit code 2."""
    try:
        from transis.pipeline.failures import require_spark

        require_spark()
        from transis.pipeline.jobs import Wish
        from transis.pipeline.jobs import audit as audited
        from transis.pipeline.report.page import write_report
        from transis.pipeline.steps import Steps

        content = audited(Wish(inputs, store, master, ui, measure=report is not None, only=only), Steps())
        if report is not None:
            write_report(content, report)
    except TransisError as error:
        raise unable(command, error) from None
    return content
