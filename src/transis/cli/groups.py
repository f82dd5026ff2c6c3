"""`transis groups`: the groups and the processes with names, from a daemon's admin socket; with --watch, what changes in them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from transis.cli.admin import AdminConnection, AdminOption, JsonOption, SocketOption, Values
from transis.cli.messages import run_client
from transis.cli.options import plain_table, say, shown, stdout, unable
from transis.client.directory import GroupChange, Listing, Members, NameChange
from transis.client.session import Session
from transis.types.errors import TransisError
from transis.types.ids import ProcessId, listed
from transis.types.views import MEMBERS_SHOWN

# --- list -------------------------------------------------------------------------------------------------------------

GROUPS_EXAMPLES = """Examples:
  transis groups
  transis groups --limit 10000 --json
  transis groups --watch [dim]# then what changes, until Ctrl-C[/dim]
"""


def groups(
    admin: AdminOption = None,
    socket: SocketOption = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Show at most N groups, sorted by name.", metavar="N")] = 1_000,
    watch: Annotated[bool, typer.Option("--watch", help="List, and go on with what changes.")] = False,
    as_json: JsonOption = False,
) -> None:
    """List the groups, how many members each has, how many of these are clients of this daemon, and the processes with names.

    With --watch, a line for each change (with --json, an object).
    """
    if watch:
        raise typer.Exit(watch_groups(socket, as_json))
    try:
        with AdminConnection(admin, socket) as connection:
            found = connection.ask("groups", limit=limit)
    except TransisError as error:
        raise unable("groups", error) from None
    if as_json:
        print(json.dumps({key: found.get(key) for key in ("groups", "count", "names", "named")}))
        return
    console = stdout()
    _show_groups(console, found)
    _show_names(console, found)


def _show_names(console: Console, found: Values) -> None:
    if not found.get("named"):
        return
    table = plain_table("name", "process")
    for one in found["names"]:
        table.add_row(one["name"], one["process"])
    console.print(table)
    if found["named"] > len(found["names"]):
        say(console, f"... and {found['named'] - len(found['names']):,} more: --limit shows them")


def _show_groups(console: Console, found: Values) -> None:
    if not found["count"]:
        say(console, "No groups: no process of this configuration has joined one.")
        return
    table = plain_table("group", "members", "here")
    for group in found["groups"]:
        table.add_row(group["name"], f"{group['members']:,}", f"{group['here']:,}")
    console.print(table)
    if found["count"] > len(found["groups"]):
        say(console, f"... and {found['count'] - len(found['groups']):,} more: --limit shows them")


# --- watching ---------------------------------------------------------------------------------------------------------


def watch_groups(socket: Path | None, as_json: bool) -> int:
    """`transis groups --watch`."""

    async def work(session: Session[bytes]) -> int:
        async for change in session.watch():
            print(json.dumps(_change_as_json(change)) if as_json else _change_text(change), flush=True)
        return 0

    return run_client("groups --watch", (socket, None, None), work)


def _change_text(change: Listing | Members | GroupChange | NameChange) -> str:
    match change:
        case Listing(groups, names, why):
            lines = [f"-- listed anew: {why}"] if why else []
            lines += [f"{shown(name.encode())}: {_members(size)}" for name, size in groups.items()]
            lines += [f"{shown(name.encode())}: {process}" for name, process in names.items()]
            return "\n".join(lines) or "No groups."
        case GroupChange(group, size, joined, left):
            told = f"{_some('joined', joined)}{_some('left', left)}"
            return f"{shown(group.encode())}: {_members(size)}{told}"
        case NameChange(name, process):
            return f"{shown(name.encode())}: {process or 'nobody'}"
    raise AssertionError("a watch of all groups lists no members")


def _some(what: str, processes: tuple[ProcessId, ...]) -> str:
    return f"; {what}: {listed(processes, MEMBERS_SHOWN)}" if processes else ""


def _members(size: int) -> str:
    return f"{size:,} member{'s' if size != 1 else ''}"


def _change_as_json(change: Listing | Members | GroupChange | NameChange) -> dict[str, Any]:
    match change:
        case Listing(groups, names, why):
            named = {name: str(process) for name, process in names.items()}
            return {"type": "list", "groups": groups, "names": named, "why": why or None}
        case GroupChange(group, size, joined, left):
            return {
                "type": "group",
                "group": group,
                "members": size,
                "joined": list(map(str, joined)),
                "left": list(map(str, left)),
            }
        case NameChange(name, process):
            return {"type": "name", "name": name, "process": None if process is None else str(process)}
    raise AssertionError("a watch of all groups lists no members")
