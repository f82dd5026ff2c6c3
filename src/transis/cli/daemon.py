"""`transis daemon` runs a node for the clients of this host; `transis keygen` makes a key for a cluster."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from transis.cli.options import plain_table, say, stdout, unable
from transis.net.host import Opening
from transis.net.state import key_text, new_key, write_key
from transis.settings.load import SettingsError, load_settings
from transis.settings.resolve import describe, resolve_daemon
from transis.settings.schema import Settings, example
from transis.types.errors import ConfigError, TransisError

# --- daemon -----------------------------------------------------------------------------------------------------------

DAEMON_EXAMPLES = """Examples:
  transis daemon [dim]# alone on loopback, with the defaults[/dim]
  transis daemon --config transis.toml
  transis daemon --config transis.toml --check [dim]# only print what it would do[/dim]
  transis daemon --example > transis.toml [dim]# a file to start from[/dim]
"""


def daemon(
    config: Annotated[Path | None, typer.Option(metavar="FILE", help="Settings file, in TOML.")] = None,
    check: Annotated[bool, typer.Option("--check", help="Check the settings, print what the daemon would do, and stop.")] = False,
    show_example: Annotated[bool, typer.Option("--example", help="Print a settings file with every field, and stop.")] = False,
) -> None:
    """Run one node of a cluster, for clients on this host. SIGTERM or Ctrl-C makes it leave gracefully and end."""
    if show_example:
        print(example(), end="")
        return
    try:
        settings = load_settings(config)
        opening = _opening(settings, config)
        if check:
            _show_plan(settings, opening)
            return
        from transis.daemon.daemon import run_daemon  # Other commands start faster without it.

        code = run_daemon(settings, opening)
    except (TransisError, OSError) as error:
        raise unable("daemon", error) from None
    raise typer.Exit(code)


def _opening(settings: Settings, config: Path | None) -> Opening:
    try:
        return resolve_daemon(settings, os.environ)
    except ConfigError as error:
        raise SettingsError(str(config) if config is not None else "without --config", error) from error


def _show_plan(settings: Settings, opening: Opening) -> None:
    console = stdout()
    table = plain_table("would run", "")
    table.columns[1].justify = "left"
    for what, sentence in describe(settings, opening):
        table.add_row(what, sentence)
    console.print(table)
    say(console, "The settings are fine.")


# --- keygen -----------------------------------------------------------------------------------------------------------

KEYGEN_EXAMPLES = """Examples:
  transis keygen --out transis.key [dim]# readable only by you; copy it to every node[/dim]
  transis keygen | ssh other 'umask 077; cat > transis.key'
"""


def keygen(
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the key to FILE, with mode 0600; a file that exists is never overwritten."),
    ] = None,
) -> None:
    """Make a cluster key: 32 random bytes. Every node of the cluster needs the same key; keep it secret from everybody else."""
    key = new_key()
    if out is None:
        print(key_text(key), end="")
        return
    try:
        write_key(out, key)
    except ConfigError as error:
        raise unable("keygen", error) from None
    print(f"{out}: copy it to every node of the cluster and name it there as security.key_file")
