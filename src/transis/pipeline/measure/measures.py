"""All measures of a trace, by the names under which they are kept and drawn."""

from __future__ import annotations

from pyspark.sql import DataFrame

from transis.pipeline.audit.lay import Laid
from transis.pipeline.measure.cells import bins, cells
from transis.pipeline.measure.clocks import Keep, compare_clocks, not_kept, offsets
from transis.pipeline.measure.incidents import incidents
from transis.pipeline.measure.latency import densities, group_latency, latency, latency_summary
from transis.pipeline.measure.ring import ring
from transis.pipeline.measure.throughput import builds_of, figure_points, throughput


def measures(laid: Laid, keep: Keep = not_kept) -> dict[str, DataFrame]:
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
