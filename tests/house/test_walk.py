"""How many files somebody has to open who follows one thing through the house. Limits only fall: lower them when they can be."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.house.sources import ROOT

FILES_MAX = {"message": 36, "simulate": 60, "daemon": 57}
"""By walk (`walks.py` says which they are)."""


@pytest.mark.parametrize("walk", FILES_MAX)
def test_a_walk_gets_no_longer(walk: str) -> None:
    command = [sys.executable, "-m", "tests.house.walks", walk]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=120)
    files = told.stdout.splitlines()
    assert 0 < len(files) <= FILES_MAX[walk], told.stdout
