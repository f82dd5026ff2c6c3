"""Paper and pen of all commands: where words and tables go. Light to import, for commands that must start quickly."""

from __future__ import annotations

from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

PLAIN_WIDTH: Final = 120
"""Columns when stdout is no terminal: tables in a log file keep their words."""


def stdout() -> Console:
    console = Console(highlight=False, markup=False)
    return console if console.is_terminal else Console(highlight=False, markup=False, width=PLAIN_WIDTH)


def say(console: Console, words: str, style: str = "") -> None:
    """Words that somebody may copy, such as a path or the line that replays a run: never cut into lines."""
    console.print(Text(words, style=style), soft_wrap=True)


def complain(command: str, words: object) -> None:
    """One sentence on stderr."""
    Console(stderr=True, soft_wrap=True).print(f"transis {command}: {words}", style="red", markup=False, highlight=False)


def counted(count: int, what: str, several: str = "") -> str:
    """`1 run`, `2,000 runs`, `2 deliveries`."""
    return f"{count:,} {what if count == 1 else several or what + 's'}"


def plain_table(*columns: str, title: str = "") -> Table:
    """A table without walls; the first column is words, the others are numbers unless told otherwise."""
    table = Table(title=title or None, box=None, pad_edge=False, title_justify="left", title_style="bold", header_style="dim")
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right", overflow="fold")
    return table
