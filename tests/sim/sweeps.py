"""Sweeps for tests: the command in a process that is killed, what a table says beside what one process says."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from tests.spark.programs import PATIENCE_S, program_environment
from transis.sim.cli import configuration_of
from transis.sim.plan import Scenario
from transis.sim.runs import SimulateRequest
from transis.sim.spark_sweep import SweepTable
from transis.sim.sweep import SeedJob, SeedResult, build_id, run_job

NODES = 2


def table_of(directory: Path, scenario: Scenario) -> SweepTable:
    request = SimulateRequest(scenario, range(1), NODES, 1, "", None)
    return SweepTable(directory, build_id(), configuration_of(request))


def in_the_table(directory: Path, scenario: Scenario, seeds: range) -> dict[int, SeedResult | None]:
    """By seed, without the time that each took."""
    return {row.seed: timeless(row.ran) for row in table_of(directory, scenario).rows(seeds)}


def in_one_process(scenario: Scenario, seeds: Iterable[int]) -> dict[int, SeedResult | None]:
    jobs = (SeedJob(seed, NODES, "", digests=True, scenario=scenario) for seed in seeds)
    return {job.seed: timeless(run_job(job)) for job in jobs}


def timeless(ran: SeedResult | None) -> SeedResult | None:
    return None if ran is None else replace(ran, wall_s=0.0)


def started(directory: Path, place: Path, master: str, seeds: range) -> subprocess.Popen[str]:
    options = ["--nodes", str(NODES), "--seeds", f"{seeds.start}:{seeds.stop}", "--table", str(directory), "--json"]
    command = [sys.executable, "-m", "transis", "sweep", *options, "--master", master]
    environment = program_environment(place)
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, cwd=place)


def kept(directory: Path) -> set[Path]:
    return set((directory / "outcomes").glob("*/*.parquet"))


def kill_after_the_first_wave(process: subprocess.Popen[str], directory: Path) -> None:
    while not kept(directory):
        with suppress(subprocess.TimeoutExpired):
            code = process.wait(0.05)
            raise AssertionError(f"it ended with {code} before it was killed: {process.communicate()}")
    process.kill()
    process.communicate(timeout=PATIENCE_S)
