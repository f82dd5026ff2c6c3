"""What holds for every command: help with examples, quick to load, a wrong name answered with the nearest, completion."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from tests.cli.running import environment
from transis.cli.main import PANEL_OF, PANELS, app
from transis.cli.options import counted

RUNNER = CliRunner()


@pytest.mark.parametrize("command", PANEL_OF)
def test_every_command_has_help(command: str) -> None:
    outcome = RUNNER.invoke(app, [command, "--help"], env={"COLUMNS": "160"})
    assert outcome.exit_code == 0, outcome.output
    assert f"Usage: transis {command}" in outcome.output
    assert re.search(rf"transis {command}\s", outcome.output.partition("Examples:")[2])


def test_the_help_lists_all_of_them_by_what_they_are_for() -> None:
    outcome = RUNNER.invoke(app, ["--help"], env={"COLUMNS": "160"})
    for panel, names in PANELS.items():
        assert panel in outcome.output
        for name in names:
            assert f" {name} " in outcome.output


def test_a_name_that_does_not_exist_is_answered_with_the_nearest() -> None:
    outcome = RUNNER.invoke(app, ["dameon"], env={"COLUMNS": "160"})
    assert outcome.exit_code == 2
    assert "Did you mean 'daemon'" in outcome.stderr


@pytest.mark.parametrize("module", ["messages", "admin", "monitor", "faults"])
def test_commands_that_people_wait_for_load_no_engine(module: str) -> None:
    program = f"import sys, transis.cli.{module}; print(*(name for name in sys.modules if 'totem' in name or 'pyarrow' in name))"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment())
    assert found.stdout.split() == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_can_be_shown_and_offers_commands(shell: str) -> None:
    command = [sys.executable, "-m", "transis"]
    shown = subprocess.run([*command, "--help"], capture_output=True, text=True, check=True, env=environment())
    assert "--install-completion" in shown.stdout
    env = environment(_TRANSIS_COMPLETE=f"complete_{shell}", COMP_WORDS="transis s", COMP_CWORD="1")
    env |= {"_TYPER_COMPLETE_ARGS": "transis s", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    found = subprocess.run(command, capture_output=True, text=True, check=False, env=env).stdout
    for name in ("send", "simulate", "status"):
        assert name in found
    assert "groups" not in found


def test_a_terminal_that_knows_ascii_only_gets_words_all_the_same() -> None:
    command = [sys.executable, "-m", "transis", "simulate", "--nodes", "2", "--seed", "1"]
    env = environment(PYTHONIOENCODING="ascii")
    found = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    assert (found.returncode, found.stderr) == (0, "")
    assert "States \\xd7 events reached" in found.stdout


@pytest.mark.parametrize(("count", "words"), [(0, "0 runs"), (1, "1 run"), (2000, "2,000 runs")])
def test_one_is_no_plural(count: int, words: str) -> None:
    assert counted(count, "run") == words
    assert counted(count, "delivery", "deliveries").endswith("y" if count == 1 else "ies")
