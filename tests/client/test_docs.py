"""The examples of docs/client.md run as they stand, with a real node behind them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.client.test_sockets import WAIT_S, Elsewhere
from tests.house.sources import ROOT
from transis.types import errors

PAGE = (ROOT / "docs" / "client.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 6


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_an_example_runs(number: int, tmp_path: Path) -> None:
    environment = {**os.environ, "TRANSIS_SOCKET": str(tmp_path / "s"), "PYTHONPATH": str(ROOT / "src")}
    with Elsewhere(tmp_path):
        command = [sys.executable, "-W", "error", "-c", EXAMPLES[number]]
        ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr == ""


def test_the_errors_it_names_exist() -> None:
    named = set(re.findall(r"`(\w+(?:Error|Lost|Refused|Consumer|Doubt|Large|Interrupted))`", PAGE))
    assert {name for name in named if not hasattr(errors, name)} == set()
    assert len(named) > 8
