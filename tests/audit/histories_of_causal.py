"""Histories in which causal messages are not in the total order: good ones, open and torn ones, and bad ones of every kind."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from tests.guarantees.mutants import CAUSAL_MUTANTS, MUTANTS
from tests.guarantees.oracle import good_history
from tests.guarantees.oracle_apart import apart_history
from tests.guarantees.toy import Toy
from transis.trace.events import History

TWO_CAUSES = """
    a: R4{a,b,c} s1~ d1 d2 d3 d4
    b: R4{a,b,c} d1 s2~ d2 s3 d3 d4
    c: R4{a,b,c} s4~ d4 d2 d1 d3
"""
"""c has b's answer before a's question; and then b's next message, of which nothing is asked that was not asked before."""


def histories() -> Iterator[tuple[str, History]]:
    for name, history in ((f"apart {seed}", apart_history(seed)) for seed in range(3)):
        yield name, history
        yield f"{name}, open", history._replace(closed=False)
        yield f"{name}, a trace missing", history._replace(nodes=history.nodes[1:])
    yield "of the ring", good_history(1)
    yield "two causes", Toy(TWO_CAUSES).history(engine="lansis")
    yield from wounded()


def wounded() -> Iterator[tuple[str, History]]:
    """Each mutant, where it first finds a place to strike."""
    whole = [apart_history(seed) for seed in range(16)]
    for mutant in (*CAUSAL_MUTANTS, *MUTANTS):
        tries = (mutant(history, Random(f"{number}:{mutant.name}")) for number, history in enumerate(whole))
        struck = next((history for history in tries if history is not None), None)
        assert struck is not None, f"{mutant.name} found no place to strike"
        yield mutant.name, struck
