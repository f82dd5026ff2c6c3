"""The commands around a daemon: help with examples, keys, and one sentence when there is nobody to ask."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner

from transis.cli.admin import duration, synchrony
from transis.cli.main import app
from transis.net.state import read_key

RUNNER = CliRunner()


@pytest.mark.parametrize("command", ["daemon", "status", "groups", "leave", "keygen"])
def test_help_has_an_example(command: str) -> None:
    outcome = RUNNER.invoke(app, [command, "--help"])
    assert outcome.exit_code == 0
    assert f"transis {command}" in outcome.stdout.partition("Examples:")[2]


def test_keygen_writes_a_private_file_once(tmp_path: Path) -> None:
    path = tmp_path / "key"
    assert RUNNER.invoke(app, ["keygen", "--out", str(path)]).exit_code == 0
    first = read_key(path, "key")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    again = RUNNER.invoke(app, ["keygen", "--out", str(path)])
    assert again.exit_code == 2
    assert "already" in again.output
    assert read_key(path, "key") == first


def test_keygen_prints_a_key_that_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text(RUNNER.invoke(app, ["keygen"]).stdout)
    path.chmod(0o600)
    assert len(read_key(path, "key")) == 32


@pytest.mark.parametrize("command", ["status", "groups", "leave"])
def test_a_missing_daemon_is_one_sentence_with_the_places(command: str, tmp_path: Path) -> None:
    """The place is named: this machine may have a daemon at the usual ones, which is not ours to ask."""
    outcome = RUNNER.invoke(app, [command], env={"TRANSIS_SOCKET": f"{tmp_path}/x.sock", "TRANSIS_ADMIN": ""})
    assert outcome.exit_code == 2
    assert outcome.output.startswith(f"transis {command}: no daemon answers at {tmp_path}/x-admin.sock: ")
    assert outcome.output.count("\n") == 1


def test_the_example_is_printed() -> None:
    outcome = RUNNER.invoke(app, ["daemon", "--example"])
    assert outcome.exit_code == 0
    assert "[network]" in outcome.stdout


def test_a_wrong_file_is_one_sentence(tmp_path: Path) -> None:
    outcome = RUNNER.invoke(app, ["daemon", "--config", str(tmp_path / "none.toml"), "--check"])
    assert outcome.exit_code == 2
    assert "cannot be read" in outcome.output
    assert outcome.output.count("\n") == 1


@pytest.mark.parametrize(
    ("seconds", "words"), [(0, "0 s"), (59, "59 s"), (60, "1 min"), (3_599, "59 min"), (3_725, "1 h 2 min"), (200_000, "2 d 7 h")]
)
def test_durations_in_words(seconds: int, words: str) -> None:
    assert duration(seconds) == words


def test_the_index_of_synchrony_is_told_for_services_that_were_used() -> None:
    figures = {
        "synchrony_causal_milli": 1000,
        "synchrony_causal_min": 1,
        "synchrony_agreed_milli": 3467,
        "synchrony_agreed_min": 3,
    }
    assert synchrony(figures) == "index causal 1 (least 1), agreed 3.47 (least 3)"
    assert synchrony({"rotations": 5}) == ""
