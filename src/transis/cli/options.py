"""Shared by all commands: checking options, printing tables and sentences, showing payloads and helps. Light to import.

1. Payloads come from anybody, so on a terminal everything that is not plain text is escaped: it can neither hide nor give
   commands.
2. Typer's own help has six columns for options, which a narrow terminal cuts off; it says `<bool>` beside a switch and
   `<list[str]>` beside an argument, and prints examples as prose. So a help is written here, from the same commands and options.
3. In a help, what is too long for the left column has a line of its own, and its explanation begins below.
4. Examples are the epilog of a command: a line each, markup allowed. A line that is too long goes on further to the right.
"""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import typer
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text
from typer.core import TyperGroup

from transis.types.config import ENGINES
from transis.types.errors import plainly
from transis.types.ids import Service
from transis.types.limits import MEMBERS_MAX

Choice = TypeVar("Choice", bound=str)

# --- arguments --------------------------------------------------------------------------------------------------------

SUFFIXES: Final = (".html", ".svg")
SERVICES: Final = tuple(map(str.lower, Service.__members__))


def wrong(option: str, given: object, allowed: str) -> typer.BadParameter:
    """The error for one option; typer prints it with the usage of the command and exits with code 2."""
    return typer.BadParameter(f"{given} is not possible: {allowed}", param_hint=option)


def one_of(option: str, name: str, known: tuple[Choice, ...]) -> Choice:
    """The choice that has this name."""
    chosen = next((one for one in known if one == name), None)
    if chosen is None:
        raise wrong(option, repr(name), f"must be one of {', '.join(known)}")
    return chosen


def local_directory(option: str, text: str) -> Path:
    """A local directory, which need not exist yet."""
    path = Path(text)
    try:
        is_file = path.exists() and not path.is_dir()
    except OSError as error:
        raise wrong(option, repr(text), f"cannot be used ({error.strerror}): name another directory") from None
    if "://" in text or is_file:
        raise wrong(option, repr(text), "must be a local or mounted directory")
    return path


def nodes_of(nodes: int | None) -> int | None:
    if nodes is not None and not 1 <= nodes <= MEMBERS_MAX:
        raise wrong("--nodes", nodes, f"must be 1 to {MEMBERS_MAX}")
    return nodes


def picture_file(path: Path | None, option: str, suffixes: Sequence[str] = SUFFIXES) -> Path | None:
    """A file that a diagram can be written to. Checked before the run, because afterwards the run would be lost."""
    if path is None:
        return None
    if path.suffix.lower() not in suffixes:
        raise wrong(option, repr(str(path)), f"the name must end in {' or '.join(suffixes)}")
    if not path.parent.is_dir():
        raise wrong(option, repr(str(path)), f"there is no directory {path.parent}")
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise wrong(option, repr(str(path)), "it is a directory" if path.is_dir() else "you may not write to it")
    return path


LAYERS: Final = ("token", "dag")
"""Layers of a diagram: the token's way, and the acknowledgements of Lansis."""
LAYERS_HELP: Final = "Layers of the diagram to show from the start: token, dag, or both with a comma."


def layers_of(text: str, show: Path | None) -> tuple[str, ...]:
    """The layers that a diagram shows from the start, separated by commas."""
    if text and show is None:
        raise wrong("--layers", repr(text), "nothing is drawn; give --show FILE, too")
    return tuple(one_of("--layers", name, LAYERS) for name in text.split(",") if name)


def trace_directory(path: Path | None, option: str = "--trace") -> Path | None:
    """A directory for traces: new or empty, because two runs in one directory could not be distinguished."""
    if path is None:
        return None
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise wrong(option, repr(str(path)), "must be a new or empty directory")
    return path


def complete_engine(incomplete: str) -> list[str]:
    return [name for name in ENGINES if name.startswith(incomplete)]


EngineOption = Annotated[str, typer.Option(metavar="|".join(ENGINES), help="Ordering engine.", autocompletion=complete_engine)]


def choice(known: Sequence[str], sense: str, completion: Callable[[str], object] | None = None) -> Any:
    """An option with these choices: its help shows them, and the shell completes them."""

    def complete(incomplete: str) -> list[str]:
        return [name for name in known if name.startswith(incomplete)]

    return typer.Option(metavar="|".join(known), help=sense, autocompletion=completion or complete)


# --- printing ---------------------------------------------------------------------------------------------------------

PLAIN_WIDTH: Final = 120
"""Columns if stdout is not a terminal, so that tables in log files are not cut."""


def stdout() -> Console:
    console = Console(highlight=False, markup=False)
    return console if console.is_terminal else Console(highlight=False, markup=False, width=PLAIN_WIDTH)


def say(console: Console, words: str, style: str = "") -> None:
    """Print text that people may copy, such as a path or a command line: it is never wrapped."""
    console.print(Text(words, style=style), soft_wrap=True)


PROBLEM: Final = 1
UNABLE: Final = 2
INTERRUPTED: Final = 130
"""Exit codes: it found a problem, it could not run, Ctrl-C came before there was a result."""


def complain(command: str, reason: str | Exception) -> None:
    """Print one sentence on stderr."""
    words = reason if isinstance(reason, str) else plainly(reason)
    Console(stderr=True, soft_wrap=True).print(f"transis {command}: {words}", style="red", markup=False, highlight=False)


def unable(command: str, error: Exception) -> typer.Exit:
    """Print the error; returns the exit to raise."""
    complain(command, error)
    return typer.Exit(UNABLE)


def counted(count: int, what: str, several: str = "") -> str:
    """`1 run`, `2,000 runs`, `2 deliveries`."""
    return f"{count:,} {what if count == 1 else several or what + 's'}"


def plain_table(*columns: str, title: str = "") -> Table:
    """A table without borders. The first column is left-justified for text, the others are right-justified for numbers."""
    table = Table(title=title or None, box=None, pad_edge=False, title_justify="left", title_style="bold", header_style="dim")
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right", overflow="fold")
    return table


# --- payloads ---------------------------------------------------------------------------------------------------------

SHOWN_MAX: Final = 2_000
"""Characters shown of one message on a terminal; a pipe gets all."""


def shown(payload: bytes, most: int | None = None) -> str:
    """Plain text as it is; everything else as `\\n`, `\\x00` or `\\u202e`."""
    cut = payload if most is None else payload[: 4 * most]
    text = cut.decode("utf-8", "backslashreplace")
    if most is not None and (len(text) > most or len(cut) < len(payload)):
        return f"{printable(text[:most])}… ({len(payload):,} bytes)"
    return printable(text)


def printable(text: str) -> str:
    """Escape what a terminal would obey instead of showing it."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)


def as_json(payload: bytes) -> dict[str, str]:
    """`text` if it is UTF-8, else `base64`."""
    try:
        return {"text": payload.decode("utf-8")}
    except UnicodeDecodeError:
        return {"base64": b64encode(payload).decode()}


# --- helps ------------------------------------------------------------------------------------------------------------

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
