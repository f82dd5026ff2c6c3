"""`python -m transis`: the command, for those whose path does not have it."""

from transis.cli.main import app

app(prog_name="transis")
