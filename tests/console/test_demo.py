"""`transis demo`: a person must be able to follow it, and it must be the same every time."""

from pathlib import Path

from typer.testing import CliRunner

from transis.console.main import app
from transis.console.story import STEPS

RUNNER = CliRunner()


def played(file: Path) -> str:
    outcome = RUNNER.invoke(app, ["demo", "--out", str(file)])
    assert outcome.exit_code == 0, outcome.output
    return outcome.stdout


def test_each_step_is_told_and_the_run_is_summed_up(tmp_path: Path) -> None:
    told = played(tmp_path / "demo.html")
    for step in STEPS:
        assert step.heading in told
    for words in ("View timeline", "Messages delivered, by view", "Verdict per guarantee", "c/2", "space-time diagram"):
        assert words in told
    assert "broken" not in told


def test_both_sides_of_the_partition_have_their_own_view_and_all_five_are_together_at_the_end(tmp_path: Path) -> None:
    told = played(tmp_path / "demo.html")
    assert "{a,b}" in told
    assert "{d,e}" in told
    assert "{a,b,c/2,d,e}" in told


def test_two_demonstrations_are_the_same(tmp_path: Path) -> None:
    first, second = tmp_path / "first.svg", tmp_path / "second.svg"
    assert played(first).replace(str(first), "") == played(second).replace(str(second), "")
    assert first.read_text() == second.read_text()


def test_a_file_that_cannot_be_drawn_is_refused_before_anything_runs(tmp_path: Path) -> None:
    outcome = RUNNER.invoke(app, ["demo", "--out", str(tmp_path / "demo.txt")], env={"COLUMNS": "200"})
    assert outcome.exit_code == 2
    assert ".html or .svg" in outcome.stderr
    assert outcome.stdout == ""
