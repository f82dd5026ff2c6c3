"""The audit of ordered messages says what the checkers say, of good histories, simulated runs, open ones and every mutant."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest
from pyspark.sql import SparkSession

from tests.pipeline.agreement import disagreements, run_key
from tests.pipeline.frames import tables_of_histories
from transis.pipeline.audit.finding import Found, found
from transis.pipeline.audit.lay import lay
from transis.pipeline.audit.properties import OF_ORDER, names
from transis.pipeline.audit.settling import settled
from transis.pipeline.audit.tail import sequence
from transis.sim.abstract import good_history
from transis.sim.checkers import check
from transis.sim.mutants import MUTANTS
from transis.sim.run import simulate
from transis.trace.events import History

pytestmark = pytest.mark.slow

PROPERTIES = names({**OF_ORDER})


def histories() -> dict[str, History]:
    drawn = {f"good {seed}": good_history(seed, steps=300) for seed in range(4)}
    simulated = {f"seed {seed}": simulate(seed).history for seed in (1, 2)}
    unclosed = {f"{name}, open": history._replace(closed=False) for name, history in drawn.items()}
    absent = {f"{name}, a trace missing": history._replace(nodes=history.nodes[1:]) for name, history in drawn.items()}
    return drawn | simulated | unclosed | absent | dict(wounded())


def wounded() -> Iterator[tuple[str, History]]:
    """Each mutant, where it first finds a place to strike."""
    whole = [good_history(seed, steps=300) for seed in range(12)]
    for mutant in MUTANTS:
        tries = (mutant(history, Random(f"{number}:{mutant.name}")) for number, history in enumerate(whole))
        struck = next((history for history in tries if history is not None), None)
        assert struck is not None, f"{mutant.name} found no place to strike"
        yield mutant.name, struck


@pytest.fixture(scope="module")
def all_histories() -> dict[str, History]:
    return histories()


@pytest.fixture(scope="module")
def audited(spark: SparkSession, all_histories: dict[str, History], tmp_path_factory: pytest.TempPathFactory) -> Found:
    tables = tables_of_histories(spark, all_histories, tmp_path_factory.mktemp("tables"))
    ordered = sequence(lay(tables, settled), settled)
    parts = [check(ordered) for check in OF_ORDER.values()]
    return found([settled(part.checked) for part in parts], [settled(part.broken) for part in parts])


@pytest.mark.parametrize("name", PROPERTIES)
def test_audit_and_checker_agree(name: str, all_histories: dict[str, History], audited: Found) -> None:
    assert disagreements(all_histories, audited, [name]) == []


def test_a_swap_is_explained_with_the_events_that_show_it(audited: Found) -> None:
    rows = audited.broken.where(f"run = {run_key('swapped_deliveries')} and property = 'no_holes_6_3'").collect()
    assert rows
    for row in rows:
        assert "delivered" in row.explanation
        assert row.explanation.endswith(("only after it", "not at all"))
        assert len(row.witness) >= 3
        assert len(row.messages) == 2


@pytest.mark.parametrize("mutant", ["skipped_behind_a_gap", "swapped_deliveries"])
def test_two_sequences_are_told_as_the_checker_tells_it(mutant: str, all_histories: dict[str, History], audited: Found) -> None:
    expected = check(all_histories[mutant]).verdicts["one_sequence"].violations
    rows = audited.broken.where(f"run = {run_key(mutant)} and property = 'one_sequence'").collect()
    assert sorted(row.explanation for row in rows) == sorted(one.explanation for one in expected)
    assert sorted(len(row.witness) for row in rows) == sorted(len(one.witness) for one in expected)
