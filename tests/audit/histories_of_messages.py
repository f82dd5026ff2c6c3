"""Histories for the properties of ordered messages: good ones, simulated runs, open ones, and every mutant."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from tests.guarantees.mutants import MUTANTS
from tests.guarantees.oracle import good_history
from transis.sim.run import simulate
from transis.trace.events import History


def histories() -> Iterator[tuple[str, History]]:
    for seed in range(4):
        history = good_history(seed, steps=300)
        yield f"good {seed}", history
        yield f"good {seed}, open", history._replace(closed=False)
        yield f"good {seed}, a trace missing", history._replace(nodes=history.nodes[1:])
    for seed in (1, 2):
        yield f"seed {seed}", simulate(seed).history
    yield from wounded()


def wounded() -> Iterator[tuple[str, History]]:
    """Each mutant, where it first finds a place to strike."""
    whole = [good_history(seed, steps=300) for seed in range(12)]
    for mutant in MUTANTS:
        tries = (mutant(history, Random(f"{number}:{mutant.name}")) for number, history in enumerate(whole))
        struck = next((history for history in tries if history is not None), None)
        assert struck is not None, f"{mutant.name} found no place to strike"
        yield mutant.name, struck
