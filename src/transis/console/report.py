"""`transis report`: what happened, how fast it was, and whether every guarantee held, as one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from transis.cli.options import say, stdout
from transis.console.audit import Inputs, StoreOption, StrictOption, judged
from transis.console.reconcile import MasterOption, UiOption

REPORT_EXAMPLES = """Examples:

transis report traces/ -o report.html [dim]# one file, readable offline, light and dark, printable[/dim]

transis report old/ new/ -o report.html [dim]# two builds side by side, if the traces are of two[/dim]

transis report traces/ --store kept/ -o report.html
"""

DEFAULT_FILE = Path("transis-report.html")


def report(
    inputs: Inputs,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="Where to write the page.")] = DEFAULT_FILE,
    store: StoreOption = None,
    master: MasterOption = None,
    ui: UiOption = False,
    strict: StrictOption = False,
) -> None:
    """Audit and measure the traces of a cluster's nodes, and write one self-contained page about it.

    Exit codes as those of `transis audit`; the page is written in any case that can be read.
    """
    content = judged("report", tuple(inputs), store, master, ui, out)
    from transis.pipeline.jobs import exit_code
    from transis.pipeline.report.summary import headline

    _, sentence = headline(content)
    say(stdout(), sentence)
    say(stdout(), f"The report: {out} (open it in a browser).")
    raise typer.Exit(exit_code(content, strict))
