"""A seed's row: everything of its result comes back, through the bytes in which it travels."""

from __future__ import annotations

import msgspec
import pytest

from transis.sim.coverage import Coverage
from transis.sim.plan import TOTEM, Scenario
from transis.sim.sweep import RAN, TIMED_OUT, SeedJob, SeedResult, SeedRow, ran_row, result_from, run_job


def row_of(result: SeedResult) -> SeedRow:
    return SeedRow("1-abc", "--engine totem", result.seed, RAN, 300, result.explanation, result.replay, ran_row(result))


def plain(result: SeedResult) -> tuple[object, ...]:
    """A result that can be compared."""
    coverage = result.coverage
    counters = [getattr(coverage, name) for name in vars(Coverage())]
    return (*result._replace(coverage=Coverage())[:-2], counters, result.digest)


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
    result = run_job(job)
    assert result.coverage.events
    assert result.coverage.faults
    travelled = msgspec.msgpack.decode(msgspec.msgpack.encode(row_of(result)), type=SeedRow)
    back = result_from(travelled)
    assert back is not None
    assert plain(back) == plain(result)


def test_a_seed_without_a_verdict_has_no_result() -> None:
    assert result_from(SeedRow("1-abc", "--engine totem", 5, TIMED_OUT, 1, "did not end within 1 s", "")) is None
