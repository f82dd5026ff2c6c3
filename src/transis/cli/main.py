"""`transis`: the table of commands, and how every command ends.

1. Exit codes are the same everywhere: 0 fine, 1 found a problem, 2 could not run, 130 interrupted. A user's mistake gives one
   sentence on stderr, never a traceback. A traceback is a bug of ours.
2. A command is a function with its own name and `<NAME>_EXAMPLES` beside it, or a typer application. Its module is imported only
   when the command is used: `transis send` and tab completion must not wait for the simulator. This table is also the only place
   in the product that names the observers.
3. `python -m transis.cli.main PARENT ARGUMENTS...` is a command that ends when the process that started it is gone. A cluster on
   one machine is many daemons and one command that owns them; if that command is killed, the daemons leave by themselves.
"""

from __future__ import annotations

import sys
from importlib import import_module
from io import TextIOWrapper
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group

from transis import __version__

PANELS: Final = {
    "See it": {
        "demo": "transis.sim.demo",
        "play": "transis.sim.play",
        "simulate": "transis.sim.cli",
        "sweep": "transis.sim.cli",
        "bench": "transis.bench.cli",
    },
    "Run it": {
        "up": "transis.cli.up",
        "daemon": "transis.cli.daemon",
        "doctor": "transis.cli.doctor",
        "keygen": "transis.cli.daemon",
        "leave": "transis.cli.admin",
    },
    "Break it": {
        "kill": "transis.cli.faults",
        "pause": "transis.cli.faults",
        "resume": "transis.cli.faults",
        "restart": "transis.cli.faults",
        "cut": "transis.cli.faults",
        "heal": "transis.cli.faults",
    },
    "Use it": {"send": "transis.cli.messages", "recv": "transis.cli.messages"},
    "Keep it": {"archive": "transis.cli.archive", "reconcile": "transis.spark.cli", "replica": "transis.cli.replica"},
    "Look at it": {
        "status": "transis.cli.admin",
        "monitor": "transis.cli.monitor",
        "groups": "transis.cli.groups",
    },
    "Judge it": {
        "audit": "transis.audit.cli",
        "report": "transis.audit.cli",
        "package-job": "transis.audit.cli",
    },
}
"""Every command and its module, in the order of the help."""

PANEL_OF: Final = {name: panel for panel, commands in PANELS.items() for name in commands}
SETTINGS: Final = {"help_option_names": ["-h", "--help"]}


class WithHelp:
    """Mixed into typer's classes: a help of our own, loaded when somebody asks for it."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        from transis.cli.options import print_help

        print_help(self, ctx)


class Command(WithHelp, TyperCommand):
    """A command."""


class CommandGroup(WithHelp, TyperGroup):
    """A command with commands below it."""


class Commands(CommandGroup):
    """The commands above, each loaded on first use."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(PANEL_OF)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in PANEL_OF and cmd_name not in self.commands:
            self.commands[cmd_name] = _load(cmd_name)
        return self.commands.get(cmd_name)

    def invoke(self, ctx: Any) -> Any:
        """Ctrl-C is not a verdict: click would exit with 1, which here means that a problem was found."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            from transis.cli.options import INTERRUPTED, complain

            complain(ctx.invoked_subcommand, "interrupted")
            raise typer.Exit(INTERRUPTED) from None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """An unknown name is answered with similar ones, so all commands must be loaded then."""
        if args and args[0] not in PANEL_OF:
            for name in PANEL_OF:
                self.get_command(ctx, name)
        return super().resolve_command(ctx, args)


def _load(name: str) -> Any:
    python_name = name.replace("-", "_")
    module = import_module(PANELS[PANEL_OF[name]][name])
    what = getattr(module, python_name)
    loaded = typer.Typer(add_completion=False, rich_markup_mode="rich", context_settings=SETTINGS)
    loaded.callback()(lambda: None)  # Makes typer treat a single command as a subcommand.
    if isinstance(what, typer.Typer):
        for below in what.registered_commands:
            below.cls = Command
        loaded.add_typer(what, name=name, cls=CommandGroup)
    else:
        loaded.command(name, cls=Command, epilog=getattr(module, f"{python_name.upper()}_EXAMPLES"))(what)
    command: Any = get_group(loaded).commands[name]
    command.rich_help_panel = PANEL_OF[name]
    return command


app = typer.Typer(
    name="transis",
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_show_locals=False,
    context_settings=SETTINGS,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"transis {__version__}")
        raise typer.Exit


def _write_what_there_is() -> None:
    """On an ASCII-only terminal or log, other characters are escaped instead of raising an error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper) and not stream.encoding.lower().startswith("utf"):
            stream.reconfigure(errors="backslashreplace")


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Group communication for Python: ordered multicast and membership through crashes, partitions and merges.

    Start with [bold]transis demo[/bold], then [bold]transis up[/bold] in one terminal, [bold]transis recv orders[/bold] in a
    second and [bold]transis send orders hello[/bold] in a third. Exit codes: 0 fine, 1 found a problem, 2 could not run,
    130 interrupted before there was a result.
    """
    _write_what_there_is()


if __name__ == "__main__":
    from transis.net.runtime import end_with_parent

    if not end_with_parent(int(sys.argv[1])):
        sys.exit(1)
    app(sys.argv[2:], prog_name="transis")
