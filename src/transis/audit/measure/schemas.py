"""Schemas of the measures. Every table has the names beside the keys, so that it can be read without the others.

Times are microseconds. `bin_us` is the begin of a bin in the time of the run's reference node (clocks.py), `uncertainty_us` how
far a corrected time may be off; null where the clocks could not be compared, and times are then taken as they were recorded.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import ArrayType, DoubleType, StructType

from transis.spark.schema import BYTE, INT, LONG, LONGS, TEXT, columns

REAL: Final = DoubleType()
TEXTS: Final = ArrayType(TEXT)

LINES: Final = columns(
    run=LONG, node=LONG, reference=LONG, hops=INT, window=LONG, at_us=LONG, shift_us=REAL, slope=REAL, uncertainty_us=REAL
)
"""In a window of a node's clock, add `shift_us + slope * (t - at_us)` to a time t of it: then it is one of the reference node's
recording clock, which was compared over `hops` pairs of nodes."""

CELLS: Final = columns(
    run=LONG,
    node=LONG,
    sender=LONG,
    address=LONG,
    service=BYTE,
    size_up_to=LONG,
    bin_us=LONG,
    bucket=INT,
    messages=LONG,
    bytes=LONG,
    latency_sum_us=REAL,
    uncertainty_us=REAL,
)
"""Deliveries, counted at the finest grain that any table shows; all of latency and throughput is made of them."""

THROUGHPUT: Final = columns(
    run=LONG,
    node=LONG,
    node_name=TEXT,
    sender=LONG,
    sender_name=TEXT,
    group=LONG,
    group_name=TEXT,
    service=BYTE,
    size_up_to=LONG,
    bin_us=LONG,
    width_us=LONG,
    messages=LONG,
    bytes=LONG,
    messages_per_s=REAL,
    bytes_per_s=REAL,
)
"""What each node delivered in a bin. A message for several groups counts in each of them: sum over one group at a time."""

_BUCKET: Final = columns(bucket=INT, from_us=REAL, to_us=REAL, messages=LONG, share=REAL)
_PATH: Final = columns(run=LONG, sender=LONG, sender_name=TEXT, node=LONG, node_name=TEXT, service=BYTE)
_PERCENTILES: Final = columns(messages=LONG, mean_us=REAL, p50_us=REAL, p90_us=REAL, p99_us=REAL, uncertainty_us=REAL)

LATENCY: Final = StructType([*_PATH.fields, *_BUCKET.fields, *columns(uncertainty_us=REAL).fields])
"""The latency density of each path, as a histogram with eight buckets an octave."""

LATENCY_SUMMARY: Final = StructType([*_PATH.fields, *_PERCENTILES.fields])

GROUP_LATENCY: Final = StructType([*columns(run=LONG, group=LONG, group_name=TEXT, bin_us=LONG).fields, *_PERCENTILES.fields])

DENSITIES: Final = StructType(
    [*columns(run=LONG, build=TEXT, service=BYTE).fields, *_BUCKET.fields, *columns(per_ms=REAL).fields],
)
"""Totem's Figure 7: `per_ms` is the probability density of the latency, by millisecond."""

FIGURES: Final = StructType(
    [
        *columns(run=LONG, build=TEXT, service=BYTE, nodes=INT, span_us=LONG, size=REAL, offered_per_s=REAL).fields,
        *columns(delivered_per_s=REAL, bytes_per_s=REAL).fields,
        *_PERCENTILES.fields,
    ]
)
"""Totem's Figure 6, a point a run and service: what one node delivers in a second, over the size of a message; and the latency
at the load that was offered."""

OFFSETS: Final = columns(
    run=LONG,
    node=LONG,
    node_name=TEXT,
    reference=LONG,
    reference_name=TEXT,
    hops=INT,
    at_us=LONG,
    offset_us=REAL,
    drift_ppm=REAL,
    uncertainty_us=REAL,
)
"""How far a node's clock is ahead of the reference's when it shows `at_us`."""

RING: Final = columns(
    run=LONG,
    node=LONG,
    node_name=TEXT,
    bin_us=LONG,
    visits=LONG,
    rotation_us=REAL,
    backlog=LONG,
    retransmitted=LONG,
    tokens_retransmitted=LONG,
    tokens_lost=LONG,
    state_changes=LONG,
)
"""What a node saw of its ring in a bin; `visits` are those of the token at which it sent something."""

BLACKOUT: Final = columns(node=LONG, node_name=TEXT, last_before_us=LONG, first_after_us=LONG, blackout_us=LONG)
GROUP_BLACKOUT: Final = columns(group=LONG, group_name=TEXT, blackout_us=LONG)

INCIDENTS: Final = columns(
    run=LONG,
    view=LONG,
    view_name=TEXT,
    old_views=LONGS,
    old_names=TEXTS,
    transitional_names=TEXTS,
    cause=TEXT,
    members=TEXTS,
    lost=TEXTS,
    joined=TEXTS,
    began_us=LONG,
    installed_us=LONG,
    duration_us=LONG,
    detection_us=LONG,
    detected_from=TEXT,
    blackout_us=LONG,
    blackouts=ArrayType(BLACKOUT),
    group_blackouts=ArrayType(GROUP_BLACKOUT),
    tail_messages=LONG,
    uncertainty_us=REAL,
)
"""A change of the configuration: a new regular one, and what it took to get there."""

COMPARED: Final = columns(measure=TEXT, service=BYTE, build_a=TEXT, build_b=TEXT, a=REAL, b=REAL, ratio=REAL)
"""One figure of two builds; `ratio` is b / a."""
