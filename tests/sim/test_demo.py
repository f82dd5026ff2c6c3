"""`transis demo`: a person can follow it; simulated, it is the same every time; real, every guarantee holds every time."""

from __future__ import annotations

import json
import re
import signal
import sys
from contextlib import chdir
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.cli.running import Command, environment
from transis.cli.main import app
from transis.sim.demo import STEPS
from transis.sim.real_demo import SCENES

RUNNER = CliRunner()


def played(file: Path, *arguments: str) -> str:
    outcome = RUNNER.invoke(app, ["demo", "--out", str(file), *arguments])
    assert outcome.exit_code == 0, outcome.output
    return outcome.stdout


@pytest.mark.slow
def test_real_daemons_play_every_scene_and_every_guarantee_holds_says_the_audit_too(tmp_path: Path) -> None:
    told = played(tmp_path / "demo.svg", "--dir", str(tmp_path / "d"))
    assert "ordered by totem" in told
    scenes, _, audit = told.partition("Now the audit on Spark")
    _scenes_are_told(scenes)
    drawing = (tmp_path / "demo.svg").read_text()
    for words in (
        "crash c",
        "partition a b | d e",
        "heal",
        "restart c",
        "every guarantee that was exercised held",
        "ordered by totem",
    ):
        assert words in drawing
    assert sorted(path.name for path in (tmp_path / "d" / "trace").glob("c-*.trace"))[0].startswith("c-1-")
    for words in ("no_creation", "total_order_6_1", "group_virtual_synchrony"):
        assert words in audit
    assert re.search(r"^0 broken, \d+ pending, \d+ held, in 1 run\.$", audit, re.MULTILINE), audit
    assert f"{tmp_path}/demo-report.html (open it in a browser)" in audit
    report = (tmp_path / "demo-report.html").read_text()
    for words in ("a/1", "c/2", "crash", 'id="verdicts"'):
        assert words in report


def _scenes_are_told(scenes: str) -> None:
    for scene in SCENES:
        assert scene.heading in scenes
    for words in ("View timeline", "Messages delivered, by view", "What clients of the group orders saw", "in doubt"):
        assert words in scenes
    for view in ("{a,b}", "{d,e}", "{a,b,c/2,d,e}"):
        assert view in scenes
    assert "; (a1) is a basic, <a1> a causal one):" in scenes
    assert re.search(r" \(b\d+\)", scenes), "b sends a basic message"
    assert "session lost" in scenes
    assert "Every guarantee that was exercised held." in scenes
    assert "broken" not in scenes


@pytest.mark.slow
def test_a_machine_gets_the_verdicts_and_nothing_else_by_the_other_engine_too(tmp_path: Path) -> None:
    found = json.loads(played(tmp_path / "demo.svg", "--json", "--no-audit", "--engine", "lansis"))
    assert [path.name for path in tmp_path.iterdir()] == ["demo.svg"]
    assert found["drawing"] == str(tmp_path / "demo.svg")
    assert found["broken"] == []
    assert found["findings"] == []
    assert [one["what"] for one in found["done"]] == ["crash c", "partition a b | d e", "heal", "restart c"]
    for name in ("total_order_6_1", "safe_7_1", "group_virtual_synchrony", "integrity"):
        assert found["verdicts"][name]["verdict"] == "held"


def test_each_step_is_told_and_the_run_is_summed_up(tmp_path: Path, engine: str) -> None:
    told = played(tmp_path / "demo.html", "--simulated", "--engine", engine)
    for step in STEPS:
        assert step.heading in told
    for words in ("View timeline", "Messages delivered, by view", "Verdict per guarantee", "c/2", "space-time diagram"):
        assert words in told
    assert "broken" not in told


def test_both_sides_of_the_partition_have_their_own_view_and_all_five_are_together_at_the_end(
    tmp_path: Path, engine: str
) -> None:
    told = played(tmp_path / "demo.html", "--simulated", "--engine", engine)
    assert "{a,b}" in told
    assert "{d,e}" in told
    assert "{a,b,c/2,d,e}" in told


def test_two_demonstrations_are_the_same(tmp_path: Path) -> None:
    first, second = tmp_path / "first.svg", tmp_path / "second.svg"
    one, two = (played(file, "--simulated").replace(str(file), "") for file in (first, second))
    assert one == two
    assert first.read_text() == second.read_text()


def test_a_machine_gets_the_simulated_verdicts_and_a_drawing_only_if_it_asks(tmp_path: Path) -> None:
    with chdir(tmp_path):
        outcome = RUNNER.invoke(app, ["demo", "--simulated", "--json"])
    assert list(tmp_path.iterdir()) == []
    found = json.loads(outcome.stdout)
    assert outcome.exit_code == 0
    assert found["broken"] == []
    assert found["verdicts"]["total_order_6_1"]["verdict"] == "held"
    drawing = tmp_path / "demo.svg"
    drawn = json.loads(played(drawing, "--simulated", "--json"))
    assert drawn == found | {"drawing": str(drawing)}
    assert "ordered by totem" in drawing.read_text()


def test_ctrl_c_is_no_verdict_and_leaves_nothing_behind(tmp_path: Path) -> None:
    env = environment(TMPDIR=str(tmp_path))
    playing = Command([sys.executable, "-m", "transis", "demo", "--no-audit", "--out", str(tmp_path / "demo.svg")], env)
    try:
        playing.out.until("five daemons on this machine")
        playing.signal(signal.SIGINT)
        code, _, said = playing.ended()
    finally:
        playing.clean_up()
    assert (code, said.strip()) == (130, "transis demo: interrupted")
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_written_is_refused_before_anything_runs(tmp_path: Path) -> None:
    outcome = RUNNER.invoke(app, ["demo", "--out", str(tmp_path / "demo.txt")], env={"COLUMNS": "200"})
    assert outcome.exit_code == 2
    assert ".html or .svg" in outcome.stderr
    assert outcome.stdout == ""
    outcome = RUNNER.invoke(app, ["demo", "--simulated", "--dir", str(tmp_path / "new")], env={"COLUMNS": "200"})
    assert outcome.exit_code == 2
    assert "omit --simulated" in outcome.stderr
    outcome = RUNNER.invoke(app, ["demo", "--dir", str(Path(__file__).parent)], env={"COLUMNS": "200"})
    assert outcome.exit_code == 2
    assert "new or empty" in outcome.stderr
