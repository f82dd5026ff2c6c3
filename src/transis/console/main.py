"""`transis`: the commands, and how every one of them ends.

Exit codes are the same everywhere: 0 fine, 1 found a problem, 2 could not run. A user's mistake is one sentence on
stderr, never a traceback; a traceback is our bug.
"""

from __future__ import annotations

from typing import Annotated

import typer

from transis import __version__
from transis.console.demo import demo
from transis.console.simulate import simulate

app = typer.Typer(
    name="transis",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_show_locals=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"transis {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Group communication for Python: ordered multicast and membership through crashes, partitions and merges.

    Start with [bold]transis demo[/bold]. Exit codes: 0 fine, 1 found a problem, 2 could not run.
    """


SIMULATE_EXAMPLES = """Examples:

transis simulate --seed 7 [dim]# one run, told in full[/dim]

transis simulate --seed 7 --show run.html [dim]# the same run, drawn[/dim]

transis simulate --seeds 0:2000 --jobs 2 [dim]# seeds 0 to 1999[/dim]

transis simulate --seeds 0:500 --json > out.json

transis simulate --seeds 0:200 --broken safe_one_rotation_early --shrink
"""

DEMO_EXAMPLES = """Examples:

transis demo

transis demo --out story.svg
"""

app.command(epilog=SIMULATE_EXAMPLES)(simulate)
app.command(epilog=DEMO_EXAMPLES)(demo)
