"""`transis simulate --groups`: the same command, told the same way, with client processes and what groups promise them."""

import json
from pathlib import Path

from typer.testing import CliRunner

from transis.audit.guarantees import GROUP_PROPERTIES, HARNESS_MEANINGS, NODE_PROPERTIES, check
from transis.cli.main import app
from transis.trace.reader import read_trace

RUNNER = CliRunner()
SMALL = ["simulate", "--groups", "--nodes", "3", "--jobs", "1"]


def test_a_machine_reads_every_guarantee_of_the_engine_and_of_the_groups() -> None:
    outcome = RUNNER.invoke(app, [*SMALL, "--json", "--seeds", "4:6"])
    assert outcome.exit_code == 0, outcome.output
    found = json.loads(outcome.stdout)
    assert found["groups"] is True
    named = [*found["properties"], *found["not_exercised"], *found["not_promised"]]
    assert sorted(named) == sorted([*NODE_PROPERTIES, *GROUP_PROPERTIES, *HARNESS_MEANINGS])
    assert found["coverage"]["groups"]["view by join"] > 0
    assert "groups" in found["coverage"]["never_reached"]


def test_a_single_run_is_told_and_drawn(tmp_path: Path) -> None:
    picture = tmp_path / "run.svg"
    outcome = RUNNER.invoke(app, [*SMALL, "--seed", "5", "--plan", "--show", str(picture)])
    assert outcome.exit_code == 0, outcome.output
    for words in ("clients.processes", "group_virtual_synchrony", "Groups: ", "Every guarantee that was exercised held"):
        assert words in outcome.stdout
    assert "<svg" in picture.read_text()


def test_a_broken_group_layer_is_caught_told_and_replayable() -> None:
    command = [*SMALL, "--seeds", "0:2", "--broken", "everybody_is_told"]
    outcome = RUNNER.invoke(app, command)
    assert outcome.exit_code == 1, outcome.output
    replay = next(line for line in outcome.stdout.splitlines() if line.startswith("replay: "))
    assert "--groups" in replay
    again = RUNNER.invoke(app, replay.removeprefix("replay: transis ").split())
    assert again.exit_code == 1
    assert "showed R" in again.stdout, "the events that show it are told in words"


def test_a_defect_of_the_groups_needs_groups() -> None:
    outcome = RUNNER.invoke(app, ["simulate", "--broken", "everybody_is_told"], env={"COLUMNS": "200"})
    assert outcome.exit_code == 2
    assert "give --groups too" in outcome.stderr


def test_traces_of_clients_are_written_read_back_and_judged_alike(tmp_path: Path) -> None:
    outcome = RUNNER.invoke(app, [*SMALL, "--json", "--seed", "5", "--trace", str(tmp_path / "trace")])
    told = json.loads(outcome.stdout)["properties"]
    reading = read_trace(tmp_path / "trace" / "seed-5")
    assert reading.findings == []
    verdicts = check(reading.history).verdicts
    exercised = {name: verdicts[name].checked for name in GROUP_PROPERTIES if verdicts[name].checked}
    assert exercised == {name: told[name]["checked"] for name in GROUP_PROPERTIES if name in told}
    assert set(GROUP_PROPERTIES) - exercised.keys() == {"replicas_agree"}, "simulated processes tell nothing of their state"
