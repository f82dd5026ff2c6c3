"""The schemas of all measures in one place; each stands in the module that makes its table."""

from transis.audit.measure.clocks import LINES, OFFSETS
from transis.audit.measure.incidents import BLACKOUT, GROUP_BLACKOUT, INCIDENTS
from transis.audit.measure.measures import COMPARED
from transis.audit.measure.traffic import CELLS, DENSITIES, FIGURES, GROUP_LATENCY, LATENCY, LATENCY_SUMMARY, RING, THROUGHPUT

__all__ = [
    "BLACKOUT",
    "CELLS",
    "COMPARED",
    "DENSITIES",
    "FIGURES",
    "GROUP_BLACKOUT",
    "GROUP_LATENCY",
    "INCIDENTS",
    "LATENCY",
    "LATENCY_SUMMARY",
    "LINES",
    "OFFSETS",
    "RING",
    "THROUGHPUT",
]
