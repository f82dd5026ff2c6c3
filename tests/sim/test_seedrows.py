"""A seed's row: everything of its result comes back, through the bytes in which it travels."""

from __future__ import annotations

import msgspec
import pytest

from transis.sim.plan import TOTEM, Scenario
from transis.sim.run import simulate
from transis.sim.sweep import RAN, SeedJob, SeedResult, SeedRow, result_of, run_job


def row_of(result: SeedResult) -> SeedRow:
    return SeedRow("1-abc", "--engine totem", result.seed, RAN, 300, result.explanation, result.replay, result)


@pytest.mark.parametrize(
    "job",
    [
        SeedJob(6, 3, "", digests=True),
        SeedJob(2, 2, "", digests=True, groups=True),
        SeedJob(6, 2, "", digests=True, scenario=Scenario("lansis", "toto", partitions=False)),
        SeedJob(0, None, "safe_one_rotation_early", scenario=TOTEM),
    ],
    ids=["ring", "groups", "toto", "broken"],
)
def test_a_result_comes_back_as_it_was(job: SeedJob) -> None:
    row = row_of(run_job(job))
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(row), type=SeedRow) == row


def test_a_result_has_all_of_the_coverage_of_its_run() -> None:
    outcome = simulate(2, nodes=2, groups=True)
    assert outcome.coverage.events
    assert outcome.coverage.faults
    assert vars(result_of(outcome).coverage) == vars(outcome.coverage)
