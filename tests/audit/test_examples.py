"""Every example of every guarantee through its SQL: the verdict, and each violation with its words, messages and witnesses, are
those of the checker. And every query is planned against the columns that its sentences name."""

from __future__ import annotations

import re

import pytest
from pyspark.sql import SparkSession

from tests.audit.agreement import ALL, NOTHING, run_key, said_by_audit, said_by_checkers
from tests.audit.histories_of_examples import EXAMPLES, history_of
from transis.audit.guarantees import PROPERTIES, check
from transis.audit.guarantees.property import Property, Reads, fields_of, statements
from transis.audit.plans.clients import lay_clients
from transis.audit.plans.finding import Result
from transis.audit.plans.lay import Tables, lay_out
from transis.audit.plans.spine import sequence
from transis.audit.plans.views import Views, views_of, views_of_clients, views_of_order, views_of_replicas
from transis.spark.inputs import EVENTS, coalesced
from transis.trace.tables import RunKeys
from transis.types.ids import MessageId, NodeId

pytestmark = pytest.mark.slow

WITH_SQL = [one for one in PROPERTIES.values() if one.sql]

Said = tuple[str, list[tuple[int, int]], list[tuple[int, int]]]
"""A sentence, the messages and the witness of a violation."""


@pytest.fixture(scope="module")
def found(audit: Result) -> dict[tuple[int, str], list[Said]]:
    """All violations of the examples, by run and property."""
    told: dict[tuple[int, str], list[Said]] = {}
    runs = [run_key(f"examples: {name}") for name in EXAMPLES]
    for row in audit.broken.where(audit.broken.run.isin(runs)).collect():
        messages = [(one.process, one.counter) for one in row.messages]
        witness = [(one.node, one.lseq) for one in row.witness]
        told.setdefault((row.run, row.property), []).append((row.explanation, messages, witness))
    return told


@pytest.mark.parametrize("name", [name for name, (one, _) in EXAMPLES.items() if one.sql])
def test_the_sql_says_what_the_checker_says(name: str, found: dict[tuple[int, str], list[Said]]) -> None:
    one, example = EXAMPLES[name]
    run = f"examples: {name}"
    keys = RunKeys("simulated", run)
    expected = [
        (violation.explanation, messages_of(keys, violation.messages), witness_of(keys, violation.witness))
        for violation in check(history_of(example), keep=ALL).verdicts[one.name].violations
    ]
    assert sorted(found.get((run_key(run), one.name), [])) == sorted(expected)


def test_verdicts_of_examples_are_those_of_the_checkers(audit: Result) -> None:
    runs = {run_key(f"examples: {name}"): name for name in EXAMPLES}
    said = {key: verdict for key, verdict in said_by_audit(audit).items() if key[0] in runs}
    for name, (one, example) in EXAMPLES.items():
        run = f"examples: {name}"
        assert said.get((run_key(run), one.name), NOTHING) == said_by_checkers(run, history_of(example))[one.name], name


def messages_of(keys: RunKeys, messages: tuple[MessageId, ...]) -> list[tuple[int, int]]:
    return [(keys.process(one.process), one.counter) for one in messages]


def witness_of(keys: RunKeys, witness: tuple[tuple[NodeId, int], ...]) -> list[tuple[int, int]]:
    return [(keys.node(node), lseq) for node, lseq in witness]


# -- every query, against tables without rows --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def empty(spark: SparkSession) -> dict[Reads, Views]:
    """Kept, so that a query is planned from tables and not from all that they are made of."""
    laid = lay_out(Tables(spark.createDataFrame([], EVENTS), coalesced), coalesced)
    return {
        Reads.VIEWS: views_of(laid, coalesced),
        Reads.ORDER: views_of_order(sequence(laid, coalesced), coalesced),
        Reads.GROUPS: views_of_clients(lay_clients(laid, coalesced), coalesced),
        Reads.REPLICAS: views_of_replicas(laid, coalesced),
    }


@pytest.mark.parametrize("one", WITH_SQL, ids=lambda one: one.name)
def test_a_query_has_the_columns_that_its_sentences_name(one: Property[object], empty: dict[Reads, Views]) -> None:
    said = set()
    for sql in statements(one.sql):
        columns = set(empty[one.reads].query(sql).columns)
        kinds = set(re.findall(r"'([\w ,]+)'", sql)) & set(one.broken) if "kind" in columns else set(one.broken)
        for kind in kinds:
            assert set(fields_of(one.broken[kind])) <= columns, kind
            said.add(kind)
        evidence = {"run", "ring", "kind", "nodes", "views", "messages", "witness", "position", "is_pending"}
        named = {name for kind in kinds for name in fields_of(one.broken[kind])}
        assert columns <= evidence | named, "a column that nobody reads"
    assert said == set(one.broken)


@pytest.mark.parametrize("one", WITH_SQL, ids=lambda one: one.name)
def test_a_count_has_run_checked_and_perhaps_ring_and_pending(one: Property[object], empty: dict[Reads, Views]) -> None:
    for found in empty[one.reads].queries(one.counts):
        assert {"run", "checked"} <= set(found.columns) <= {"run", "ring", "checked", "pending"}
