"""`transis replica`: what is in a replica's directory. It is only read, and the replica may run meanwhile."""

from __future__ import annotations

import json
import os
import sys
import time
from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import chain, islice
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import typer
from rich.console import Console
from rich.text import Text

from transis.cli.admin import JsonOption
from transis.cli.options import PROBLEM, SHOWN_MAX, as_json, counted, plain_table, printable, say, shown, stdout, unable
from transis.prsl.record import Record, What
from transis.replication.reader import Changed, Run, Who, changes, end, first_kept, is_running, record, runs, who
from transis.replication.verify import Problem, Verification
from transis.types.errors import TransisError

REPLICA_EXAMPLES = """Examples:
  transis replica status /var/lib/bank
  transis replica log /var/lib/bank --after 41 --limit 10
  transis replica verify /var/lib/bank
"""

replica = typer.Typer(
    no_args_is_help=True,
    epilog=REPLICA_EXAMPLES,
    rich_markup_mode="rich",
    help="Look into the directory of a replica, which may run meanwhile: how far it is, its messages, and whether it is whole.",
)

LOOK_S: Final = 0.2
"""How often --follow looks for more."""

Directory = Annotated[Path, typer.Argument(metavar="DIR", help="The directory of the replica.", show_default=False)]

# --- status -----------------------------------------------------------------------------------------------------------

STATUS_EXAMPLES = """Examples:
  transis replica status /var/lib/bank
  transis replica status /var/lib/bank --json | jq .messages
"""


@replica.command(epilog=STATUS_EXAMPLES)
def status(directory: Directory, json_object: JsonOption = False) -> None:
    """Whose directory it is, how much is ordered in it, and how far the other replicas are as it knows.

    Green actions have their place for all time, yellow ones one that may change, red ones none yet. Who is connected now only a
    running replica knows: its program asks for its status. What it knows of the others' disks is written down only now and
    then, so they usually lack less.
    """
    try:
        found, running = who(directory), is_running(directory)
    except TransisError as error:
        raise unable("replica status", error) from None
    if json_object:
        print(json.dumps(_status_as_json(found, running)))
        return
    console = stdout()
    say(
        console,
        f"{found.group} at {found.replica}: {'running' if running else 'not running'}, opened {counted(found.life, 'time')}",
    )
    _say_counts(console, found)
    _show_members(console, found)


def _say_counts(console: Console, found: Who) -> None:
    say(console, f"{counted(found.offset, 'message')} in order, kept from offset {found.base.offset:,}")
    colours = (("green", found.green), ("yellow", found.end - found.green), ("red", found.red))
    parts = [(f"{count:,} {colour}", colour if count else "") for colour, count in colours]
    trimmed = f", {found.base.place:,} of the green ones trimmed" if found.base.place else ""
    console.print(Text.assemble("actions: ", parts[0], ", ", parts[1], ", ", parts[2], trimmed), soft_wrap=True)
    if not found.record.is_founded:
        say(console, "not founded yet: nothing is ordered before all founders were together once")


def _show_members(console: Console, found: Who) -> None:
    table = plain_table("replica", "number", "on its disk", "lacks at most")
    for name, number, synced, lacks in _members(found):
        here = name == found.replica
        table.add_row(printable(name), str(number), f"{synced:,}", "" if here or not lacks else f"{lacks:,}")
    console.print(table)


def _members(found: Who) -> Iterator[tuple[str, int, int, int]]:
    """Of each replica how many green actions it is known to have on its disk, and how many it lacks at most."""
    lines = dict(found.marks.lines)
    for number in found.record.members:
        name = found.name(number)
        synced = found.green if name == found.replica else min(lines.get(number, 0), found.green)
        yield name, number, synced, found.green - synced


def _status_as_json(found: Who, running: bool) -> dict[str, Any]:
    fields = ("name", "number", "synced", "lacks")
    return {
        "group": found.group,
        "replica": found.replica,
        "directory": found.directory.hex(),
        "life": found.life,
        "running": running,
        "founded": found.record.is_founded,
        "messages": found.offset,
        "first_kept": found.base.offset,
        "green": found.green,
        "yellow": found.end - found.green,
        "red": found.red,
        "trimmed": found.base.place,
        "members": [dict(zip(fields, member, strict=True)) for member in _members(found)],
    }


# --- log --------------------------------------------------------------------------------------------------------------

LOG_EXAMPLES = """Examples:
  transis replica log /var/lib/bank
  transis replica log /var/lib/bank --after 41 --limit 10
  transis replica log /var/lib/bank --follow --json [dim]# what is kept, then what comes, until Ctrl-C[/dim]
"""


