"""`transis reconcile`: what an archive holds of a group, what is missing in it, and what parted components did apart."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from transis.cli.options import choice, plain_table, printable, say, stdout, unable
from transis.spark.lineage import POLICIES, policy_of
from transis.types.errors import TransisError, UsageError

if TYPE_CHECKING:
    from transis.spark.reconcile import ListedRows, Reconciled

RECONCILE_EXAMPLES = """Examples:
  transis reconcile /data/archive --group orders [dim]# what is there, what is missing, who parted[/dim]
  transis reconcile /data/archive --group seats --key flight=$.flight --key seat=$.seat
  transis reconcile /data/archive --group seats --policy larger --out tables/ [dim]# one history, as Parquet[/dim]
  transis reconcile /data/archive --json | jq .partings
"""

ROWS_SHOWN = 20

MasterOption = Annotated[
    str | None, typer.Option("--master", metavar="URL", help="Where Spark runs: spark://host:port, or local[*] (the default).")
]
UiOption = Annotated[bool, typer.Option("--ui", help="Show Spark's own page, on loopback, while it works.")]


def reconcile(
    archive: Annotated[str, typer.Argument(metavar="DIR", help="Where `transis archive --to` wrote.")],
    group: Annotated[str | None, typer.Option(metavar="NAME", help="The group; needed if the archive has several.")] = None,
    key: Annotated[
        list[str] | None,
        typer.Option(
            "--key",
            metavar="NAME=$.PATH",
            help="A key from values that are JSON; repeatable. Finds keys that several sides touched.",
        ),
    ] = None,
    policy: Annotated[
        str | None, choice(POLICIES, f"Which side comes first in `merged` of --out (default {POLICIES[0]}).")
    ] = None,
    out: Annotated[str | None, typer.Option("--out", metavar="DIR", help="Write the tables there, as Parquet.")] = None,
    master: MasterOption = None,
    ui: UiOption = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Read a group's archive: each message once, gaps, partitions, what only one side saw, and keys that both sides touched.

    Exit code 0 if all is well, 1 if something is missing or collides, 2 if it could not run.
    """
    found = _found(archive, group, key or [], policy, out, master, ui)
    from transis.spark.reconcile import exit_code

    if as_json:
        from transis.spark.reconcile import json_text

        print(json_text(found))
    else:
        print_reconciled(stdout(), found)
    raise typer.Exit(exit_code(found))


def _found(
    archive: str, group: str | None, key: list[str], policy: str | None, out: str | None, master: str | None, ui: bool
) -> Reconciled:
    try:
        chosen = POLICIES[0] if policy is None else policy_of(policy)
        if policy is not None and out is None:
            raise UsageError(f"--policy {policy}: a policy orders the table `merged`, so give --out DIR, too")
        from transis.spark.progress import require_spark

        require_spark()
        from transis.spark.progress import StepTimer
        from transis.spark.reconcile import ReconcileRequest
        from transis.spark.reconcile import reconcile as reconciled
        from transis.spark.sides import read_keys

        return reconciled(ReconcileRequest(archive, group, read_keys(key), chosen, out, master, ui), StepTimer())
    except TransisError as error:
        raise unable("reconcile", error) from None


def print_reconciled(console: Console, found: Reconciled) -> None:
    for line in _lines(found):
        say(console, printable(line))
    if found.conflicts.rows:
        console.print(_conflicts(found))
        for line in _more(found.conflicts):
            say(console, line)
    if found.request.out is not None:
        say(console, f"Tables: {found.request.out}")


def _lines(found: Reconciled) -> Iterator[str]:
    from transis.spark.reconcile import apart_sentence, gap_sentence, labels_of, parting_sentence, waiting_sentence

    by = f"{', '.join(found.archivers)} in {_some(found.lives, 'life', 'lives')}"
    yield f"{found.group}: {_some(found.messages, 'message')}, {_some(found.views, 'view')}, archived by {by}"
    yield from (f"  {waiting_sentence(found.request.archive, *one)}" for one in found.waiting.items())
    yield from _first(found.gaps, gap_sentence)
    yield from _first(found.contradictions, lambda row: f"this cannot be: {row.what}: {row.first} and {row.last}")
    for parting in found.lineage.partings:
        yield parting_sentence(parting)
        for label in labels_of(parting):
            messages = _some(found.apart.get((parting.number, label), 0), "message")
            yield f"  {apart_sentence(parting, label, messages)}"
    if found.not_json:
        yield f"{_some(found.not_json, 'value')} of these cannot be read as JSON and have no key"


def _first(listed: ListedRows, sentence: Callable[[Any], str]) -> Iterator[str]:
    yield from (f"  {sentence(row)}" for row in listed.rows[:ROWS_SHOWN])
    yield from (f"  {line}" for line in _more(listed))


def _more(listed: ListedRows) -> Iterator[str]:
    """Where the rows are that are not shown."""
    if listed.total > len(listed.rows):
        yield f"and {listed.total - ROWS_SHOWN:,} more; --json has {len(listed.rows):,}, --out has all"
    elif listed.total > ROWS_SHOWN:
        yield f"and {listed.total - ROWS_SHOWN:,} more; --json and --out have them"


def _some(count: int, one: str, many: str = "") -> str:
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def _conflicts(found: Reconciled) -> Table:
    names = list(found.request.keys or {})
    table = plain_table("parting", *names, "messages", title="Keys that sides touched apart")
    for row in found.conflicts.rows[:ROWS_SHOWN]:
        touched = ", ".join(f"side {one.side}: {one.messages:,}" for one in row.touched)
        table.add_row(str(row.parting), *(printable(str(row[name])) for name in names), touched)
    return table
