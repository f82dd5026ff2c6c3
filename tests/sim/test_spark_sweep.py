"""`transis sweep` on Spark: as one process says it, and further where it stopped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from tests.sim.sweeps import NODES, in_one_process, in_the_table, kept, kill_after_the_first_wave, started
from transis.cli.main import app
from transis.sim.plan import Scenario
from transis.sim.spark_sweep import in_pieces, wave_of

RUNNER = CliRunner()


def swept(directory: Path, scenario: Scenario, seeds: str) -> dict[str, Any]:
    options = [*scenario.options.split(), "--nodes", str(NODES), "--seeds", seeds, "--table", str(directory), "--json"]
    outcome = RUNNER.invoke(app, ["sweep", *options])
    assert outcome.exit_code == 0, outcome.output
    found: dict[str, Any] = json.loads(outcome.stdout)
    return found


@pytest.mark.parametrize("scenario", [Scenario(), Scenario("lansis")], ids=["totem", "lansis"])
def test_a_sweep_says_what_one_process_says_and_goes_on_where_it_stopped(
    spark: SparkSession, scenario: Scenario, tmp_path: Path
) -> None:
    assert swept(tmp_path, scenario, "0:3")["ran_now"] == 3
    whole = swept(tmp_path, scenario, "1:5")
    assert (whole["ran_now"], whole["runs"], whole["seeds"]) == (2, 4, {"first": 1, "last": 4, "count": 4})
    assert in_the_table(tmp_path, scenario, range(5)) == in_one_process(scenario, range(5))


@pytest.mark.slow
def test_a_killed_sweep_goes_on_where_it_stopped(spark: SparkSession, tmp_path: Path) -> None:
    """A smaller brother of test_sweep_cluster.py."""
    directory, seeds = tmp_path / "sweeps", range(16)
    kill_after_the_first_wave(started(directory, tmp_path, "local[1]", seeds), directory)
    before = kept(directory)
    done = in_the_table(directory, Scenario(), seeds)
    assert 0 < len(done) < len(seeds)
    assert swept(directory, Scenario(), "0:16")["ran_now"] == len(seeds) - len(done)
    assert before < kept(directory)
    found = in_the_table(directory, Scenario(), seeds)
    assert list(found) == list(seeds)
    assert {seed: found[seed] for seed in done} == done


@pytest.mark.parametrize(("seeds", "cores", "sizes"), [(64, 2, [8] * 8), (5, 2, [1] * 5), (17, 2, [3] * 5 + [2]), (1, 100, [1])])
def test_every_core_has_its_share(seeds: int, cores: int, sizes: list[int]) -> None:
    pieces = in_pieces(range(seeds), cores)
    assert [len(piece) for piece in pieces] == sizes
    assert [seed for piece in pieces for seed in piece] == list(range(seeds))


@pytest.mark.parametrize(("pending", "seeds"), [(1, 8), (40, 8), (320, 20), (5000, 64), (1_000_000, 64)])
def test_waves_are_small_where_little_is_pending(pending: int, seeds: int) -> None:
    assert wave_of(pending, cores=2) == seeds
