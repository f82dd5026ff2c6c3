"""Shared by all commands: checking options, printing tables and sentences, showing payloads. Light to import.

Payloads come from anybody, so on a terminal everything that is not plain text is escaped: it can neither hide nor give commands.
"""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from transis.types.config import ENGINES
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


def layers_of(text: str) -> tuple[str, ...]:
    """The layers that a diagram shows from the start, separated by commas."""
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


def complain(command: str, words: object) -> None:
    """Print one sentence on stderr."""
    Console(stderr=True, soft_wrap=True).print(f"transis {command}: {words}", style="red", markup=False, highlight=False)


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
