"""Sweeps for tests: what a table says beside what one process says."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from msgspec.structs import replace

from transis.console.runs import Wish
from transis.console.sweep import configuration_of
from transis.console.sweep_build import build_id
from transis.console.sweep_table import SweepTable
from transis.sim.seedrows import RanRow, ran_row
from transis.sim.sweep import Job, run_job
from transis.sim.tried import Tried

NODES = 2


def table_of(directory: Path, tried: Tried) -> SweepTable:
    wish = Wish(tried, range(1), NODES, 1, "", None)
    return SweepTable(directory, build_id(), configuration_of(wish))


def in_the_table(directory: Path, tried: Tried, seeds: range) -> dict[int, RanRow | None]:
    """By seed, without the time that each took."""
    return {row.seed: timeless(row.ran) for row in table_of(directory, tried).rows(seeds)}


def in_one_process(tried: Tried, seeds: Iterable[int]) -> dict[int, RanRow | None]:
    jobs = (Job(seed, NODES, "", digests=True, tried=tried) for seed in seeds)
    return {job.seed: timeless(ran_row(run_job(job))) for job in jobs}


def timeless(ran: RanRow | None) -> RanRow | None:
    return None if ran is None else replace(ran, wall_s=0.0)
