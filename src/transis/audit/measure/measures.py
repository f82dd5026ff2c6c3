"""All measures of a trace, by the names under which they are kept and drawn; and a comparison of two builds, figure by figure.

Every table has the names beside the keys, so that it can be read without the others. Times are microseconds. `bin_us` is the
start of a bin in the time of the run's reference node (clocks.py), `uncertainty_us` how far a corrected time may be off; null
where the clocks could not be compared, and times are then taken as they were recorded.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from transis.audit.measure.clocks import Keep, compare_clocks, not_kept, offsets
from transis.audit.measure.incidents import incidents
from transis.audit.measure.traffic import (
    PERCENTILES,
    bins,
    builds_of,
    cells,
    densities,
    figure_points,
    group_latency,
    latency,
    latency_summary,
    percentiles,
    ring,
    throughput,
)
from transis.audit.plans.lay import HistoryTables
from transis.spark.inputs import BYTE, REAL, TEXT, columns

# --- tables -----------------------------------------------------------------------------------------------------------

COMPARED: Final = columns(measure=TEXT, service=BYTE, build_a=TEXT, build_b=TEXT, a=REAL, b=REAL, ratio=REAL)
"""One figure of two builds; `ratio` is b / a."""


# --- measures ---------------------------------------------------------------------------------------------------------


def measures(laid: HistoryTables, keep: Keep = not_kept) -> dict[str, DataFrame]:
    """Every table of measures. `keep` is given what several of them need: small tables, but made of everything delivered."""
    tables, names = laid.tables, laid.node_names
    known = compare_clocks(tables, keep)
    cut = keep("bins", bins(known))
    counted = keep("cells", cells(tables, known, cut))
    return {
        "throughput": throughput(counted, cut, tables, names),
        "latency": latency(counted, names),
        "latency_summary": latency_summary(counted, names),
        "group_latency": group_latency(counted, tables),
        "densities": densities(counted, builds_of(tables)),
        "figures": figure_points(counted, cut, tables),
        "offsets": offsets(known, names),
        "ring": ring(tables, known, cut, names),
        "incidents": incidents(laid, known, keep),
    }


# --- compare ----------------------------------------------------------------------------------------------------------

Measures = Mapping[str, DataFrame]


def of_build(measures: Measures, build: str) -> dict[str, DataFrame]:
    """The measures of the runs that one build wrote."""
    runs = measures["figures"].where(F.col("build") == build).select("run").distinct()
    return {name: rows.join(F.broadcast(runs), "run", "left_semi") for name, rows in measures.items()}


def compare(a: Measures, b: Measures) -> DataFrame:
    """COMPARED: what both have, and what only one of them has with a null for the other."""
    left, right = (_said(measures, side) for measures, side in ((a, "a"), (b, "b")))
    both = left.join(right, ["measure", "service_or_all"], "full")
    rows = both.withColumns({"service": F.expr("nullif(service_or_all, -1)"), "ratio": F.expr("b / nullif(a, 0)")})
    return rows.select(*COMPARED.names).to(COMPARED)


def _said(measures: Measures, side: str) -> DataFrame:
    """measure, service_or_all (-1 for all), build_`side`, `side`."""
    figures = reduce(DataFrame.unionByName, [_by_service(measures), _of_incidents(measures), _of_rings(measures)])
    builds = measures["figures"].select(F.array_join(F.sort_array(F.collect_set("build")), ", ").alias(f"build_{side}"))
    named = figures.withColumnRenamed("value", side).withColumnRenamed("service", "service_or_all")
    return named.where(F.col(side).isNotNull()).crossJoin(F.broadcast(builds))


def _by_service(measures: Measures) -> DataFrame:
    """Rates are means over runs; latencies are those of all messages together, whichever run they are of."""
    rates = {name: F.mean(name) for name in ("offered_per_s", "delivered_per_s", "bytes_per_s")}
    values = {**rates, "mean_us": F.sum(F.col("mean_us") * F.col("messages")) / F.sum("messages")}
    wide = measures["figures"].groupBy("service").agg(*(value.alias(name) for name, value in values.items()))
    buckets = measures["densities"].withColumns({"latency_sum_us": F.lit(0.0), "uncertainty_us": F.lit(0.0)})
    ranked = percentiles(buckets, ["service"])
    return wide.unpivot("service", list(values), "measure", "value").unionByName(
        ranked.unpivot("service", list(PERCENTILES), "measure", "value")
    )


def _of_incidents(measures: Measures) -> DataFrame:
    return _over_all(measures["incidents"], {name: F.median(name) for name in ("duration_us", "detection_us", "blackout_us")})


def _of_rings(measures: Measures) -> DataFrame:
    values = {"rotation_us": F.mean("rotation_us"), "retransmitted": F.sum("retransmitted"), "tokens_lost": F.sum("tokens_lost")}
    return _over_all(measures["ring"], values)


def _over_all(rows: DataFrame, values: Mapping[str, Column]) -> DataFrame:
    wide = rows.agg(
        F.lit(-1).cast("byte").alias("service"), *(value.cast("double").alias(name) for name, value in values.items())
    )
    return wide.unpivot("service", list(values), "measure", "value")
