"""A sweep on a real cluster whose driver is killed: what it had kept is kept, the rest is run, and all is as in one process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.sim.sweeps import in_one_process, in_the_table, kept, kill_after_the_first_wave, started
from tests.spark.programs import PATIENCE_S
from transis.sim.plan import TOTEM

pytestmark = pytest.mark.long

SEEDS = range(32)
"""Four waves of two cores, two of them on their way when the first is kept."""
COMPARED = range(0, 32, 5)


def test_a_sweep_on_workers_survives_the_end_of_its_driver(standalone_cluster: str, tmp_path: Path) -> None:
    directory = tmp_path / "sweeps"
    kill_after_the_first_wave(started(directory, tmp_path, standalone_cluster, SEEDS), directory)
    before = kept(directory)
    done = in_the_table(directory, TOTEM, SEEDS)
    assert 0 < len(done) < len(SEEDS)

    out, errors = (process := started(directory, tmp_path, standalone_cluster, SEEDS)).communicate(timeout=PATIENCE_S)
    assert (process.returncode, errors) == (0, "")
    said = json.loads(out)
    assert (said["runs"], said["ran_now"]) == (len(SEEDS), len(SEEDS) - len(done))
    assert before < kept(directory)
    found = in_the_table(directory, TOTEM, SEEDS)
    assert list(found) == list(SEEDS)
    assert {seed: found[seed] for seed in done} == done
    assert {seed: found[seed] for seed in COMPARED} == in_one_process(TOTEM, COMPARED)
