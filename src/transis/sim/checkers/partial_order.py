"""EVS 1.1, 1.2, 2.3, 2.4: events are partially ordered, and a configuration change is one moment for all its members.

The graph merges the installations of a configuration but not deliveries. The certificates of the orders prove this
too; where they fail, the larger graph decides.
"""

from __future__ import annotations

from transis.sim.checkers.certificate import certified
from transis.sim.checkers.index import Index
from transis.sim.checkers.total_order import build, tell_cycle
from transis.sim.checkers.verdict import Findings


def check_partial_order(index: Index, findings: Findings) -> None:
    findings.checked += sum(len(stay.all.codes) + len(stay.origins) for life in index.lives for stay in life.stays)
    findings.checked += sum(len(life.confs) for life in index.lives)
    if not certified(index):
        tell_cycle(index, build(index, merged=False), "precede each other in a circle", findings)
