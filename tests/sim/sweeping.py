"""Rows of a sweep for tests: by the very code of a worker, or written down by hand."""

from __future__ import annotations

from transis.sim.spark_sweep import Order, decoded, run_apart
from transis.sim.sweep import RAN, SeedJob, SeedResult, SeedRow

BUILD = "1-abc"
RING = "--engine totem --nodes 2"
ORDER = Order(RING, SeedJob(0, 2, "", digests=True), timeout_s=60)


def run(order: Order, seed: int) -> SeedRow:
    return decoded(run_apart(order, seed))


def written_down(
    seed: int, outcome: str = RAN, timeout_s: int = 60, deliveries: int = 1, traces: dict[str, bytes] | None = None
) -> SeedRow:
    """A row that no simulation gave."""
    verdicts, broken = (("safe_7_1", "held", 7, 0),), ("x",) if traces else ()
    ran = SeedResult(
        seed, "", "replay it", 2, verdicts, broken, deliveries, 1, 5, {"crash": 1}, 9, None, 20, 0.5,
        {"Gather\tjoin": 1}, {}, {"crash\tGather": 2}, {"T1": 1}, {}, {}, {}, "ab",
    )  # fmt: skip
    return SeedRow(BUILD, RING, seed, outcome, timeout_s, "", "replay it", ran if outcome == RAN else None, traces or {})
