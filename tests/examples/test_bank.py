"""The bank runs with one command, and no money is lost."""

from __future__ import annotations

import re
import subprocess
import sys

from tests.cli.running import environment
from tests.house.sources import ROOT


def test_the_bank_runs() -> None:
    command = [sys.executable, "-m", "examples.bank"]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment(), check=False, timeout=120)
    assert (ended.returncode, ended.stderr) == (0, "")
    lines = ended.stdout.splitlines()
    assert sum(map(int, re.findall(r"\d+", lines[0])[-2:])) == 100
    assert lines[2].endswith("together 100")
    assert lines[3].startswith("ann is alone: not ordered yet, no primary here: 2 of 3 needed, here: ann; bob last seen")
