"""Is a sweep what one process says? Runs seeds again, here and one after the other, and holds each against its row in the table.

    python -m bench.sweep sweeps --engine totem --seeds 0:500

Everything is compared but the time that a run took: verdicts, explanations, coverage, and the digest of the whole history. Exit
code 1 if a row is missing or differs.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from msgspec.structs import replace

from transis.sim.cli import configuration_of
from transis.sim.plan import Scenario
from transis.sim.runs import SimulateRequest, seeds_of
from transis.sim.spark_sweep import SweepTable
from transis.sim.sweep import SeedJob, SeedRow, build_id, run_job


def differs(row: SeedRow, job: SeedJob) -> bool:
    return row.ran is None or replace(row.ran, wall_s=0.0) != replace(run_job(job), wall_s=0.0)


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench.sweep", description="Compare the table of a sweep with one process.")
    parser.add_argument("table", type=Path)
    parser.add_argument("--engine", default="totem")
    parser.add_argument("--seeds", default="0:500")
    parser.add_argument("--groups", action="store_true")
    given = parser.parse_args()
    seeds, scenario = seeds_of(None, given.seeds), Scenario(given.engine)
    request = SimulateRequest(scenario, seeds, None, 1, "", None, given.groups)
    table = SweepTable(given.table, build_id(), configuration_of(request))
    started, found, wrong = time.perf_counter(), 0, []
    for row in table.rows(seeds):
        found += 1
        if differs(row, SeedJob(row.seed, None, "", digests=True, groups=given.groups, scenario=scenario)):
            wrong.append(row.seed)
    missing = len(seeds) - found
    seconds = time.perf_counter() - started
    print(f"{found} rows compared in {seconds:,.0f} s, {missing} missing, {len(wrong)} differ: {wrong[:20]}")
    return 1 if missing or wrong else 0


if __name__ == "__main__":
    sys.exit(main())
