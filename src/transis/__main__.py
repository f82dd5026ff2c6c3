"""`python -m transis`: the command line, for when `transis` is not on the path."""

from transis.cli.main import app

app(prog_name="transis")
