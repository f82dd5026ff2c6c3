"""The audit says what the checkers say where causal messages are not in the total order: of good histories, of open and torn
ones, and of every mutant."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest
from pyspark.sql import SparkSession

from tests.checkers.toy import Toy
from tests.pipeline.agreement import disagreements_by_property, run_key
from tests.pipeline.frames import tables_of_histories
from transis.pipeline.audit.finding import Found, found
from transis.pipeline.audit.judging import together
from transis.pipeline.audit.lay import lay
from transis.pipeline.audit.properties import OF_ORDER, OF_VIEWS, names
from transis.pipeline.audit.settling import kept_together
from transis.pipeline.audit.tail import sequence
from transis.pipeline.tables import Tables
from transis.sim.abstract import good_history
from transis.sim.abstract_apart import apart_history
from transis.sim.mutants import CAUSAL_MUTANTS, MUTANTS
from transis.trace.events import History

pytestmark = pytest.mark.slow

PROPERTIES = names({**OF_VIEWS, **OF_ORDER})

TWO_CAUSES = """
    a: R4{a,b,c} s1~ d1 d2 d3 d4
    b: R4{a,b,c} d1 s2~ d2 s3 d3 d4
    c: R4{a,b,c} s4~ d4 d2 d1 d3
"""
"""c has b's answer before a's question; and then b's next message, of which nothing is asked that was not asked before."""


def histories() -> dict[str, History]:
    drawn = {f"apart {seed}": apart_history(seed) for seed in range(3)}
    torn = {f"{name}, open": history._replace(closed=False) for name, history in drawn.items()}
    absent = {f"{name}, a trace missing": history._replace(nodes=history.nodes[1:]) for name, history in drawn.items()}
    ring = {"of the ring": good_history(1), "two causes": Toy(TWO_CAUSES).history(engine="lansis")}
    return drawn | torn | absent | ring | dict(wounded())


def wounded() -> Iterator[tuple[str, History]]:
    """Each mutant, where it first finds a place to strike."""
    whole = [apart_history(seed) for seed in range(16)]
    for mutant in (*CAUSAL_MUTANTS, *MUTANTS):
        tries = (mutant(history, Random(f"{number}:{mutant.name}")) for number, history in enumerate(whole))
        struck = next((history for history in tries if history is not None), None)
        assert struck is not None, f"{mutant.name} found no place to strike"
        yield mutant.name, struck


@pytest.fixture(scope="module")
def all_histories() -> dict[str, History]:
    return histories()


@pytest.fixture(scope="module")
def audited(spark: SparkSession, all_histories: dict[str, History], tmp_path_factory: pytest.TempPathFactory) -> Found:
    events = tables_of_histories(spark, all_histories, tmp_path_factory.mktemp("tables")).events
    laid = lay(Tables(events, kept_together), kept_together)
    parts = together(OF_VIEWS, laid, kept_together) + together(OF_ORDER, sequence(laid, kept_together), kept_together)
    return found([part.checked for part in parts], [part.broken for part in parts])


@pytest.fixture(scope="module")
def different(all_histories: dict[str, History], audited: Found) -> dict[str, list[str]]:
    return disagreements_by_property(all_histories, audited, PROPERTIES)


@pytest.mark.parametrize("name", PROPERTIES)
def test_audit_and_checker_agree(name: str, different: dict[str, list[str]]) -> None:
    assert different[name] == []


def test_a_count_that_falls_short_is_explained_as_the_checkers_do(audited: Found) -> None:
    rows = audited.broken.where(f"run = {run_key('two causes')}").collect()
    assert [row.property for row in rows] == ["causal_5"]
    assert rows[0].explanation == (
        "b/1 had delivered 1 messages of a/1 in R4@a/1 before it sent b/1#0:1, but c/1 had delivered fewer of them "
        "when it delivered b/1#0:1 in R4@a/1"
    )
    assert len(rows[0].witness) == 2
