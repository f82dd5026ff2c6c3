"""`transis sweep`, as far as it goes without Spark: a table that has everything is told, in the words of `transis simulate`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from tests.sim.sweeping import ORDER, run
from transis.cli.main import app
from transis.sim.spark_sweep import Order, SweepTable
from transis.sim.sweep import TIMED_OUT, SeedJob, build_id

RUNNER = CliRunner()
TIMES = ("wall_s", "runs_per_minute")
DEFECT = "safe_one_rotation_early"


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table with the seeds 0 to 2 of two nodes."""
    return filled(tmp_path_factory.mktemp("sound"), ORDER, range(3))


def filled(directory: Path, order: Order, seeds: Sequence[int]) -> Path:
    table = SweepTable(directory, build_id(), order.configuration)
    with table.written_here():
        table.add([run(order, seed) for seed in seeds], 100)
    return directory


def said(command: str, *arguments: str, code: int = 0) -> dict[str, Any]:
    outcome = RUNNER.invoke(app, [command, "--json", *arguments])
    assert outcome.exit_code == code, outcome.output
    found: dict[str, Any] = json.loads(outcome.stdout)
    return {name: value for name, value in found.items() if name not in TIMES}


def test_a_sweep_says_what_simulate_says(sound: Path) -> None:
    seeds = ("--nodes", "2", "--seeds", "0:3")
    more = {"build": build_id(), "ran_now": 0, "timed_out": [], "crashed": []}
    assert said("sweep", *seeds, "--table", str(sound)) == said("simulate", *seeds, "--jobs", "1") | more


def test_failed_seeds_are_told_as_simulate_tells_them(tmp_path: Path) -> None:
    options = f"--engine totem --broken {DEFECT}"
    filled(tmp_path, ORDER._replace(configuration=options, job=SeedJob(0, None, DEFECT, digests=True)), range(1))
    seeds = (*options.split(), "--seeds", "0:1")
    found = said("sweep", *seeds, "--table", str(tmp_path), code=1)
    assert found["failing"]
    assert found["failing"] == said("simulate", *seeds, "--jobs", "1", code=1)["failing"]
    told = RUNNER.invoke(app, ["sweep", *seeds, "--table", str(tmp_path)])
    assert told.exit_code == 1
    assert f"Traces of failed seeds: {tmp_path / 'failed'}" in told.stdout
    kept = {path.name for path in (tmp_path / "failed").glob("*/*")}
    assert kept == {f"seed-{one['seed']}" for one in found["failing"]}


def test_a_person_reads_verdicts_and_what_was_never_reached(sound: Path) -> None:
    told = RUNNER.invoke(app, ["sweep", "--nodes", "2", "--seeds", "0:3", "--table", str(sound)])
    assert told.exit_code == 0, told.output
    for words in ("total_order_6_1", "Faults × states they met", "Never reached", "Nothing was left to run", build_id()):
        assert words in told.stdout


def test_a_seed_without_a_verdict_is_a_problem(tmp_path: Path) -> None:
    table = SweepTable(tmp_path, build_id(), ORDER.configuration)
    row = msgspec.structs.replace(
        run(ORDER, 0), outcome=TIMED_OUT, timeout_s=300, ran=None, explanation="did not end within 300 s"
    )
    with table.written_here():
        table.add([row, run(ORDER, 1)], 0)
    told = RUNNER.invoke(app, ["sweep", "--nodes", "2", "--seeds", "0:2", "--table", str(tmp_path)])
    assert told.exit_code == 1
    assert "seed 0 timed out: did not end within 300 s" in told.stdout
    assert "replay: transis simulate --engine totem --nodes 2 --seed 0" in told.stdout
    found = said("sweep", "--nodes", "2", "--seeds", "0:2", "--table", str(tmp_path), code=1)
    assert (found["timed_out"], found["crashed"], found["runs"]) == ([0], [], 1)


@pytest.mark.parametrize(
    ("arguments", "named", "allowed"),
    [
        (["--timeout", "0"], "--timeout", "must be 1 to 86400"),
        (["--timeout", "86401"], "--timeout", "must be 1 to 86400"),
        (["--keep-traces", "-1"], "--keep-traces", "must be 0 or more"),
        (["--table", "s3://bucket/sweeps"], "--table", "must be a local or mounted directory"),
        (["--table", __file__], "--table", "must be a local or mounted directory"),
        (["--table", "x" * 300], "--table", "cannot be used (File name too long)"),
        (["--seeds", "0:20000000"], "--seeds", "one call takes at most 10000000"),
        (["--seeds", "7"], "--seeds", "must be A:B"),
        (["--broken", "lane_opened_early"], "--broken", "give --groups too"),
    ],
)
def test_a_wrong_argument_is_named(arguments: list[str], named: str, allowed: str, tmp_path: Path) -> None:
    usual = ["sweep", "--seeds", "0:2", "--table", str(tmp_path / "new")]
    outcome = RUNNER.invoke(app, [*usual, *arguments], env={"COLUMNS": "200"})
    assert outcome.exit_code == 2
    assert named in outcome.stderr
    assert allowed in outcome.stderr
    assert not (tmp_path / "new").exists()


def test_a_table_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    outcome = RUNNER.invoke(app, ["sweep", "--seeds", "0:2", "--table", str(tmp_path / "file" / "sweeps")])
    assert outcome.exit_code == 2
    assert "transis sweep: " in outcome.stderr
    assert "Not a directory" in outcome.stderr
    assert "Traceback" not in outcome.output
