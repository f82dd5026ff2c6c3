"""docs/embedding.md: its table has the arguments that there are, and its example runs as it stands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.embed.party import PATIENCE_S
from tests.house.sources import ROOT
from transis.settings.schema import KEYWORDS, NodeArguments

PAGE = (ROOT / "docs" / "embedding.md").read_text(encoding="utf-8")


def test_the_table_has_every_argument_in_order() -> None:
    table = PAGE.partition("## Arguments")[2].partition("##")[0]
    assert re.findall(r"^\| `(\w+)` \|", table, flags=re.MULTILINE) == ["name", *NodeArguments.__annotations__]
    assert [*KEYWORDS] == ["name", *NodeArguments.__annotations__]


def test_the_example_runs(tmp_path: Path) -> None:
    """Until its own message came back to it."""
    program = PAGE.partition("```python\n")[2].partition("```")[0]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "XDG_STATE_HOME": str(tmp_path)}
    command = [sys.executable, "-u", "-c", program.replace('Node("ann")', f'Node("ann", cluster="page-{os.getpid()}")')]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as running:
        assert running.stdout is not None
        try:
            said = [running.stdout.readline(), running.stdout.readline()]
        finally:
            running.terminate()
        running.wait(PATIENCE_S)
    assert said[0].startswith("now here: ann/1#1")
    assert said[1] == "ann/1#1 b'new order'\n"
