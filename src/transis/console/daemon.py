"""`transis daemon`: run a node for the clients of this host."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from transis.console.asking import unable
from transis.console.printing import plain_table, say, stdout
from transis.settings.load import SettingsError, load_settings
from transis.settings.resolve import Plan, describe, make_plan
from transis.settings.schema import example
from transis.types.errors import ConfigError, TransisError

DAEMON_EXAMPLES = """Examples:

transis daemon [dim]# alone on loopback, with the defaults[/dim]

transis daemon --config transis.toml

transis daemon --config transis.toml --check [dim]# only say what it would do[/dim]

transis daemon --example > transis.toml [dim]# a file to begin with[/dim]
"""


def daemon(
    config: Annotated[Path | None, typer.Option(metavar="FILE", help="The settings, in TOML.")] = None,
    check: Annotated[bool, typer.Option("--check", help="Check the settings, say what would be done, and stop.")] = False,
    show_example: Annotated[bool, typer.Option("--example", help="Print a settings file with all fields, and stop.")] = False,
) -> None:
    """Run one node of a cluster, for clients on this host. Ends with a graceful leave on SIGTERM or Ctrl-C."""
    if show_example:
        print(example(), end="")
        return
    try:
        plan = _plan(config)
        if check:
            _tell(plan)
            return
        from transis.daemon.daemon import run_daemon  # The other commands start quicker without it.

        code = run_daemon(plan)
    except (TransisError, OSError) as error:
        raise unable("daemon", error) from None
    raise typer.Exit(code)


def _plan(config: Path | None) -> Plan:
    settings = load_settings(config)
    try:
        return make_plan(settings, os.environ)
    except ConfigError as error:
        raise SettingsError(str(config) if config is not None else "without --config", error) from error


def _tell(plan: Plan) -> None:
    console = stdout()
    table = plain_table("would run", "")
    table.columns[1].justify = "left"
    for what, sentence in describe(plan):
        table.add_row(what, sentence)
    console.print(table)
    say(console, "The settings are fine.")
