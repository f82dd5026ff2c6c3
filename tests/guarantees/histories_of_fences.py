"""Histories of Lansis with client processes, in which causal messages stand beside joins and leaves."""

from __future__ import annotations

from functools import cache

from tests.guarantees.toy import Toy
from transis.sim.plan import Scenario
from transis.sim.run import simulate
from transis.trace.events import History

TOLD = """
    a: R4{a,b,c} c1 Vg1{a#1} Vg2{a#1,b#1} s5~@g d5 h5>1 Vg3{a#1,b#1,c#1} s6~@g d6 h6>1 Vg4{a#1,b#1}
    b: R4{a,b,c} c1 Vg2{a#1,b#1} d5 h5>1 Vg3{a#1,b#1,c#1} d6 h6>1 Vg4{a#1,b#1}
    c: R4{a,b,c} c1 d5 Vg3{a#1,b#1,c#1} d6 h6>1 lg1
"""
"""c joins between two causal messages, and leaves behind the second."""


@cache
def of_lansis(seed: int) -> History:
    """A recorded one, or the one above for 0."""
    if not seed:
        return Toy(TOLD).history(engine="lansis")
    return simulate(seed, nodes=4, groups=True, scenario=Scenario("lansis")).history
