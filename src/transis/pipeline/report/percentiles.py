"""Percentiles out of histograms: as exact as their buckets are narrow."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from transis.pipeline.report.content import Latency


def percentiles(bars: Iterable[Latency], shares: Sequence[float]) -> list[float]:
    """For each share the latency that so much of all deliveries did not exceed; within a bucket evenly spread."""
    ordered = sorted((bar.low_us, bar.high_us, bar.count) for bar in bars)
    total = sum(count for _, _, count in ordered)
    return [_at(ordered, share * total) for share in shares]


def _at(ordered: Sequence[tuple[float, float, int]], wanted: float) -> float:
    so_far = 0
    for low, high, count in ordered:
        if count and so_far + count >= wanted:
            return low + (high - low) * max(0.0, wanted - so_far) / count
        so_far += count
    return ordered[-1][1] if ordered else 0.0
