"""Histories that tell of replicas: runs of the simulator that have come to rest."""

from __future__ import annotations

from functools import cache

from transis.sim.plan import Scenario
from transis.sim.run import simulate
from transis.trace.events import History

SEEDS = (1, 5, 6, 10, 11, 14)


@cache
def of_replicas(seed: int) -> History:
    return simulate(seed, scenario=Scenario(replicas="corel")).history
