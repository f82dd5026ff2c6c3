"""What all tests of mutants share: where a mutant strikes, and that it breaks its set and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from random import Random

from tests.guarantees.mutants import Mutant
from transis.audit.guarantees import check
from transis.trace.events import History


def wounded(mutant: Mutant, draw: Callable[[int], History], seeds: Iterable[int], strikes: int) -> list[History]:
    """The first few drawn histories in which the mutant finds a place to strike."""
    tries = (mutant(draw(seed), Random(f"{seed}:{mutant.name}")) for seed in seeds)
    return list(islice((history for history in tries if history is not None), strikes))


def assert_breaks_its_set_and_nothing_else(mutant: Mutant, histories: list[History]) -> None:
    assert histories, "it never found a place to strike"
    for history in histories:
        outcome = check(history)
        broken = set(outcome.broken)
        told = [violation.explanation for violation in outcome.violations]
        assert mutant.must <= broken, told
        assert broken <= mutant.must | mutant.may, told
