"""What a replica is, from a file: its name, the list of replicas and its directory, in a table for each group.

[replica.accounts]
me = "ann"
replicas = ["ann", "bob", "cyd"]
directory = "/var/lib/bank"
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Final, NamedTuple

from transis.types.errors import ConfigError, plainly

FIELDS: Final = ("me", "replicas", "directory")


class Given(NamedTuple):
    me: str
    replicas: Sequence[str] | None
    directory: Path


def given(
    group: str,
    settings: str | PathLike[str] | None,
    me: str | None,
    replicas: Sequence[str] | None,
    directory: str | PathLike[str] | None,
) -> Given:
    """What the caller says counts before what the file says."""
    found = {} if settings is None else _table(group, Path(settings))
    me = found.get("me") if me is None else me
    replicas = found.get("replicas") if replicas is None else replicas
    directory = found.get("directory") if directory is None else directory
    where = "" if settings is None else f", or write it in [replica.{group}] of {settings}"
    if not isinstance(me, str):
        raise ConfigError("me", me, f"give the name of this replica{where}")
    if not isinstance(directory, str | PathLike):
        raise ConfigError("directory", directory, f"give the directory of this replica{where}")
    return Given(me, replicas, Path(directory))


def _table(group: str, path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
        tables = tomllib.loads(text)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError("settings", str(path), f"the file cannot be read: {plainly(error)}") from None
    replicas = tables.get("replica")
    table = replicas.get(group) if isinstance(replicas, dict) else None
    if not isinstance(table, dict):
        raise ConfigError("settings", str(path), f"there is no table [replica.{group}] in it")
    unknown = sorted(set(table) - set(FIELDS))
    if unknown:
        raise ConfigError(f"replica.{group}.{unknown[0]}", table[unknown[0]], f"there is only {', '.join(FIELDS)}")
    return table
