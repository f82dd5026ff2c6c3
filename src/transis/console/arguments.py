"""What a person typed, turned into what a command needs, or into one sentence that says what is allowed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import typer

from transis.types.config import ENGINES
from transis.types.limits import MEMBERS_MAX

SUFFIXES: Final = (".html", ".svg")


def wrong(option: str, given: object, allowed: str) -> typer.BadParameter:
    """The error of one option; typer prints it with the command's usage and ends with code 2."""
    return typer.BadParameter(f"{given} is not possible: {allowed}", param_hint=option)


def one_of(option: str, name: str, known: tuple[str, ...]) -> str:
    if name not in known:
        raise wrong(option, repr(name), f"must be one of {', '.join(known)}")
    return name


def local_directory(option: str, text: str) -> Path:
    """A directory of this machine, which need not be there yet."""
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
    """A file that a diagram can be written to; looked at before the run, for afterwards it would be lost."""
    if path is None:
        return None
    if path.suffix.lower() not in suffixes:
        raise wrong(option, repr(str(path)), f"the name must end in {' or '.join(suffixes)}")
    if not path.parent.is_dir():
        raise wrong(option, repr(str(path)), f"there is no directory {path.parent}")
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise wrong(option, repr(str(path)), "it is a directory" if path.is_dir() else "it may not be written")
    return path


def trace_directory(path: Path | None, option: str = "--trace") -> Path | None:
    """A directory for traces: new or empty, because traces of two runs in one directory cannot be told apart."""
    if path is None:
        return None
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise wrong(option, repr(str(path)), "must be a directory that is new or empty")
    return path


def complete_engine(incomplete: str) -> list[str]:
    return [name for name in ENGINES if name.startswith(incomplete)]
