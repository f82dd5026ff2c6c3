"""How helps are shown: at any width, with the choices of each option, and with examples one a line.

1. Typer's own help has six columns for options, which a narrow terminal cuts off; it says `<bool>` beside a switch and
   `<list[str]>` beside an argument, and prints examples as prose. So a help is written here, from the same commands and options.
2. What is too long for the left column has a line of its own, and its explanation begins below.
3. Examples are the epilog of a command: a line each, markup allowed. A line that is too long goes on further to the right.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text
from typer.core import TyperGroup

Row = tuple[Text, Text]
"""What it is called, and what it does."""

NAME: Final = "bold cyan"
VALUE: Final = "yellow"
NOTE: Final = "dim"
NUMBER: Final = "N"
"""The value of an option that does not name it."""
MARGIN: Final = 1
FURTHER: Final = 4
"""Columns by which the rest of a long example is indented."""
LEFT_SHARE: Final = 3
"""The left column takes at most one part in so many."""


def print_help(command: Any, ctx: Any) -> None:
    console = Console(highlight=False)
    console.print(Padding(Text(command.get_usage(ctx), style="bold"), MARGIN))
    for paragraph in _paragraphs(command.help):
        console.print(Padding(Text.from_markup(paragraph), (0, MARGIN, 1, MARGIN)))
    sections = dict(_sections(command, ctx))
    width = min(console.width // LEFT_SHARE, max(left.cell_len for rows in sections.values() for left, _ in rows))
    for title, rows in sections.items():
        console.print(Panel(_table(rows, width), title=title, title_align="left", border_style=NOTE))
    _print_examples(console, command.epilog or "")


def _sections(command: Any, ctx: Any) -> Iterator[tuple[str, list[Row]]]:
    shown = [param for param in command.get_params(ctx) if not param.hidden]
    for title, kind, row in (("Arguments", "argument", _argument), ("Options", "option", _option)):
        if of_kind := [param for param in shown if param.param_type_name == kind]:
            yield title, [row(param) for param in of_kind]
    yield from _commands(command, ctx).items()


def _commands(command: Any, ctx: Any) -> dict[str, list[Row]]:
    panels: dict[str, list[Row]] = {}
    for name in command.list_commands(ctx) if isinstance(command, TyperGroup) else ():
        below: Any = command.get_command(ctx, name)
        what = next(_paragraphs(below.help), "")
        panels.setdefault(below.rich_help_panel or "Commands", []).append((Text(name, NAME), Text.from_markup(what)))
    return panels


def _paragraphs(text: str | None) -> Iterator[str]:
    """A line each: docstrings have line breaks of their own."""
    yield from filter(None, (" ".join(paragraph.split()) for paragraph in (text or "").split("\n\n")))


# --- arguments and options ------------------------------------------------------------------------------------------------


def _argument(param: Any) -> Row:
    return Text(param.metavar or param.name.upper(), NAME), _meaning(param)


def _option(param: Any) -> Row:
    names = [", ".join(sorted(names, key=len)) for names in (param.opts, param.secondary_opts) if names]
    value = "" if param.is_flag else f" {param.metavar or NUMBER}"
    return Text(" / ".join(names), NAME).append(value, VALUE), _meaning(param)


def _meaning(param: Any) -> Text:
    notes = [note for note in (_range(param), _default(param), "required" if param.required else "") if note]
    return Text(" ").join([Text.from_markup(param.help or ""), *(Text(f"[{note}]", NOTE) for note in notes)])


def _range(param: Any) -> str:
    if param.min is None or param.max is None:
        return "" if param.min is None else f"at least {param.min}"
    return f"{param.min} to {param.max}"


def _default(param: Any) -> str:
    if not param.show_default or param.default in (None, False, "", ()):
        return ""
    return f"default: {param.opts[0] if param.default is True else param.default}"


# --- layout ---------------------------------------------------------------------------------------------------------------


def _table(rows: Iterable[Row], width: int) -> Group:
    return Group(*(part for left, right in rows for part in _lines(left, right, width)))


def _lines(left: Text, right: Text, width: int) -> Iterator[RenderableType]:
    if left.cell_len > width:
        yield left
        left = Text()
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(width=width)
    grid.add_column()
    grid.add_row(left, right)
    yield grid


def _print_examples(console: Console, examples: str) -> None:
    if examples:
        console.print()
    for line in filter(None, map(str.rstrip, examples.splitlines())):
        indented = len(line) - len(line.lstrip()) + MARGIN
        for number, part in enumerate(_folded(console, line.lstrip(), console.width - indented - MARGIN)):
            console.print(" " * (indented + FURTHER * (number > 0)), part, sep="", soft_wrap=True)


def _folded(console: Console, line: str, width: int) -> list[Text]:
    text = Text.from_markup(line)
    parts = [text] if text.cell_len <= width else list(text.wrap(console, width - FURTHER))
    for part in parts:
        part.rstrip()
    return parts