@replica.command(epilog=LOG_EXAMPLES)
def log(
    directory: Directory,
    after: Annotated[
        int | None,
        typer.Option(min=-1, metavar="OFFSET", help="Begin behind this message; by default with the first that is kept."),
    ] = None,
    limit: Annotated[int | None, typer.Option(min=0, metavar="N", help="Show at most N messages.")] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Go on with what comes, until Ctrl-C.")] = False,
    json_lines: Annotated[bool, typer.Option("--json", help="Print one JSON object a line, for programs.")] = False,
) -> None:
    """Show the messages that are final, in order: offset, replica, time, data; and where the replicas changed.

    Anything but plain text is escaped; with --json it is in `base64` instead of `text`.
    """
    try:
        start = first_kept(directory) if after is None else after + 1
        for row in islice(_rows(directory, start, follow), limit):
            print(_json(row) if json_lines else _text(row), flush=follow)
    except TransisError as error:
        raise unable("replica log", error) from None
    except BrokenPipeError:  # Nobody reads any more, as with `| head`: a normal end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class Entry(NamedTuple):
    offset: int
    creator: str
    posted: int
    data: bytes


def _rows(directory: Path, start: int, follow: bool) -> Iterator[Entry | Changed]:
    """Messages from an offset on, and changes between them."""
    place = -1
    while True:
        last, members = end(directory), record(directory)
        waiting = deque(one for one in changes(directory) if one.offset >= start and one.place > place)
        for run in chain.from_iterable(runs(directory, start, last)):
            yield from _before(waiting, run.offset)
            yield from _entries(run, members, start, last)
        for change in _before(waiting, last):
            place = change.place
            yield change
        start = max(start, last)
        if not follow:
            return
        time.sleep(LOOK_S)


def _before(waiting: deque[Changed], offset: int) -> Iterator[Changed]:
    while waiting and waiting[0].offset <= offset:
        yield waiting.popleft()


def _entries(run: Run, members: Record, start: int, last: int) -> Iterator[Entry]:
    entry = members.entry(run.creator)
    creator = entry.name if entry is not None else f"replica {run.creator}"
    for offset, data in enumerate(run.messages(), run.offset):
        if start <= offset < last:
            yield Entry(offset, creator, run.posted, data)


def _text(row: Entry | Changed) -> str:
    if isinstance(row, Changed):
        return f"-- {_change_text(row)}"
    most = SHOWN_MAX if sys.stdout.isatty() else None
    return f"{row.offset} {printable(row.creator)} {_time(row.posted) or '-'} {shown(row.data, most)}"


def _json(row: Entry | Changed) -> str:
    if isinstance(row, Changed):
        return json.dumps(_change_as_json(row))
    told = {"offset": row.offset, "replica": row.creator, "time": _time(row.posted) or None}
    return json.dumps({**told, **as_json(row.data)})


def _time(posted: int) -> str:
    return datetime.fromtimestamp(posted / 1e6, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z") if posted else ""


WORDS: Final = {
    What.FOUND: "the group is founded",
    What.JOIN: "a replica is added",
    What.LEAVE: "a replica is removed",
    What.REPLACE: "a replica is replaced",
}


def _change_text(change: Changed) -> str:
    void = ", in vain: another change came first" if change.is_void else ""
    return f"before {change.offset}: {WORDS[change.what]}{void}; replicas: {printable(', '.join(change.names))}"


def _change_as_json(change: Changed) -> dict[str, Any]:
    what = {"change": change.what.name.lower(), "void": change.is_void, "version": change.version, "replicas": change.names}
    return {"before": change.offset, **what}


# --- verify -----------------------------------------------------------------------------------------------------------

VERIFY_EXAMPLES = """Examples:
  transis replica verify /var/lib/bank
  transis replica verify /var/lib/bank --json
"""


@replica.command(epilog=VERIFY_EXAMPLES)
def verify(directory: Directory, json_object: JsonOption = False) -> None:
    """Check every record: checksums, the digest of the order from place to place, and that nothing is missing.

    Exit code: 0 if all is whole, 1 if something is damaged; each line says what, and what to do.
    """
    verification = Verification(directory)
    problems: list[Problem] = []
    try:
        for problem in verification.problems():
            problems.append(problem)
            if not json_object:
                print(problem, flush=True)
    except TransisError as error:
        raise unable("replica verify", error) from None
    found = verification.verified
    if json_object:
        told = [{"what": one.what, "remedy": one.remedy} for one in problems]
        print(json.dumps({**found._asdict(), "problems": told}))
    else:
        whole = "all whole" if not problems else counted(len(problems), "problem")
        looked_at = f"{counted(found.actions, 'action')} in order with {counted(found.messages, 'message')}"
        print(f"{looked_at}, {counted(found.others, 'other')}: {whole}")
    raise typer.Exit(PROBLEM if problems else 0)
