"""Seeds of the mode `transis` and of ToTo: no promise is broken, and what the mode is for did happen. Some seeds in `make test`,
2,000 of each in `make test-long`, a hundred at a time.
"""

from __future__ import annotations

import pytest

from transis.sim.plan import Scenario
from transis.sim.sweep import SweepSummary, sweep

SCENARIOS = {
    "mode transis": Scenario("lansis", mode="transis"),
    "toto": Scenario("lansis", "toto"),
    "toto, no partitions": Scenario("lansis", "toto", partitions=False),
    "toto in the mode transis": Scenario("lansis", "toto", "transis"),
}
FEW = range(8)
MANY, AT_ONCE = 2_000, 100


def swept(name: str, seeds: range) -> SweepSummary:
    summary = sweep(seeds, scenario=SCENARIOS[name])
    assert summary.violations == 0, f"{name}: {summary.failing}"
    return summary


def assert_the_view_that_ends_went_on(summary: SweepSummary) -> None:
    """Messages flowed through changes and were delivered in them, and in some runs something ended in limbo."""
    notes = summary.coverage.notes
    assert notes["flowed"] > 0
    assert notes["delivered in the change"] > 0
    assert notes["limbo"] > 0


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_first_seeds_break_no_promise(name: str) -> None:
    summary = swept(name, FEW)
    if SCENARIOS[name].mode == "transis":
        assert_the_view_that_ends_went_on(summary)
    else:
        assert summary.coverage.notes["delivered in the change"] == 0


@pytest.mark.long
@pytest.mark.parametrize("first", range(0, MANY, AT_ONCE))
@pytest.mark.parametrize("name", SCENARIOS)
def test_many_seeds_break_no_promise(name: str, first: int) -> None:
    summary = swept(name, range(first, first + AT_ONCE))
    if SCENARIOS[name].mode == "transis":
        assert_the_view_that_ends_went_on(summary)
