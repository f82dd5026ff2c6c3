"""`transis groups`: the process groups of a daemon's configuration."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from transis.console.asking import AdminConnection, AdminOption, JsonOption, SocketOption, unable
from transis.console.printing import plain_table, say, stdout
from transis.types.errors import TransisError

GROUPS_EXAMPLES = """Examples:

transis groups

transis groups --limit 10000 --json
"""


def groups(
    admin: AdminOption = None,
    socket: SocketOption = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Show at most so many, by name.")] = 1_000,
    as_json: JsonOption = False,
) -> None:
    """Show the groups, how many members each has, and how many of them are clients of this daemon."""
    try:
        with AdminConnection(admin, socket) as connection:
            found = connection.ask("groups", limit=limit)
    except TransisError as error:
        raise unable("groups", error) from None
    if as_json:
        print(json.dumps({"groups": found["groups"], "count": found["count"]}))
        return
    console = stdout()
    if not found["count"]:
        say(console, "No groups: no process of this configuration has joined one.")
        return
    table = plain_table("group", "members", "here")
    for group in found["groups"]:
        table.add_row(group["name"], f"{group['members']:,}", f"{group['here']:,}")
    console.print(table)
    if found["count"] > len(found["groups"]):
        say(console, f"... and {found['count'] - len(found['groups']):,} more: --limit shows them")
